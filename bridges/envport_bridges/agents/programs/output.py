"""The output of a program, of which only the end is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import anyio

__all__ = ["KEPT_BYTES", "ProgramOutput", "output_pipe", "read_there"]

KEPT_BYTES = 16_384
"""How much of a program's output is kept: the end of it."""

_READ_BYTES = 65_536


class ProgramOutput:
    """What a program writes to a pipe. However much it is, it fills no memory and no disk.

    Args:
        descriptor: Our end of the pipe. It is made non-blocking.
    """

    def __init__(self, descriptor: int):
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._kept = bytearray()

    @property
    def text(self) -> str:
        """The end of the output."""
        return self._kept.decode(errors="replace")

    def add(self, received: bytes) -> None:
        """Add what came another way."""
        self._kept += received
        del self._kept[:-KEPT_BYTES]

    def clear(self) -> None:
        """Forget what was written so far."""
        self._kept.clear()

    def read(self) -> bool:
        """Read what is there, and say whether there may be more later."""
        return read_there(self._descriptor, self.add)

    async def follow(self) -> None:
        """Read until the program, and all that it has started, has closed the pipe."""
        while self.read():
            await anyio.wait_readable(self._descriptor)


@contextmanager
def output_pipe() -> Generator[tuple[ProgramOutput, BinaryIO]]:
    """A pipe for the output of a program, and its end for the program, to be closed once the program has it."""
    reads, writes = os.pipe()
    with open(reads, "rb", buffering=0), open(writes, "wb", buffering=0) as written:
        yield ProgramOutput(reads), written


def read_there(descriptor: int, take: Callable[[bytes], object]) -> bool:
    """Read what is there from a non-blocking pipe, and say whether there may be more later."""
    with suppress(BlockingIOError):
        # No more at once, so that an endless stream lets others run.
        for _ in range(4):
            received = os.read(descriptor, _READ_BYTES)
            if not received:
                return False
            take(received)
    return True
