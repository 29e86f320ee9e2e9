"""Makes references to files absolute, because a resumed evaluation may run in another folder."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["from_anywhere", "names_only"]

_QUOTED = re.compile(r"'(\{\w+\})'")
_FILE = re.compile(r"[^\s'\"=]*/([^\s'\"/]+)")


def from_anywhere(reference: str) -> str:
    """A reference to an environment or a policy, with an absolute path.

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
    """A command line or reference for display, without folders and without quotes around placeholders."""
    return _QUOTED.sub(r"\1", _FILE.sub(r"\1", text))
