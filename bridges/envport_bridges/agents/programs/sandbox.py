"""The sandbox of an agent: it sees its own folders, its program, and what is named; see `envport.program_sandbox`.

The network is this machine's: an agent has to reach its model and its episode.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from envport.program_sandbox import CERTIFICATES, ProgramSandbox, installation
from envport.sandboxing import importable, imported, interpreter
from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.rooms import Rooms

__all__ = ["AgentSandbox"]

_TMP = "/tmp"
_ELSEWHERE = "/home/agent"


class AgentSandbox:
    """Makes the sandboxes of an agent, one for each episode.

    Args:
        agent: The agent.
        reads: Files and folders that it may read, beside the system's programs and its own.

    Raises:
        ConfigurationError: There is no bubblewrap here.
        InvalidOption: A path of `reads` does not exist, holds the folders that every agent has of its own, or is
            closed to the agent.
    """

    def __init__(self, agent: Agent, reads: Sequence[str] = ()):
        home = os.path.expanduser("~")
        self._home = home if os.path.isabs(home) and home != "/" else _ELSEWHERE
        named = (word for word in shlex.split(agent.command)[1:] if os.path.isabs(word) and os.path.isfile(word))
        self._sandbox = ProgramSandbox(
            "an agent",
            "Or trust the agent, and give --no-sandbox (in Python: sandbox=False)",
            name=os.environ.get("USER", "agent"),
            home=self._home,
            network=True,
            seen=_of_agent(agent),
            reads=(*named, *reads),
            own=(self._home, _TMP),
        )
        self._copied = agent.home

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that name its folders."""
        return {"HOME": self._home, "TMPDIR": _TMP}

    def require(self) -> None:
        """Check that sandboxes can be made here.

        Raises:
            ConfigurationError: They cannot; the message says what to allow.
        """
        self._sandbox.require()

    def prepare(self, rooms: Rooms) -> None:
        """Make what is missing of the folders of an episode, and hand all that is in them over to the agent's user."""
        for folder in (rooms.work, rooms.notes, rooms.home, rooms.scratch):
            folder.mkdir(exist_ok=True)
        for name in self._copied:
            there = Path(self._home, name)
            if there.is_file():
                (rooms.home / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(there, rooms.home / name)
        self._sandbox.write_settings(rooms.settings)
        self._sandbox.hand_over(*rooms.root.iterdir())

    def words(self, words: Sequence[str], rooms: Rooms, status: int) -> list[str]:
        """The command that runs a command in the sandbox.

        Args:
            words: The program and its arguments.
            rooms: The folders of the episode.
            status: Descriptor to which bubblewrap writes what became of the sandbox; see `was_made`.
        """
        folders = {_TMP: rooms.scratch, self._home: rooms.home, str(rooms.work): rooms.work}
        return self._sandbox.words(words, folders, rooms.settings, str(rooms.work), status, [str(rooms.notes)])

    @staticmethod
    def was_made(status: bytes) -> bool:
        """Whether the command was run, given all that bubblewrap wrote to `status`. The agent cannot write to it."""
        return ProgramSandbox.was_made(status)


def _of_agent(agent: Agent) -> Iterator[str]:
    """What belongs to an agent: its program, and certificates."""
    if "{python}" in agent.command:
        yield from (*interpreter(), *importable(), *imported())
    yield from installation(shlex.split(agent.command)[0])
    yield from (os.environ[name] for name in CERTIFICATES if os.path.isabs(os.environ.get(name, "")))
