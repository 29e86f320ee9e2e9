"""The catalogue: every environment that comes with envport, checked, audited and measured.

    python -m envport_bridges.audit.catalogue                        # all of it, on the screen
    python -m envport_bridges.audit.catalogue --only catch --only openspiel:2048
    python -m envport_bridges.audit.catalogue --page CATALOGUE.md    # and as a page

Exits with 1 if an environment breaks the authoring contract, or an audit finds that its reward cannot be trusted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from envport.checker import examine
from envport.checker.watch import CheckWatch
from envport.definition import EnvironmentDefinition
from envport.errors import MissingExtra
from envport.registry import load
from envport_bridges.audit.auditing import Audit, audit
from envport_bridges.audit.memory import memory_of
from envport_bridges.audit.players import RANDOM
from envport_bridges.audit.playing import Auditorium

__all__ = ["ENTRIES", "CatalogueRow", "Entry", "examined", "main", "page"]

_EPISODES, _CALLS = 10, 300
_CHECKED_SEEDS, _CHECKED_CALLS = (0, 1), 15
_MEASURED = 8
_MOST_TOOLS = 5
_COLUMNS = (
    *("environment", "extra", "licence", "tools", "tasks", "opens", "a call", "memory"),
    *("nobody", "random", "reference", "audit"),
)


@dataclass(frozen=True)
class Entry:
    """An environment of the catalogue.

    Attributes:
        reference: What `envport serve` takes.
        extra: The extra that installs it, or what pip installs in place of one; empty if it needs none.
        licence: The licence of the game or the tasks.
    """

    reference: str
    extra: str = ""
    licence: str = "Apache-2.0"


ENTRIES = (
    *map(Entry, ("echo", "counter", "catch", "maze", "showcase", "workspace", "support", "sqlite")),
    Entry("sudoku?size=4&blanks=6"),
    Entry("wordle", "textarena", "MIT"),
    *(
        Entry(f"gymnasium:{name}", "gymnasium", "MIT")
        for name in ("FrozenLake-v1", "Blackjack-v1", "Taxi-v4", "CliffWalking-v1", "CartPole-v1")
    ),
    Entry("gymnasium:MiniGrid-Empty-5x5-v0", "gymnasium", "Apache-2.0"),
    *(
        Entry(f"textarena:{name}", "textarena", "MIT")
        for name in ("TowerOfHanoi-v0", "Mastermind-v0", "Hangman-v0", "ConnectFour-v0", "KuhnPoker-v0", "2048-v0")
    ),
    *(
        Entry(f"openspiel:{name}", "openspiel", "Apache-2.0")
        for name in ("tic_tac_toe", "connect_four", "blackjack", "kuhn_poker", "leduc_poker", "2048")
    ),
    *(
        Entry(f"reasoning_gym:{name}", "reasoning-gym", "Apache-2.0")
        for name in ("chain_sum", "leg_counting", "chain_sum,leg_counting?weights=[2,1]")
    ),
    *(Entry(f"bfcl:{name}", "--no-deps bfcl-eval mpmath") for name in ("multi_turn_base", "multi_turn_miss_func")),
    # A call takes long, and nothing in these takes more of them.
    *(Entry(f"browsergym:miniwob.{name}?max_steps=3", "browsergym", "MIT") for name in ("click-button", "enter-text")),
)
"""What comes with envport; of each scheme a sample."""


@dataclass(frozen=True)
class CatalogueRow:
    """What was found of an environment.

    Attributes:
        entry: The entry.
        missing: Why it could not be examined; empty if it could.
        tools: The names of its tools.
        tasks: How many tasks it has.
        opens: Milliseconds that opening an episode takes, in the median.
        step: Milliseconds that a call takes, in the median.
        memory: MiB that an open episode takes, with all of its processes.
        errors: What breaks the authoring contract.
        audit: Its audit.
    """

    entry: Entry
    missing: str = ""
    tools: tuple[str, ...] = ()
    tasks: int = 0
    opens: float = 0.0
    step: float = 0.0
    memory: float = 0.0
    errors: tuple[str, ...] = ()
    audit: Audit | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.errors and (self.audit is None or self.audit.passed)


async def examined(entry: Entry) -> CatalogueRow:
    """Check, measure and audit an environment.

    Args:
        entry: The environment.
    """
    try:
        definition = await anyio.to_thread.run_sync(load, entry.reference)
    except MissingExtra as missing:
        return CatalogueRow(entry, str(missing))
    with CheckWatch(None, lambda words: None) as watch:
        report = await examine(definition, _CHECKED_SEEDS, _CHECKED_CALLS, watch)
    opens, step = await _costs(definition)
    return CatalogueRow(
        entry,
        tools=tuple(definition.tools),
        tasks=sum(definition.num_tasks(split) for split in definition.splits),
        opens=opens,
        step=step,
        memory=await memory_of(entry.reference),
        errors=tuple(str(finding) for finding in report.findings if finding.level == "error"),
        audit=await audit(definition, episodes=_EPISODES, most_calls=_CALLS),
    )


async def _costs(definition: EnvironmentDefinition) -> tuple[float, float]:
    """Milliseconds of an opening and of a random call, in the median of a few episodes, one after the other."""
    async with Auditorium.open(definition, _CALLS) as room:
        played = [(await room.play(RANDOM, [start]))[0] for start in room.starts(_MEASURED, 0)]
    calls = [one.playing / len(one.calls) for one in played if one.calls]
    return 1000 * statistics.median(one.opening for one in played), 1000 * statistics.median(calls or [0.0])


def page(rows: Sequence[CatalogueRow]) -> str:
    """The catalogue as a page."""
    lines = [
        "# Catalogue",
        "",
        "Made by `make catalogue`, of each scheme a sample. Every environment was checked (`envport check`), and its",
        "reward audited (`envport audit`). The same task and seed give the same episode, also in another process.",
        "Opening an episode and a random call are medians of one machine, in milliseconds: compare them with each",
        "other. Memory is what one more open episode takes, with its processes, in MiB: the difference of PSS over 64",
        "open episodes, or 8 where each has a process of its own.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|---" * len(_COLUMNS) + "|",
    ]
    for row in rows:
        name, extra = f"`{row.entry.reference}`", f"`{row.entry.extra}`" if row.entry.extra else ""
        if row.missing:
            empty = " |" * (len(_COLUMNS) - 4)
            lines.append(f"| {name} | {extra} | {row.entry.licence} | not examined: {row.missing} |{empty}")
            continue
        more = f" and {len(row.tools) - _MOST_TOOLS} more" if len(row.tools) > _MOST_TOOLS else ""
        tools = ", ".join(f"`{tool}`" for tool in row.tools[:_MOST_TOOLS]) + more
        costs = f"{row.opens:.1f} | {row.step:.2f} | {max(row.memory, 0.0):.2f}"
        earned = " | ".join(_earned(row.audit, kind) for kind in ("idle", "random", "reference"))
        tasks = f"{row.tasks:,}" if row.tasks else ""
        told = _told(row)
        lines.append(f"| {name} | {extra} | {row.entry.licence} | {tools} | {tasks} | {costs} | {earned} | {told} |")
    return "\n".join([*lines, ""])


def _earned(found: Audit | None, kind: str) -> str:
    means = [one.reward.mean for one in found.players if one.kind == kind] if found is not None else []
    return f"{means[0]:.2f}" if means and means[0] is not None else ""


def _told(row: CatalogueRow) -> str:
    failed = (
        [finding.check for finding in row.audit.findings if finding.status == "fail"] if row.audit is not None else []
    )
    wrong = ["contract"] * bool(row.errors) + failed
    return f"fails: {', '.join(wrong)}" if wrong else "passes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine the catalogue; 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a reference of the catalogue; may be repeated")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    chosen = parser.parse_args(arguments)
    known = [entry.reference for entry in ENTRIES]
    if unknown := [name for name in chosen.only or () if name not in known]:
        parser.error(f"{unknown[0]} is not in the catalogue; it has: {', '.join(known)}")
    rows: list[CatalogueRow] = []
    for entry in ENTRIES:
        if not chosen.only or entry.reference in chosen.only:
            row = anyio.run(examined, entry)
            rows.append(row)
            print(f"{entry.reference}: {row.missing or _told(row)}", flush=True)
            for line in row.errors:
                print(f"  {line}")
            for finding in row.audit.findings if row.audit is not None else ():
                if finding.status == "fail":
                    print(f"  {finding.check}: {finding.message}")
    if chosen.page is not None:
        chosen.page.write_text(page(rows), "utf-8")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
