"""What became of a program of the player."""

from __future__ import annotations

import binascii
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PlayerRun"]


@dataclass(frozen=True, slots=True)
class PlayerRun:
    """What became of a program of the player. Whatever it did, this is an observation and no fault.

    Attributes:
        exit_code: Its exit code; `None` if a signal ended it. 127 if there is no such program, 126 if it could not be
            started; `stderr` then says why.
        signal: Name of the signal that ended it, such as `SIGSEGV`.
        stdout: Its standard output as text. What is not UTF-8 is replaced.
        stderr: Its standard error, in the same way.
        timed_out: Whether it was ended because it took too long.
        out_of_memory: Whether it was ended because its processes took too much memory.
        too_many_processes: Whether it was ended because it had too many processes.
        output_cut: Whether it wrote more than is kept.
        seconds: How long it took.
    """

    exit_code: int | None
    signal: str | None = None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    out_of_memory: bool = False
    too_many_processes: bool = False
    output_cut: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0

    def __str__(self) -> str:
        """How it ended and what it wrote, for the player to read."""
        said = [self.stdout.rstrip("\n"), self.stderr.rstrip("\n"), self._how()]
        return "\n".join(filter(None, said))

    def _how(self) -> str:
        cut = " Its output was cut." if self.output_cut else ""
        if self.timed_out:
            return f"(ended after {self.seconds:.1f} s: it took too long.{cut})"
        if self.out_of_memory:
            return f"(ended: it took too much memory.{cut})"
        if self.too_many_processes:
            return f"(ended: it had too many processes.{cut})"
        if self.signal is not None:
            return f"(ended by {self.signal}.{cut})"
        return f"(exit code {self.exit_code}.{cut})"

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> PlayerRun:
        """Read what the sandbox says. It may say anything, because it is the player's.

        Raises:
            ValueError: It is no result.
        """
        code, ended = answer["code"], answer["end"]
        if type(code) is not int:
            raise ValueError("the exit code is no number")
        return cls(
            exit_code=code if code >= 0 else None,
            signal=_signal_name(-code) if code < 0 else None,
            stdout=_text(answer["out"]),
            stderr=_text(answer["err"]),
            timed_out=ended == "time",
            out_of_memory=ended == "memory",
            too_many_processes=ended == "processes",
            output_cut=answer["cut"] is True,
            seconds=float(answer["s"]),
        )


def _text(coded: str) -> str:
    return binascii.a2b_base64(coded).decode("utf-8", "replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
