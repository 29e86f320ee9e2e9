"""The protocol of programs that play one mission after another; see `RESIDENT.md`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from envport_bridges.agents.programs.missions import MODEL_NAME, Mission

__all__ = ["MOST_LINE", "Done", "Lines", "done_in", "mission_line"]

MOST_LINE = 65_536
"""Bytes of the longest line that can be an answer."""

_MOST_ERROR = 2_000


@dataclass(frozen=True)
class Done:
    """A program says that a mission is over.

    Attributes:
        id: The mission.
        error: Why it failed; `None` if it did not.
    """

    id: str
    error: str | None


def mission_line(name: str, mission: Mission) -> bytes:
    """A mission as a line for the program's standard input.

    Args:
        name: The id that its answer has to have.
        mission: The mission.
    """
    line = {"id": name, "mcp_url": mission.mcp_url, "mcp_token": mission.token, "prompt": mission.prompt}
    if mission.model is not None:
        line |= {
            "model": MODEL_NAME,
            "model_url": mission.model.openai_url,
            "anthropic_url": mission.model.url,
            "model_token": mission.model.token,
        }
    return json.dumps(line).encode("ascii") + b"\n"


def done_in(line: bytes) -> Done | None:
    """The answer that a line is; `None` if it is anything else."""
    if b'"done"' not in line:
        return None
    try:
        # A deep nesting exceeds Python's stack.
        said: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or "done" not in said:
        return None
    fields = cast("dict[str, Any]", said)
    error = fields.get("error")
    return Done(str(fields["done"]), None if error is None else str(error)[:_MOST_ERROR])


class Lines:
    """Cuts a stream into lines. What is longer than `MOST_LINE` is never kept as a whole."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._too_long = False

    def of(self, received: bytes) -> list[bytes]:
        """The lines that are complete now, without those that are too long."""
        lines: list[bytes] = []
        *complete, rest = received.split(b"\n")
        for end in complete:
            self._add(end)
            if not self._too_long:
                lines.append(bytes(self._begun))
            self._begun.clear()
            self._too_long = False
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        self._too_long = self._too_long or len(self._begun) + len(part) > MOST_LINE
        if self._too_long:
            self._begun.clear()
        else:
            self._begun += part
