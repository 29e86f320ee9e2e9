"""From what a user says of an agent to what runs it."""

from __future__ import annotations

from collections.abc import Sequence

from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.running import AgentRunner, MissionRunner
from envport_bridges.agents.programs.sandbox import AgentSandbox

__all__ = ["runner_of"]


def runner_of(command: str, *, resident: bool, sandbox: bool, reads: Sequence[str]) -> MissionRunner:
    agent = Agent.named(command)
    room = AgentSandbox(agent, reads) if sandbox else None
    if room is not None:
        room.require()
    return AgentRunner(agent, room)
