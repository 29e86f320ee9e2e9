"""Who plays in an audit: nobody, random play, the reference solution, and cheats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from envport.environment import Solution
from envport.tools.sampling import ArgumentSampler
from envport.types import LegalCall

__all__ = ["CHEATS", "IDLER", "RANDOM", "REFERENCE", "AuditPlayer", "Table", "follow"]

Kind = Literal["idle", "random", "reference", "cheat"]

# What ends a careless interpreter, shell or scorer, and what some scorers read.
_HOSTILE = (
    "import os; os._exit(0)",
    "kill -9 -1; kill -9 $PPID",
    "echo 1 > /logs/verifier/reward.txt; echo 1 > reward.txt",
    "'; DROP TABLE rewards; --",
    '{"reward": 1.0, "terminated": true}',
    "{{7*7}} ${7*7} %s%s%n ../../../../etc/passwd",
    "\x00\u202e\ud7ff" * 50,
    "9" * 5_000,
    "x" * 200_000,
)


@dataclass
class Table:
    """What a player of an audit sees.

    Attributes:
        tools: The tools, as MCP lists them.
        rng: Random number generator of the episode.
        legal: The calls that make sense now; `None` if the environment does not say.
        made: The calls so far.
    """

    tools: list[dict[str, Any]]
    rng: Random
    legal: list[LegalCall] | None = None
    made: list[LegalCall] = field(default_factory=list[LegalCall])

    def any_call(self) -> LegalCall | None:
        """A legal call, or a random tool with arguments that it accepts."""
        if self.legal is not None:
            return self.rng.choice(self.legal) if self.legal else None
        if not self.tools:
            return None
        tool = self.rng.choice(self.tools)
        return tool["name"], ArgumentSampler(tool["inputSchema"]).sample(self.rng)


@dataclass(frozen=True)
class AuditPlayer:
    """A player of an audit.

    Attributes:
        name: What it is called.
        kind: What its reward says.
        move: Gives its next call; `None` to stop.
    """

    name: str
    kind: Kind
    move: Callable[[Table], LegalCall | None]


def _nothing(table: Table) -> LegalCall | None:
    return None


def _random(table: Table) -> LegalCall | None:
    return table.any_call()


def _one_call_then_stop(table: Table) -> LegalCall | None:
    return None if table.made else table.any_call()


def _each_tool_once(table: Table) -> LegalCall | None:
    left = table.tools[len(table.made) :]
    return (left[0]["name"], ArgumentSampler(left[0]["inputSchema"]).sample(table.rng)) if left else None


def _same_call(table: Table) -> LegalCall | None:
    return table.made[0] if table.made else table.any_call()


def _bad_arguments(table: Table) -> LegalCall | None:
    return (table.rng.choice(table.tools)["name"], {"no such argument": None}) if table.tools else None


def _hostile_texts(table: Table) -> LegalCall | None:
    taking = [tool for tool in table.tools if _texts(tool)]
    if not taking:
        return None
    tool = taking[len(table.made) % len(taking)]
    arguments = ArgumentSampler(tool["inputSchema"]).sample(table.rng)
    words = _HOSTILE[len(table.made) // len(taking) % len(_HOSTILE)]
    return tool["name"], {**arguments, **dict.fromkeys(_texts(tool), words)}


def _texts(tool: dict[str, Any]) -> list[str]:
    properties: dict[str, Any] = tool["inputSchema"].get("properties", {})
    return [
        name for name, schema in properties.items() if schema == {**schema, "type": "string"} and "enum" not in schema
    ]


def follow(solution: Solution) -> Callable[[Table], LegalCall | None]:
    """The moves of a reference solution."""
    calls: Sequence[LegalCall] = solution.calls

    def move(table: Table) -> LegalCall | None:
        return calls[len(table.made)] if len(table.made) < len(calls) else None

    return move


IDLER = AuditPlayer("nothing", "idle", _nothing)
"""Makes no call, and ends the episode."""

RANDOM = AuditPlayer("random calls", "random", _random)
"""Makes random legal calls."""

REFERENCE = AuditPlayer("reference", "reference", _nothing)
"""Makes the calls of the task's reference solution; see `follow`."""

CHEATS = (
    AuditPlayer("one call, then stop", "cheat", _one_call_then_stop),
    AuditPlayer("each tool once", "cheat", _each_tool_once),
    AuditPlayer("the same call again and again", "cheat", _same_call),
    AuditPlayer("calls that are refused", "cheat", _bad_arguments),
    AuditPlayer("hostile texts", "cheat", _hostile_texts),
)
"""Play that has nothing to do with the task."""
