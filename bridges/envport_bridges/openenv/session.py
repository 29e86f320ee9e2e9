"""A session of OpenEnv: one client, which plays one episode after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envport.definition import EnvironmentDefinition
from envport.episodes import CallResult, EpisodeTable, Found, OpenFields, Opening, resolve
from envport.errors import InvalidArguments, InvalidRequest, UnknownTool
from envport.types import Observation
from envport_bridges.endings import finish_unless_lost
from envport_bridges.openenv.actions import called, listed, lists_tools
from envport_bridges.openenv.frames import OpenEnvError

__all__ = ["OpenEnvSession"]

_LONGEST_ID = 255
_OPENED_WITH = ("seed", "split", "task", "labels", "secrets")


class OpenEnvSession:
    """One client of an environment. A reset closes its episode and opens the next.

    Args:
        table: The episodes.
        principal: Name of the principal, which owns the episodes.
        spec: The environment.
    """

    def __init__(self, table: EpisodeTable, principal: str, spec: EnvironmentDefinition):
        self._table = table
        self._principal = principal
        self._spec = spec
        self._named: str | None = None
        self._steps = 0
        self._tools: Sequence[Mapping[str, Any]] = spec.listing
        self._found: Found | None = None

    @property
    def at_once(self) -> bool:
        """Whether a step would be answered without waiting for anything."""
        return self._found is not None and self._table.at_once(self._found) and not self._spec.scored

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools, of the episode if there is one."""
        return listed(self._tools)

    @property
    def state(self) -> dict[str, Any]:
        """The state of the episode."""
        handle = self._found.handle if self._found is not None else None
        return {"episode_id": self._named or handle, "step_count": self._steps}

    async def open(self, data: Mapping[str, Any]) -> Opening:
        """Open the next episode. The one before is closed first, so that a session takes one place.

        Args:
            data: OpenEnv's `seed` and `episode_id`, and `split`, `task`, `labels` and `secrets` as in `POST /episodes`.

        Raises:
            OpenEnvError: They are malformed.
            EnvportError: It cannot be opened.
        """
        named = data.get("episode_id")
        if unknown := [key for key in data if key not in (*_OPENED_WITH, "episode_id")]:
            allowed = ", ".join((*_OPENED_WITH, "episode_id"))
            raise OpenEnvError("VALIDATION_ERROR", f"reset takes {allowed}, and not {', '.join(unknown)}")
        if named is not None and (type(named) is not str or not 1 <= len(named) <= _LONGEST_ID):
            raise OpenEnvError("VALIDATION_ERROR", f"episode_id has to be text of 1 to {_LONGEST_ID} characters")
        fields = {key: value for key in _OPENED_WITH if (value := data.get(key)) is not None}
        try:
            asked = OpenFields.read({**fields, "environment": self._spec.name})
        except InvalidRequest as malformed:
            raise OpenEnvError("VALIDATION_ERROR", str(malformed)) from None
        request = asked.request(self._principal)
        if self._found is not None:
            # What is refused must not cost the episode before.
            resolve(self._spec, request.choice)
            await self.close()
        self._named = named
        return await self._table.open(request)

    def begin(self, opening: Opening) -> dict[str, Any]:
        """Play an episode from now on. Returns the data of its first observation."""
        self._found = self._table.find(opening.handle, self._principal)
        self._steps = 0
        self._tools = opening.tools.listing
        return {
            "observation": {"prompt": opening.prompt, **_shown(opening.observation)},
            "reward": None,
            "done": False,
            "metadata": {"episode_id": opening.handle, "seed": opening.seed, "fingerprint": opening.tools.fingerprint},
        }

    async def adopt(self, handle: str) -> None:
        """Play an episode that was opened before.

        Raises:
            UnknownEpisode: There is none of that handle.
        """
        self._found = self._table.find(handle, self._principal)
        self._tools = (await self._table.opening(self._found)).tools.listing
        self._steps = (await self._table.info(handle, self._principal)).steps

    async def undo(self, opening: Opening) -> None:
        """Close an episode whose client has left before it began."""
        await self._table.close(opening.handle, self._principal)

    async def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Do an action.

        Returns:
            The data of the observation. A call that the tool refuses has an observation with `error`, and the episode
            goes on.

        Raises:
            OpenEnvError: The action is malformed, or there is no episode.
            EnvportError: There is no answer; see `error_data`.
        """
        if lists_tools(action):
            return {"observation": {"tools": self.tools}, "reward": None, "done": False}
        tool, arguments = called(action, [tool["name"] for tool in self._tools])
        found = self._found
        try:
            result = await self.call(tool, arguments)
        except (InvalidArguments, UnknownTool) as refused:
            kind = "invalid_args" if isinstance(refused, InvalidArguments) else "tool_not_found"
            return {
                "observation": {
                    "tool_name": tool,
                    "result": None,
                    "error": {"error_type": kind, "message": str(refused)},
                    "text": str(refused),
                },
                "reward": None,
                "done": False,
            }
        return {
            "observation": {"tool_name": tool, "result": answered(result), "error": None, **_shown(result.observation)},
            "reward": await self._reward(found, result),
            "done": result.outcome is not None,
        }

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call a tool.

        Raises:
            OpenEnvError: There is no episode.
            EnvportError: There is no answer.
        """
        if self._found is None:
            raise OpenEnvError("SESSION_ERROR", "there is no episode to step: reset first")
        result = await self._table.call(self._found, tool, arguments)
        self._steps = result.step
        return result

    async def _reward(self, found: Found | None, result: CallResult) -> float | None:
        """The reward of a step. The last one has the score of the final state, so that nothing is missing."""
        outcome = result.outcome
        if outcome is None or found is None:
            return result.reward
        if outcome.fault == "player":
            return result.reward if result.reward is not None else 0.0
        if not self._spec.scored:
            return result.reward
        info = await finish_unless_lost(self._table, found)
        if info.score is None or self._spec.cls.reward == "last":
            return info.score if info.score is not None else result.reward
        return (result.reward or 0.0) + info.score

    async def keep_alive(self) -> None:
        """Keep the episode from expiring."""
        if self._found is not None:
            await self._table.keep_alive(self._found)

    async def close(self) -> None:
        """Close the episode, if there is one."""
        found = self._found
        if found is not None:
            await self._table.close(found.handle, self._principal)
            self._found = None


def answered(result: CallResult) -> dict[str, Any]:
    """A result in the form that OpenEnv's tool environments give it."""
    observation = result.observation
    data = observation.structured_content
    return {
        "content": observation.content,
        "structured_content": data,
        "meta": None,
        "data": data if data is not None else observation.text,
        "is_error": result.is_error,
    }


def _shown(observation: Observation) -> dict[str, Any]:
    # Clients of one environment read the fields of its observation where OpenEnv has them.
    return {
        **(observation.structured_content or {}),
        "text": observation.text,
        "content": observation.content,
        "structured_content": observation.structured_content,
    }
