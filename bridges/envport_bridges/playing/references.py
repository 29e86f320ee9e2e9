"""References to files that mean the same from every folder: a resumed evaluation runs in another one."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["from_anywhere", "names_only"]

_QUOTED = re.compile(r"'(\{\w+\})'")
_FILE = re.compile(r"[^\s'\"=]*/([^\s'\"/]+)")


def from_anywhere(reference: str) -> str:
    """A reference to an environment or a policy with its file's path made absolute.

    Args:
        reference: `[NAME=]./file.py:Attribute[?options]`; any other text stays as it is.
    """
    head, mark, query = reference.partition("?")
    name, equals, target = head.rpartition("=")
    path, colon, attribute = target.rpartition(":")
    if not path.endswith(".py"):
        return reference
    return f"{name}{equals}{Path(path).resolve()}{colon}{attribute}{mark}{query}"


def names_only(text: str) -> str:
    """A command line or reference without folders and without quotes around placeholders, for display."""
    return _QUOTED.sub(r"\1", _FILE.sub(r"\1", text))
