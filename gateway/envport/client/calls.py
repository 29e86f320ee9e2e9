"""The calls of the control plane, without I/O: what to send, and how to read the answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import TypeAdapter, ValidationError

from envport.errors import EnvportError, GatewayUnreachable, error_from_code
from envport.types import EnvironmentInfo, EpisodeInfo, OpenedEpisode, Task, TaskPage, Trajectory

__all__ = ["Call", "TaskChoice", "headers_for"]

ResultT = TypeVar("ResultT")

TaskChoice = int | Task | Mapping[str, Any]
"""A task: its index in the split, or a task of your own."""


@dataclass(frozen=True)
class Call(Generic[ResultT]):
    """One call.

    Attributes:
        method: HTTP method.
        path: Path relative to the gateway's address.
        adapter: Parses the answer.
        json: Body.
        params: Query.
    """

    method: str
    path: str
    adapter: TypeAdapter[ResultT]
    json: dict[str, Any] | None = None
    params: dict[str, Any] = field(default_factory=dict[str, Any])

    def read(self, response: httpx2.Response) -> ResultT:
        """The result, or the gateway's error.

        Raises:
            EnvportError: The gateway's error, as the same class.
            GatewayUnreachable: The answer does not come from a gateway.
        """
        if response.is_success:
            try:
                return self.adapter.validate_json(response.content)
            except ValidationError as error:
                raise GatewayUnreachable(f"{response.url} answered what no gateway would: {error}") from None
        raise _error(response)


def _error(response: httpx2.Response) -> EnvportError:
    try:
        fields = dict(response.json()["error"])
        return error_from_code(fields.pop("code"), fields.pop("message"), **fields)
    except (ValueError, KeyError, TypeError):
        text = response.text[:200] or response.reason_phrase
        return GatewayUnreachable(f"{response.url} answered {response.status_code}: {text}")


def headers_for(token: str | None) -> dict[str, str]:
    """The headers of every request: with the given token, else `ENVPORT_TOKEN`, else without a token."""
    token = token if token is not None else os.environ.get("ENVPORT_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


_ENVIRONMENTS = TypeAdapter(list[EnvironmentInfo])
_ENVIRONMENT = TypeAdapter(EnvironmentInfo)
_TASKS = TypeAdapter(TaskPage)
_OPENED = TypeAdapter(OpenedEpisode)
_EPISODE = TypeAdapter(EpisodeInfo)
_TRAJECTORY = TypeAdapter(Trajectory)


def environments() -> Call[list[EnvironmentInfo]]:
    """All environments."""
    return Call("GET", "/environments", _ENVIRONMENTS)


def environment(name: str) -> Call[EnvironmentInfo]:
    """One environment."""
    return Call("GET", f"/environments/{quote(name, safe='')}", _ENVIRONMENT)


def tasks(name: str, split: str | None, offset: int, limit: int) -> Call[TaskPage]:
    """A page of tasks."""
    params: dict[str, Any] = {"offset": offset, "limit": limit}
    if split is not None:
        params["split"] = split
    return Call("GET", f"/environments/{quote(name, safe='')}/tasks", _TASKS, params=params)


def open_episode(name: str, choice: dict[str, Any], *, reward_in_meta: bool, mint_token: bool) -> Call[OpenedEpisode]:
    """Open an episode."""
    body = {"environment": name, **choice, "reward_in_meta": reward_in_meta, "mint_token": mint_token}
    return Call("POST", "/episodes", _OPENED, json=body)


def episode(episode_id: str) -> Call[EpisodeInfo]:
    """The state of an episode."""
    return Call("GET", _of(episode_id), _EPISODE)


def keep_alive(episode_id: str) -> Call[EpisodeInfo]:
    """Restart the idle time of an episode."""
    return Call("POST", f"{_of(episode_id)}/keepalive", _EPISODE)


def reset(episode_id: str, choice: dict[str, Any]) -> Call[OpenedEpisode]:
    """Start an episode over."""
    return Call("POST", f"{_of(episode_id)}/reset", _OPENED, json=choice)


def close_episode(episode_id: str) -> Call[EpisodeInfo]:
    """Close an episode."""
    return Call("DELETE", _of(episode_id), _EPISODE)


def trajectory(episode_id: str) -> Call[Trajectory]:
    """The trajectory of an episode."""
    return Call("GET", f"{_of(episode_id)}/trajectory", _TRAJECTORY)


def choice(split: str | None, task: TaskChoice | None, seed: int | None) -> dict[str, Any]:
    """The fields that choose a task, without those that were not given."""
    if isinstance(task, Task):
        task = task.model_dump()
    elif isinstance(task, Mapping):
        task = dict(task)
    fields = {"split": split, "task": task, "seed": seed}
    return {key: value for key, value in fields.items() if value is not None}


def _of(episode_id: str) -> str:
    return f"/episodes/{quote(episode_id, safe='')}"
