"""The player's side of an episode: a shell and an interpreter that keep their state, and files."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from envport import KeptProgram, ToolError, Workspace
from envport_envs.workspace import interpreter

__all__ = ["MOST_SHOWN", "Terminal"]

MOST_SHOWN = 65_536
"""Bytes of a file, and of what a call writes, that a player is shown."""

# What is interrupted goes on at the head of the loop, and answers 130 there, as shells do.
_SHELL = """
cd "$1"; shift
trap 'continue 999' INT
_status=
while [ -z "$_status" ] || printf '%s\\n' "$_status" >&4; _status=130; IFS= read -r -d '' -u 3 _request; do
  eval "$_request" 3<&- 4>&-
  _status=$?
done
"""
_PROGRAMS = {
    "shell": ("bash", "-c", _SHELL, "bash"),
    "interpreter": ("python3", "-u", "-c", inspect.getsource(interpreter)),
}


class Terminal:
    """A shell and an interpreter in one sandbox, and its files.

    Args:
        workspace: The sandbox.
        seconds: Seconds that a call may take.
        folder: Where the shell and the interpreter begin.
        variables: Environment variables, beside those that the sandbox has.
    """

    def __init__(
        self,
        workspace: Workspace,
        seconds: float,
        folder: str = "/work",
        variables: Mapping[str, str] | None = None,
    ):
        self._workspace = workspace
        self._seconds = seconds
        self._folder = folder
        self._variables = variables or {}
        self._programs: dict[str, KeptProgram] = {}

    def bash(self, command: str) -> str:
        """Run a command in the shell. Returns what it wrote, and how it ended."""
        return self._ask("shell", command)

    def python(self, code: str) -> str:
        """Run code in the interpreter. Returns what it wrote, and how it ended."""
        return self._ask("interpreter", code)

    def read(self, path: str) -> str:
        """The text of a file.

        Raises:
            ToolError: There is no such file, it is too large, or it is no text.
        """
        try:
            return self._workspace.read(_plain(path), MOST_SHOWN).decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(f"cannot read {path!r}: it is no text in UTF-8") from None

    def write(self, path: str, content: str) -> str:
        """Write a file, and say so.

        Raises:
            ToolError: It cannot be written.
        """
        self._workspace.write({_plain(path): content})
        return f"Wrote {len(content.encode('utf-8', 'replace'))} bytes to {path}."

    def _ask(self, what: str, text: str) -> str:
        program = self._programs.get(what)
        if program is None:
            argv = (*_PROGRAMS[what], self._folder)
            program = self._workspace.start(argv, variables=self._variables)
            if not program.live:
                raise ToolError("the sandbox has ended, and its files are gone")
            self._programs[what] = program
        run = program.ask(_plain(text), timeout=self._seconds)
        if program.live:
            return str(run)
        # Where a limit was exceeded, the other program was ended too. It says so when it is asked.
        del self._programs[what]
        return f"{run}\nThe {what} has ended, and its variables are gone. The next call starts another one."


def _plain(text: str) -> str:
    if "\0" in text:
        raise ToolError("there is a null byte in it; allowed: text without null bytes")
    return text
