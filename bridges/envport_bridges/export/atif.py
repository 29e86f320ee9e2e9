"""The Agent Trajectory Interchange Format of Harbor (ATIF v1.7, Harbor's RFC 0001)."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

from envport.blocks import ContentBlock, text_of
from envport.trajectories.recorded import RecordedEpisode
from envport.types import Observation, StepRecord
from envport_bridges.chat import decoded_image, function_schema, shown_content, task_message, unreadable_part
from envport_bridges.export.conversation import ConversationForm, columns_of, steps_of

__all__ = ["ATIF_VERSION", "atif_document"]

ATIF_VERSION = "ATIF-v1.7"
"""The version that is written. Harbor 0.24 reads 1.0 to 1.8; 1.7 is the first with `trajectory_id`."""

_UNKNOWN = "unknown"
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


def atif_document(
    recorded: RecordedEpisode,
    form: ConversationForm = ConversationForm(),  # noqa: B008
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """An episode as an ATIF document.

    The first step is the user's: the prompt and the first observation. Each call is a step of the agent, with what the
    environment answered as its observation. Rewards, errors and the outcome stand in `extra`, where ATIF has room for
    what it does not define.

    Args:
        recorded: The episode. Its labels `agent`, `agent_version` and `model` say who played, if they are there.
        form: What is written of it.

    Returns:
        The document, and the images that it names, by their paths relative to it.

    Raises:
        InvalidRequest: Its oldest calls or its tools are not recorded any more.
    """
    info = recorded.trajectory.episode
    images: dict[str, bytes] = {}
    steps: list[dict[str, Any]] = [
        {
            "step_id": 1,
            "timestamp": _time(info.created_at),
            "source": "user",
            "message": _first(recorded, images),
        }
    ]
    for step in steps_of(recorded, form):
        steps.append(_agent_step(len(steps) + 1, step, images))
    if form.last_turn:
        steps.append({"step_id": len(steps) + 1, "source": "agent", "message": form.last_turn})
    agent: dict[str, Any] = {
        "name": info.labels.get("agent", _UNKNOWN),
        "version": info.labels.get("agent_version", _UNKNOWN),
        "tool_definitions": [function_schema(tool) for tool in recorded.tools],
    }
    if "model" in info.labels:
        agent["model_name"] = info.labels["model"]
    document = {
        "schema_version": ATIF_VERSION,
        "session_id": info.episode_id,
        "trajectory_id": info.episode_id,
        "agent": agent,
        "steps": steps,
        "final_metrics": {"total_steps": len(steps)},
        "extra": {"envport": columns_of(recorded)},
    }
    return document, images


def _first(recorded: RecordedEpisode, images: dict[str, bytes]) -> Any:
    shown = _content(recorded.trajectory.first_observation, images)
    told = task_message(recorded.prompt)["content"]
    return told + shown if isinstance(shown, str) else [{"type": "text", "text": told}, *shown]


def _agent_step(number: int, step: StepRecord, images: dict[str, bytes]) -> dict[str, Any]:
    call_id = f"call_{step.index}"
    known = {
        "error": step.error,
        "reward": step.reward,
        "terminated": step.terminated or None,
        "truncated": step.truncated or None,
        "info": step.info or None,
        "seconds": step.seconds,
    }
    return {
        "step_id": number,
        "timestamp": _time(step.started_at),
        "source": "agent",
        "message": "",
        "tool_calls": [{"tool_call_id": call_id, "function_name": step.tool, "arguments": step.arguments}],
        "observation": {"results": [{"source_call_id": call_id, "content": _content(step.observation, images)}]},
        "extra": {"envport": {name: value for name, value in known.items() if value is not None}},
    }


def _content(observation: Observation, images: dict[str, bytes]) -> Any:
    def image(block: ContentBlock) -> dict[str, Any]:
        suffix = _SUFFIXES.get(str(block.get("mimeType")))
        if decoded_image(block) is None:
            return unreadable_part(block)
        if suffix is None:
            return {"type": "text", "text": text_of(block)}
        data = base64.b64decode(block["data"])
        path = f"images/{hashlib.sha256(data).hexdigest()}.{suffix}"
        images[path] = data
        return {"type": "image", "source": {"media_type": block["mimeType"], "path": path}}

    return shown_content(observation.content, observation.structured_content, image)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
