"""The report of a run: a table for people, JSON for programs, and whether the targets were met."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from envport.bench.measure import Held, MeasuredRow, Opens
from envport.bench.targets import TARGETS

__all__ = ["MAX_HELD_MB", "Report"]

MAX_HELD_MB = 60.0
"""Target: memory of 1,000 open episodes, in MB."""

_JUDGED = "episode-modern"
_PACKAGES = ("envport", "mcp", "uvicorn", "uvloop", "pydantic", "aiohttp")


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run.

    Attributes:
        rows: Calls, by number of callers and target.
        opens: Opening of episodes, if it was measured.
        held: Memory of open episodes, where it was measured.
    """

    rows: tuple[MeasuredRow, ...] = ()
    opens: Opens | None = None
    held: tuple[Held, ...] = ()

    @property
    def missed(self) -> list[str]:
        """Messages about the missed targets."""
        ratios = [
            f"{target.title}: CPU per call at {row.callers} concurrent is {row.ratio:.2f} x its floor's, over {most}"
            for row in self.rows
            if (most := (target := TARGETS[row.target]).most) is not None and row.ratio is not None and row.ratio > most
        ]
        memory = [
            f"1,000 open episodes take {held.each_kb:.1f} MB, over {MAX_HELD_MB:g}"
            for held in self.held
            if held.target == _JUDGED and held.each_kb > MAX_HELD_MB
        ]
        return ratios + memory

    def data(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self) | {"missed": self.missed, "versions": {name: version(name) for name in _PACKAGES}}

    def show(self, console: Console) -> None:
        """Print the report."""
        parts = [self._calls()] if self.rows else []
        console.print(Group(*parts, *self._lines()))

    def _calls(self) -> Table:
        table = Table(title="Calls of echo", title_justify="left", box=None, pad_edge=False)
        table.add_column("callers", justify="right")
        table.add_column("what is called")
        for heading in ("calls/s", "p50 ms", "p99 ms", "CPU µs", "busy", "x floor", "rounds"):
            table.add_column(heading, justify="right", no_wrap=True)
        before = 0
        for row in self.rows:
            if before and row.callers != before:
                table.add_section()
            table.add_row(str(row.callers), TARGETS[row.target].title, *_figures(row))
            before = row.callers
        return table

    def _lines(self) -> list[Text]:
        lines = [""]
        if self.rows:
            lines += [
                "CPU is the server's per call; x floor is CPU by that of the floor of the same protocol, the",
                "median over the rounds, and rounds is their range. Where busy is below 1, the server waited for its",
                "callers, or for a machine that has other work.",
            ]
        if (opens := self.opens) is not None:
            lines.append(
                f"Episodes opened: {opens.per_second:,.0f}/s with {opens.callers} callers "
                f"(p50 {opens.p50_ms:.1f} ms, p99 {opens.p99_ms:.1f} ms, CPU {opens.cpu_us:,.0f} µs each)."
            )
        lines += [
            f"{held.count:,} open episodes ({TARGETS[held.target].title}): {held.more_mb:.1f} MB "
            f"above {held.before_mb:.1f} MB with none, {held.each_kb:.1f} KB each."
            for held in self.held
        ]
        lines += [f"Missed: {missed}" for missed in self.missed]
        return [Text(line, "red" if line.startswith("Missed") else "") for line in lines]


def _figures(row: MeasuredRow) -> list[str]:
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    spread = f"{min(row.ratios):.2f}-{max(row.ratios):.2f}" if row.ratios else ""
    return [
        f"{row.calls_per_second:,.0f}",
        f"{row.p50_ms:.2f}",
        f"{row.p99_ms:.2f}",
        f"{row.cpu_us:.0f}",
        f"{row.busy:.2f}",
        ratio,
        spread,
    ]
