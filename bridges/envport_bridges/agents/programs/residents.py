"""Programs that are started once and play one mission after another, as many at a time as there are missions."""

from __future__ import annotations

import secrets

import anyio

from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.deadlines import Deadline
from envport_bridges.agents.programs.missions import Mission
from envport_bridges.agents.programs.processes import Ended
from envport_bridges.agents.programs.resident_lines import mission_line
from envport_bridges.agents.programs.resident_process import ResidentProcess
from envport_bridges.agents.programs.sandbox import AgentSandbox

__all__ = ["ResidentPool"]


class ResidentPool:
    """A `MissionRunner` whose processes stay for the next missions; `RESIDENT.md` has the protocol.

    A process plays one mission at a time. There are as many as there are missions at the same time. One that exceeds
    its time limit, breaks the protocol, or whose mission is cancelled is killed, and others do not notice. It may be
    used from one event loop after another, but by one at a time.

    Args:
        agent: The agent; see `Agent.resident`.
        sandbox: Its sandbox, of which each process has one; `None` for none.
        idle_seconds: A process ends after so many seconds without a mission, even if nobody looks.
    """

    def __init__(self, agent: Agent, sandbox: AgentSandbox | None = None, idle_seconds: float = 60.0):
        self._agent = agent
        self._sandbox = sandbox
        self._idle_seconds = idle_seconds
        self._idle: list[ResidentProcess] = []
        self._all: set[ResidentProcess] = set()

    async def run(self, mission: Mission, limit: float | Deadline) -> Ended:
        """Have a mission played by a process that is idle, or by a new one; see `MissionRunner`."""
        deadline = limit if isinstance(limit, Deadline) else Deadline(limit)
        process = await self._taken()
        # Nobody can guess it, so that no process answers before it has read its mission.
        name = secrets.token_hex(8)
        stays = False
        try:
            ended, stays = await process.play(name, mission_line(name, mission), deadline)
            return ended
        finally:
            if stays:
                self._idle.append(process)
            else:
                with anyio.CancelScope(shield=True):
                    await self._stop(process)

    def close(self) -> None:
        """Kill all processes, and wait for that. Not while a mission is played. A second call changes nothing."""
        self._idle.clear()
        while self._all:
            self._all.pop().kill()

    async def _taken(self) -> ResidentProcess:
        # The one that was used last, so that others come to their idle end.
        while self._idle:
            process = self._idle.pop()
            if process.ready():
                break
            with anyio.CancelScope(shield=True):
                await self._stop(process)
        else:
            process = ResidentProcess(self._agent, self._sandbox, self._idle_seconds)
            self._all.add(process)
        return process

    async def _stop(self, process: ResidentProcess) -> None:
        self._all.discard(process)
        await process.stop()
