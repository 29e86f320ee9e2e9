"""Hidden tests: what the player leaves is run in a new sandbox, and its results are compared here."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from envport import PlayerCode, PlayerLimits, ToolError
from envport_envs.workspace import harness

__all__ = ["SECONDS", "FunctionTest", "HiddenTest", "ProgramTest"]

SECONDS = 60.0
"""Seconds that all hidden tests of an episode may take."""

_RUN_SECONDS = 10.0
_LIMITS = PlayerLimits(output_bytes=2**20)


class HiddenTest(Protocol):
    """Decides whether a file solves a task. No verdict is taken from the player's code: it only gives results."""

    def passes(self, player_code: PlayerCode, path: str, content: bytes) -> bool:
        """Whether a file solves the task.

        Args:
            player_code: Makes the sandbox.
            path: The name of the file.
            content: What the player has left in it.
        """
        ...


@dataclass(frozen=True, slots=True)
class FunctionTest:
    """The file is a module with a function `solve`.

    Attributes:
        cases: Arguments of a call, and the result that is expected.
    """

    cases: Sequence[tuple[Sequence[Any], Any]]

    def passes(self, player_code: PlayerCode, path: str, content: bytes) -> bool:
        """See `HiddenTest`."""
        run = player_code.run(
            ["python3", "-c", inspect.getsource(harness)],
            stdin="".join(f"{json.dumps(arguments)}\n" for arguments, _ in self.cases),
            files={path: content},
            limits=_LIMITS,
            timeout=_RUN_SECONDS,
        )
        return run.ok and run.stdout == "".join(f"{json.dumps(it, sort_keys=True)}\n" for _, it in self.cases)


@dataclass(frozen=True, slots=True)
class ProgramTest:
    """The file is a program that reads standard input, and writes a text to standard output.

    Attributes:
        argv: How it is run.
        cases: Inputs, and the outputs that are expected. Blanks at the end of a line do not count.
    """

    argv: Sequence[str]
    cases: Sequence[tuple[str, str]]

    def passes(self, player_code: PlayerCode, path: str, content: bytes) -> bool:
        """See `HiddenTest`."""
        until = time.monotonic() + SECONDS
        with player_code.workspace(limits=_LIMITS) as workspace:
            for given, expected in self.cases:
                left = min(_RUN_SECONDS, until - time.monotonic())
                if left <= 0:
                    return False
                try:
                    run = workspace.run(self.argv, stdin=given, files={path: content}, timeout=left)
                except ToolError:
                    # An earlier run has filled the disk, or made the file a folder.
                    return False
                if not run.ok or _lines(run.stdout) != _lines(expected):
                    return False
        return True


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
