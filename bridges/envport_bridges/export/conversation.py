"""From a recorded episode to a conversation, as TRL's trainers take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envport.blocks import ContentBlock, text_of
from envport.errors import InvalidArguments, InvalidRequest, UnknownTool
from envport.trajectories.recorded import RecordedEpisode
from envport.types import Observation, StepRecord
from envport_bridges.chat import (
    Shown,
    decoded_image,
    failure_text,
    function_schema,
    shown_content,
    task_message,
    unreadable_part,
)

__all__ = [
    "REFUSED",
    "ConversationForm",
    "columns_of",
    "conversation",
    "first_message",
    "steps_of",
    "tool_message",
    "why_incomplete",
]

REFUSED = frozenset({InvalidArguments.code, UnknownTool.code})
"""Codes of the errors of calls that never reached the environment."""

_UNREADABLE = "unreadable"
"""What the store says of a call whose row is broken."""


@dataclass(frozen=True, slots=True)
class ConversationForm:
    """What is written of an episode.

    Attributes:
        refused: Whether to keep calls that were refused before they reached the environment, such as those with
            invalid arguments. The environment is the same without them.
        last_turn: What the assistant says after the last observation; no such turn if empty.
        template_kwargs: What chat templates are given, such as `{"enable_thinking": False}`; the column
            `chat_template_kwargs`.
    """

    refused: bool = False
    last_turn: str = ""
    template_kwargs: Mapping[str, Any] | None = None


def conversation(recorded: RecordedEpisode, form: ConversationForm = ConversationForm()) -> dict[str, Any]:
    """An episode as a row of a dataset of conversations with tools.

    `messages` and `tools` hold what the model is shown when it is trained on the same environment by GRPO: the prompt
    with the first observation, a message of the assistant for each call, and one of the tool. Rewards and everything
    else that the player never saw are columns of their own.

    Args:
        recorded: The episode.
        form: What is written of it.

    Returns:
        The row: `messages`, `tools`, and the columns of `columns_of`.

    Raises:
        InvalidRequest: Its oldest calls or its tools are not recorded any more.
        MissingExtra: It shows images, and Pillow is not installed.
    """
    messages = [first_message(recorded)]
    for step in steps_of(recorded, form):
        function = {"name": step.tool, "arguments": step.arguments}
        call = {"type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append(tool_message(step))
    if form.last_turn:
        messages.append({"role": "assistant", "content": form.last_turn})
    row = {"messages": messages, "tools": [function_schema(tool) for tool in recorded.tools], **columns_of(recorded)}
    if form.template_kwargs is not None:
        row["chat_template_kwargs"] = dict(form.template_kwargs)
    return row


def steps_of(recorded: RecordedEpisode, form: ConversationForm) -> Sequence[StepRecord]:
    """The calls that are written.

    Raises:
        InvalidRequest: The oldest calls or the tools are not recorded any more.
    """
    if (why := why_incomplete(recorded)) is not None:
        raise InvalidRequest(f"episode {recorded.trajectory.episode.episode_id} cannot be exported: {why}")
    return [step for step in recorded.trajectory.steps if form.refused or step.error not in REFUSED]


def why_incomplete(recorded: RecordedEpisode) -> str | None:
    """Why an episode cannot be exported: what is recorded of it is not all that its player saw. `None` if it can."""
    trajectory = recorded.trajectory
    if trajectory.dropped_steps:
        return "its first calls are not kept any more"
    if any(step.error == _UNREADABLE for step in trajectory.steps):
        return "one of its calls cannot be read"
    return None if recorded.tools else "its tools are not recorded"


def first_message(recorded: RecordedEpisode) -> dict[str, Any]:
    """The user's message: the prompt, and the first observation as TRL adds it."""
    message = task_message(recorded.prompt)
    shown = _shown(recorded.trajectory.first_observation)
    if isinstance(shown, str):
        return {**message, "content": message["content"] + shown}
    return {**message, "content": [{"type": "text", "text": message["content"]}, *shown]}


def tool_message(step: StepRecord) -> dict[str, Any]:
    """The tool's message after a call."""
    content = _shown(step.observation) if step.error is None else failure_text(_told(step.observation))
    return {"role": "tool", "name": step.tool, "content": content}


def columns_of(recorded: RecordedEpisode) -> dict[str, Any]:
    """What the player never saw, one column each. None has the name of a column that TRL reads."""
    info = recorded.trajectory.episode
    outcome = info.outcome
    return {
        "episode_id": info.episode_id,
        "environment": info.environment,
        "environment_version": recorded.trajectory.environment_version,
        "fingerprint": recorded.trajectory.fingerprint,
        "split": info.split,
        "task": info.task.id if info.task is not None else None,
        "task_index": info.task_index,
        "seed": info.seed,
        "reward": info.reward,
        "score": info.score,
        "rewards": [step.reward for step in recorded.trajectory.steps if step.error not in REFUSED],
        "status": info.status,
        "reason": outcome.reason if outcome is not None else None,
        "fault": outcome.fault if outcome is not None else None,
        "steps": info.steps,
        "errors": info.errors,
        "created_at": info.created_at,
        "principal": recorded.principal,
        # Not `labels`: TRL would take those for the tokens to learn.
        "episode_labels": dict(info.labels),
    }


def _shown(observation: Observation) -> Shown:
    return shown_content(observation.content, observation.structured_content, _image)


def _told(observation: Observation) -> str:
    # TRL shows the model a failure as text, so an image is only named.
    return "\n".join(map(text_of, observation.content))


def _image(block: ContentBlock) -> dict[str, Any]:
    """An image as a data URL, which transformers loads, so that a file of rows is complete in itself."""
    if decoded_image(block) is None:
        return unreadable_part(block)
    return {"type": "image", "image": f"data:{block.get('mimeType')};base64,{block['data']}"}
