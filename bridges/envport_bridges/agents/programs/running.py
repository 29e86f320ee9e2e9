"""Runs an agent's program for one mission, in folders of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from envport.errors import ConfigurationError
from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.deadlines import Deadline
from envport_bridges.agents.programs.missions import Mission
from envport_bridges.agents.programs.processes import Ended, run_bounded
from envport_bridges.agents.programs.rooms import Rooms
from envport_bridges.agents.programs.sandbox import AgentSandbox

__all__ = ["AgentRunner", "MissionRunner"]

_MOST_OUTPUT = 400


class MissionRunner(Protocol):
    """Has an agent play missions, each in a process that no other mission uses meanwhile."""

    async def run(self, mission: Mission, limit: float | Deadline) -> Ended:
        """Have a mission played. Cancelling this kills the process and all that it has started.

        Args:
            mission: The mission.
            limit: Its time limit, or its seconds.

        Raises:
            ConfigurationError: The sandbox could not be made. This is not the agent's fault.
        """
        ...

    def close(self) -> None:
        """End what is still running."""
        ...


class AgentRunner:
    """Starts an agent's program for each mission.

    Args:
        agent: The agent.
        sandbox: Its sandbox; `None` for none.
    """

    def __init__(self, agent: Agent, sandbox: AgentSandbox | None = None):
        self._agent = agent
        self._sandbox = sandbox

    async def run(self, mission: Mission, limit: float | Deadline) -> Ended:
        """Run the program in its own folder, and kill its remaining processes at the end; see `MissionRunner`."""
        # Ignore errors: an agent may leave files that cannot be deleted.
        with tempfile.TemporaryDirectory(prefix="envport-agent-", ignore_cleanup_errors=True) as root:
            rooms = Rooms(Path(root))
            self._agent.brief(mission, rooms)
            words, variables = self._agent.words(mission, rooms), self._agent.variables(mission, rooms)
            if self._sandbox is None:
                return await _supervised(words, variables, rooms, limit)
            return await _sandboxed(self._sandbox, words, variables, rooms, limit)

    def close(self) -> None:
        """Do nothing: each program ends with its mission."""


async def _sandboxed(
    sandbox: AgentSandbox, words: list[str], variables: dict[str, str], rooms: Rooms, limit: float | Deadline
) -> Ended:
    sandbox.prepare(rooms)
    with (rooms.root / "status").open("w+b") as status:
        command = sandbox.words(words, rooms, status.fileno())
        ended = await _supervised(command, variables | sandbox.variables, rooms, limit, [status.fileno()])
        status.seek(0)
        made = sandbox.was_made(status.read())
    if ended.code is not None and not made:
        raise ConfigurationError(f"the sandbox of the agent could not be made: {ended.output[-_MOST_OUTPUT:]}")
    return ended


async def _supervised(
    words: list[str], variables: dict[str, str], rooms: Rooms, limit: float | Deadline, pass_fds: Sequence[int] = ()
) -> Ended:
    return await run_bounded(words, cwd=rooms.work, env=variables, limit=limit, pass_fds=pass_fds)
