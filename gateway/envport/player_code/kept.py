"""A program of the player that stays from one request to the next."""

from __future__ import annotations

from collections.abc import Callable

from envport.player_code.result import PlayerRun

__all__ = ["KeptProgram"]


class KeptProgram:
    """A program that stays in a sandbox from one request to the next, with its variables. Made by `Workspace.start`.

    Args:
        ask: Asks the program with a number.
        number: Which program of the sandbox it is; `None` if the sandbox is gone.
    """

    def __init__(self, ask: Callable[[int, str, float], tuple[PlayerRun, bool]], number: int | None):
        self._ask = ask
        self._number = number

    @property
    def live(self) -> bool:
        """Whether it answered the last request, or has not been asked yet."""
        return self._number is not None

    def ask(self, text: str, *, timeout: float) -> PlayerRun:
        """Have the program do what a text says.

        A request that takes too long is interrupted (SIGINT). If the program does not answer within a second of that,
        or if a limit on memory or processes is exceeded, all programs of the sandbox are ended.

        Args:
            text: The request, without null bytes.
            timeout: Seconds that it may take.

        Returns:
            What it wrote while it worked on the request, standard output and error together in `stdout`, and the exit
            code that it answered. If it has ended, how it ended.

        Raises:
            ToolError: The text is larger than 64 MiB.
            ValueError: The program has ended before, the text has a null byte, or `timeout` is not above 0.
        """
        if self._number is None:
            raise ValueError("the program has ended: start another one")
        if "\0" in text:
            raise ValueError("a request cannot have null bytes in it")
        run, kept = self._ask(self._number, text, timeout)
        if not kept:
            self._number = None
        return run
