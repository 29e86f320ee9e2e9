"""From what a user says of an agent to what runs it."""

from __future__ import annotations

from collections.abc import Sequence

from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.arguments import require_bool, require_paths, require_text
from envport_bridges.agents.programs.residents import ResidentPool
from envport_bridges.agents.programs.running import AgentRunner, MissionRunner
from envport_bridges.agents.programs.sandbox import AgentSandbox

__all__ = ["runner_of"]


def runner_of(command: str, *, resident: bool, sandbox: bool, reads: Sequence[str]) -> MissionRunner:
    """What runs an agent that is given a model.

    Args:
        command: A preset's name or a command line; see `Agent.named`.
        resident: Whether its program plays one mission after another.
        sandbox: Whether it runs in a sandbox.
        reads: Files and folders that it may read there, beside its own and the system's.

    Raises:
        ConfigurationError: Sandboxes cannot be made here, or an argument has a type that is not allowed.
        InvalidOption: The program is not installed, cannot be pointed at a model, or cannot be resident; or a path of
            `reads` cannot be shown.
    """
    require_text("command", command, "a text, such as '{python} my_agent.py', or the name of a preset")
    require_bool("resident", resident)
    require_bool("sandbox", sandbox)
    readable = require_paths("reads", reads)
    agent = (Agent.resident if resident else Agent.named)(command, given_model=True)
    room = AgentSandbox(agent, readable) if sandbox else None
    if room is not None:
        room.require()
    return ResidentPool(agent, room) if resident else AgentRunner(agent, room)
