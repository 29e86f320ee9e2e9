"""A session of the protocol: one client's one episode."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic_core import to_json

from envport.blocks import joined, text_block
from envport.episodes import CallResult, EpisodeTable, Opening
from envport.errors import EnvportError, EpisodeOver, InvalidArguments, UnknownTool, error_fields
from envport_bridges.endings import finish_unless_lost
from envport_bridges.ors.arguments import without_unmeant_nulls
from envport_bridges.ors.messages import ors_blocks, output, refusal, tools_answer
from envport_bridges.ors.stream import CallAnswer

__all__ = ["ServedOrsSession", "terminal_tool"]

logger = logging.getLogger(__name__)

# A client that has lost the stream asks for the answer again; it does so at once.
_KEPT_SECONDS = 60.0
_TERMINAL = "finish_episode"


class ServedOrsSession:
    """One client's episode, from the moment when it is open.

    The reward of the episode is that of the call that ends it, and no call before has one. Clients of the protocol add
    the rewards of calls up, and TRL's binder takes the last one; both come to the reward of the episode in this way. If
    the episode is lost, they have none, and never the reward of the steps so far.

    Args:
        table: The episodes.
        principal: Name of the principal, which owns the episode.
        opening: How the episode began.
    """

    def __init__(self, table: EpisodeTable, principal: str, opening: Opening):
        self._table = table
        self._found = table.find(opening.handle, principal)
        self._listing = opening.tools.listing
        self._schemas: dict[str, Mapping[str, Any]] = {tool["name"]: tool["inputSchema"] for tool in self._listing}
        self._terminal = terminal_tool(self._schemas)
        self._calls: dict[str, asyncio.Task[CallAnswer]] = {}
        self._rewarded = False

    @property
    def environment(self) -> str:
        """Name of the environment."""
        return self._found.spec.name

    @property
    def handle(self) -> str:
        """Handle of the episode."""
        return self._found.handle

    @property
    def tools(self) -> dict[str, Any]:
        """The tools of the episode."""
        return tools_answer(self._listing, self._terminal)

    async def prompt(self) -> list[dict[str, Any]]:
        """What the agent is told to do, and what it sees first.

        Raises:
            UnknownEpisode: The episode is closed or has expired.
        """
        opening = await self._table.opening(self._found)
        told = [text_block(opening.prompt)] if opening.prompt else []
        return ors_blocks(joined([*told, *opening.observation.content]))

    async def keep_alive(self) -> None:
        """Keep the episode from expiring.

        Raises:
            UnknownEpisode: It is closed or has expired.
        """
        await self._table.keep_alive(self._found)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Begin a call, which goes on if its client leaves.

        Returns:
            Its id.

        Raises:
            UnknownEpisode: The episode is closed or has expired.
        """
        self._table.find(self._found.handle, self._found.principal)
        task_id = secrets.token_hex(16)
        loop = asyncio.get_running_loop()
        call = self._calls[task_id] = loop.create_task(self._answer(tool, arguments))
        call.add_done_callback(lambda _: loop.call_later(_KEPT_SECONDS, partial(self._calls.pop, task_id, None)))
        return task_id

    def begun(self, task_id: str) -> asyncio.Task[CallAnswer] | None:
        """The call of that id; `None` if there is none, or it was answered a minute ago."""
        return self._calls.get(task_id)

    async def close(self) -> None:
        """Close the episode."""
        await self._table.close(self._found.handle, self._found.principal)

    async def _answer(self, tool: str, arguments: Mapping[str, Any]) -> CallAnswer:
        try:
            told = await self._played(tool, arguments)
        except EnvportError as error:
            fields = error_fields(error)
            owner = f" (fault: {fields['fault']})" if "fault" in fields else ""
            return CallAnswer(f"{error}{owner}", failed=True)
        except Exception:
            logger.exception("a call of %r broke the ORS surface", tool)
            return CallAnswer("the gateway broke; its log says more", failed=True)
        return CallAnswer(to_json(told).decode())

    async def _played(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if tool == self._terminal:
            return await self._finished_by_trainer(arguments)
        try:
            meant = without_unmeant_nulls(arguments, self._schemas.get(tool, {}))
            result = await self._table.call(self._found, tool, meant)
        except UnknownTool as unknown:
            return refusal("not_found", f"{unknown}. The tools are: {', '.join(self._schemas)}")
        except InvalidArguments as invalid:
            return refusal("input_validation", str(invalid))
        except EpisodeOver as over:
            if over.fault not in (None, "player"):
                raise
            return await self._over(str(over))
        metadata = _metadata(result)
        if result.outcome is None:
            return output(result.observation.content, metadata, None, finished=False)
        metadata["outcome"] = result.outcome.reason
        return output(result.observation.content, metadata, await self._reward_once(), finished=True)

    async def _over(self, message: str) -> dict[str, Any]:
        """The answer to a call after the end. If a limit ended the episode between two calls, it has the reward."""
        if self._rewarded:
            return refusal("episode_finished", message)
        return output([text_block(message)], {}, await self._reward_once(), finished=True)

    async def _finished_by_trainer(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if arguments:
            return refusal("input_validation", f"{self._terminal} takes no arguments")
        return await self._over("The episode is over.")

    async def _reward_once(self) -> float | None:
        """The reward of the episode, for the first answer after its end, and `None` for another one.

        An end without any reward counts as 0, as in training with our own bridge.
        """
        # A call that waited for the one that ended the episode may be answered before that one.
        if self._rewarded:
            return None
        self._rewarded = True
        return (await finish_unless_lost(self._table, self._found)).reward or 0.0


def terminal_tool(names: Mapping[str, Any]) -> str:
    """Name of the tool that a trainer calls when its agent has stopped: one that no tool of the environment has.

    Args:
        names: Names of the environment's tools.
    """
    name = _TERMINAL
    while name in names:
        name += "_"
    return name


def _metadata(result: CallResult) -> dict[str, Any]:
    metadata: dict[str, Any] = {"step": result.step, "step_reward": result.reward}
    if result.is_error:
        metadata["is_error"] = True
    return metadata
