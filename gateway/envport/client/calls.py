"""The calls of the control plane, without I/O: what to send, and how to read the answer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx2
from pydantic import TypeAdapter, ValidationError

from envport.client.addresses import environment_path, episode_path
from envport.errors import EnvportError, GatewayUnreachable, error_from_code
from envport.types import Choice, EnvironmentInfo, EpisodeInfo, LegalCalls, OpenedEpisode, Task, TaskPage, Trajectory

__all__ = ["Call", "headers_for"]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Call(Generic[ResultT]):
    """One call.

    Attributes:
        method: HTTP method.
        path: Path relative to the gateway's address.
        adapter: Parses the answer.
        json: Body.
        params: Query.
        patient: Whether its answer may take as long as the gateway allows, whatever the client's timeout is.
    """

    method: str
    path: str
    adapter: TypeAdapter[ResultT]
    json: dict[str, Any] | None = field(default=None, repr=False)
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    patient: bool = False

    def timeout(self, seconds: float) -> httpx2.Timeout:
        """How long to wait for it.

        Args:
            seconds: How long to wait for a connection, and for an answer unless the call is patient.
        """
        return httpx2.Timeout(seconds, read=None if self.patient else seconds)

    def read(self, url: str, status: int, body: bytes) -> ResultT:
        """The result, or the gateway's error.

        Args:
            url: The whole address, for messages.
            status: HTTP status of the answer.
            body: Body of the answer.

        Raises:
            EnvportError: The gateway's error, as the same class.
            GatewayUnreachable: The answer does not come from a gateway.
        """
        if 200 <= status < 300:
            try:
                return self.adapter.validate_json(body)
            except ValidationError as error:
                raise GatewayUnreachable(f"{url} sent an answer that is not a gateway's: {error}") from None
        raise _error(url, status, body)


def _error(url: str, status: int, body: bytes) -> EnvportError:
    try:
        fields = dict(json.loads(body)["error"])
        return error_from_code(fields.pop("code"), fields.pop("message"), **fields)
    except (ValueError, KeyError, TypeError):
        text = body[:200].decode("utf-8", "replace") or "nothing"
        return GatewayUnreachable(f"{url} answered {status}: {text}")


def headers_for(token: str | None) -> dict[str, str]:
    """The headers of every request: with the given token, else `ENVPORT_TOKEN`, else without a token."""
    token = token if token is not None else os.environ.get("ENVPORT_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


_ENVIRONMENTS = TypeAdapter(list[EnvironmentInfo])
_ENVIRONMENT = TypeAdapter(EnvironmentInfo)
_TASKS = TypeAdapter(TaskPage)
_OPENED = TypeAdapter(OpenedEpisode)
_EPISODE = TypeAdapter(EpisodeInfo)
_LEGAL = TypeAdapter(LegalCalls)
_EPISODES = TypeAdapter(list[EpisodeInfo])
_TRAJECTORY = TypeAdapter(Trajectory)


def environments() -> Call[list[EnvironmentInfo]]:
    """All environments."""
    return Call("GET", "/environments", _ENVIRONMENTS)


def environment(name: str) -> Call[EnvironmentInfo]:
    """One environment."""
    return Call("GET", environment_path(name), _ENVIRONMENT)


def tasks(name: str, split: str | None, offset: int, limit: int) -> Call[TaskPage]:
    """A page of tasks."""
    params: dict[str, Any] = {"offset": offset, "limit": limit}
    if split is not None:
        params["split"] = split
    return Call("GET", f"{environment_path(name)}/tasks", _TASKS, params=params)


def open_episode(
    name: str,
    choice: Choice,
    *,
    reward_in_meta: bool,
    mint_token: bool = False,
    labels: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Call[OpenedEpisode]:
    """Open an episode."""
    body: dict[str, Any] = {
        "environment": name,
        **_fields_of(choice),
        "reward_in_meta": reward_in_meta,
        "mint_token": mint_token,
    }
    # Omit empty fields: a gateway that does not know them then accepts the request.
    body |= {key: dict(value) for key, value in (("labels", labels), ("secrets", secrets)) if value}
    return Call("POST", "/episodes", _OPENED, json=body)


def episodes(labels: Mapping[str, str], limit: int) -> Call[list[EpisodeInfo]]:
    """Episodes by their labels."""
    params = {"label": [f"{name}={value}" for name, value in labels.items()], "limit": limit}
    return Call("GET", "/episodes", _EPISODES, params=params)


def episode(episode_id: str) -> Call[EpisodeInfo]:
    """The state of an episode."""
    return Call("GET", episode_path(episode_id), _EPISODE)


def legal_calls(episode_id: str) -> Call[LegalCalls]:
    """Which calls make sense now."""
    return Call("GET", f"{episode_path(episode_id)}/legal-calls", _LEGAL)


def keep_alive(episode_id: str) -> Call[EpisodeInfo]:
    """Restart the idle time of an episode."""
    return Call("POST", f"{episode_path(episode_id)}/keepalive", _EPISODE)


def reset(episode_id: str, choice: Choice) -> Call[OpenedEpisode]:
    """Start an episode over."""
    return Call("POST", f"{episode_path(episode_id)}/reset", _OPENED, json=_fields_of(choice))


def fork(
    episode_id: str, step: int | None, labels: Mapping[str, str] | None = None, *, mint_token: bool = False
) -> Call[OpenedEpisode]:
    """Open a copy of an episode."""
    body: dict[str, Any] = {"step": step, "mint_token": mint_token}
    if labels is not None:
        body["labels"] = dict(labels)
    return Call("POST", f"{episode_path(episode_id)}/fork", _OPENED, json=body)


def finish(episode_id: str) -> Call[EpisodeInfo]:
    """End an episode and wait for its reward."""
    return Call("POST", f"{episode_path(episode_id)}/finish", _EPISODE, patient=True)


def close_episode(episode_id: str) -> Call[EpisodeInfo]:
    """Close an episode."""
    return Call("DELETE", episode_path(episode_id), _EPISODE)


def trajectory(episode_id: str) -> Call[Trajectory]:
    """The trajectory of an episode."""
    return Call("GET", f"{episode_path(episode_id)}/trajectory", _TRAJECTORY)


def _fields_of(choice: Choice) -> dict[str, Any]:
    task = choice.task
    if isinstance(task, Task):
        task = task.model_dump()
    elif isinstance(task, Mapping):
        task = dict(task)
    fields = {"split": choice.split, "task": task, "seed": choice.seed}
    return {key: value for key, value in fields.items() if value is not None}
