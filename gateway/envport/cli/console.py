"""Output of the command line: results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

__all__ = [
    "command",
    "document",
    "error",
    "heading",
    "is_terminal",
    "line",
    "note",
    "paragraph",
    "printable",
    "rows",
    "status",
]

# Control characters: they could move the cursor, ring the bell or change colours. Tabs and new lines are allowed.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line, whose reader has left. Rich would exit with an error."""
        raise BrokenPipeError


# Never wrap lines, because addresses and commands have to be copied unchanged.
_out = _Console(highlight=False, soft_wrap=True)
_err = _Console(highlight=False, soft_wrap=True, stderr=True)


def printable(text: str) -> str:
    """Text of an environment or a gateway, without the characters that control a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def line(text: str = "", style: str = "") -> None:
    """Print a line."""
    _out.print(Text(printable(text), style))


def paragraph(text: str) -> None:
    """Print prose. On a terminal, long lines are wrapped between words."""
    for part in printable(text).split("\n"):
        for wrapped in _wrapped(Text(part)):
            _out.print(wrapped)


def heading(text: str) -> None:
    """Print the line above a block."""
    line(text, "bold")


def command(*words: str) -> None:
    """Print a command that can be pasted into a shell."""
    line(f"  {shlex.join(words)}", "cyan")


def document(value: Any) -> None:
    """Print JSON for programs."""
    # ASCII works on every terminal and pipe, and JSON escapes control characters.
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def rows(pairs: Iterable[tuple[str, str]], *, style: str = "bold", indent: int = 2) -> None:
    """Print names with their descriptions."""
    pairs = [(printable(name), printable(text)) for name, text in pairs]
    column = indent + max((len(name) for name, _ in pairs), default=0) + 2
    for name, text in pairs:
        first, *others = _wrapped(Text(text), column)
        _out.print(Text.assemble((" " * indent + name.ljust(column - indent), style), first))
        for other in others:
            _out.print(Text(" " * column).append(other))


def _wrapped(text: Text, used: int = 0) -> list[Text]:
    """Wrap text to the terminal's width less the columns already used. A file has no width, so nothing is wrapped."""
    if not _out.is_terminal:
        return [text]
    return [*text.wrap(_out, max(20, _out.width - used))] or [text]


def note(text: str) -> None:
    """Print a message that is not part of the result."""
    _err.print(Text(printable(text), "yellow"))


def is_terminal() -> bool:
    """Whether messages go to a terminal on which a line can be replaced."""
    return _err.is_terminal and not _err.is_dumb_terminal


def status(text: str) -> None:
    """Say what is being done. On a terminal, the line is replaced by the next one, and removed by an empty one."""
    if not is_terminal():
        if text:
            _err.print(Text(printable(text), "dim"))
        return
    _err.control(Control.move_to_column(0), Control((ControlType.ERASE_IN_LINE, 2)))
    _err.print(Text(printable(text)[: _err.width - 1], "dim"), end="")


def error(message: str) -> None:
    """Print in one line why the command failed."""
    words = " ".join(part.strip() for part in message.splitlines() if part.strip())
    _err.print(Text.assemble(("error:", "bold red"), " ", printable(words)))
