"""What the command line prints: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

__all__ = ["command", "document", "error", "heading", "line", "note", "paragraph", "printable", "rows"]

# Whatever moves the cursor, rings the bell or changes colours, except for tabs and new lines.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# Lines are never broken: an address or a command has to be copied as it is.
_out = Console(highlight=False, soft_wrap=True)
_err = Console(highlight=False, soft_wrap=True, stderr=True)


def printable(text: str) -> str:
    """Text of an environment or a gateway, without what could control the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def line(text: str = "", style: str = "") -> None:
    """Print a line."""
    _out.print(Text(printable(text), style))


def paragraph(text: str) -> None:
    """Print prose: on a terminal, its lines are broken between words."""
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
    """Print JSON for programs, without colours."""
    # As ASCII, which every terminal and pipe can carry, and which holds no control characters.
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def rows(pairs: Iterable[tuple[str, str]], *, style: str = "bold", indent: int = 2) -> None:
    """Print names with what there is to say about each."""
    pairs = [(printable(name), printable(text)) for name, text in pairs]
    column = indent + max((len(name) for name, _ in pairs), default=0) + 2
    for name, text in pairs:
        first, *others = _wrapped(Text(text), column)
        _out.print(Text.assemble((" " * indent + name.ljust(column - indent), style), first))
        for other in others:
            _out.print(Text(" " * column).append(other))


def _wrapped(text: Text, used: int = 0) -> list[Text]:
    """Lines that fit beside what is used of the width. A file has no width: there, nothing is broken."""
    if not _out.is_terminal:
        return [text]
    return [*text.wrap(_out, max(20, _out.width - used))] or [text]


def note(text: str) -> None:
    """Say something beside the result."""
    _err.print(Text(printable(text), "yellow"))


def error(message: str) -> None:
    """Say why the command failed, in one line."""
    words = " ".join(part.strip() for part in message.splitlines() if part.strip())
    _err.print(Text.assemble(("error:", "bold red"), " ", printable(words)))
