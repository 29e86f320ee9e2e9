"""The report of a run: a table for people, JSON for programs, and whether the targets were met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from envport.bench.against import PeerRow
from envport.bench.measure import Growth, Held, MeasuredRow, Opens
from envport.bench.peers import HELD_MOST, JUDGED_SESSIONS, OPENED_LEAST
from envport.bench.targets import TARGETS

__all__ = ["MAX_GROWTH", "MAX_HELD_MB", "MAX_OPEN_CALLS", "MAX_TAIL", "Report"]

MAX_HELD_MB = 60.0
"""Target: memory of 1,000 open episodes, in MB."""

MAX_OPEN_CALLS = 2.0
"""Target: CPU time of opening and closing an episode over the rollout channel, in calls of it."""

MAX_TAIL = 4.0
"""Target: 99th percentile of the latency by the median, at as many callers as `_CROWDED`."""

MAX_GROWTH = 1.2
"""Target: CPU time of a call while many episodes are open, by that while few are."""

_CROWDED = 256
_JUDGED = "episode-modern"
_JUDGED_OPENS = "channel"
_PACKAGES = ("envport", "mcp", "uvicorn", "uvloop", "pydantic", "aiohttp")


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run.

    Attributes:
        rows: Calls, by number of callers and target.
        opens: Opening and closing of episodes, by way, if it was measured.
        held: Memory of open episodes, where it was measured.
        growth: Calls while many episodes are open, by way, if they were measured.
        against: Steps of ours and of a peer, if they were measured.
    """

    rows: tuple[MeasuredRow, ...] = ()
    opens: tuple[Opens, ...] = ()
    held: tuple[Held, ...] = ()
    growth: tuple[Growth, ...] = ()
    against: tuple[PeerRow, ...] = ()

    @property
    def missed(self) -> list[str]:
        """Messages about the missed targets."""
        return [*self._missed_ratios(), *self._missed_by_episodes(), *self._missed_against()]

    def _missed_ratios(self) -> Iterator[str]:
        for row in self.rows:
            target = TARGETS[row.target]
            if target.most is not None and row.ratio is not None and row.ratio > target.most:
                yield (
                    f"{target.title}: CPU per call at {row.callers} concurrent is {row.ratio:.2f} x its floor's, over "
                    f"{target.most}"
                )
            if target.most is not None and row.callers == _CROWDED and row.tail > MAX_TAIL:
                yield f"{target.title}: p99 at {_CROWDED} concurrent is {row.tail:.1f} x p50, over {MAX_TAIL:g}"

    def _missed_by_episodes(self) -> Iterator[str]:
        for held in self.held:
            if held.target == _JUDGED and held.each_kb > MAX_HELD_MB:
                yield f"1,000 open episodes take {held.each_kb:.1f} MB, over {MAX_HELD_MB:g}"
        for opens in self.opens:
            if opens.target == _JUDGED_OPENS and opens.ratio > MAX_OPEN_CALLS:
                yield (
                    f"{TARGETS[opens.target].title}: opening and closing an episode costs {opens.ratio:.2f} calls, "
                    f"{opens.callers} at a time, over {MAX_OPEN_CALLS:g}"
                )
        for growth in self.growth:
            if growth.ratio > MAX_GROWTH:
                yield (
                    f"{TARGETS[growth.target].title}: CPU per call with {growth.many:,} open episodes is "
                    f"{growth.ratio:.2f} x that with {growth.few}, over {MAX_GROWTH:g}"
                )

    def _missed_against(self) -> Iterator[str]:
        for row in self.against:
            if row.served_ratio is not None and row.served_most is not None and row.served_ratio > row.served_most:
                yield (
                    f"our server takes {row.served_ratio:.2f} x the CPU of {row.title} for a step of its client at "
                    f"{row.sessions} sessions, over {row.served_most:g}"
                )
            if row.ratio is None or row.most is None or row.sessions != JUDGED_SESSIONS:
                continue
            yield from _missed_sessions(row)
            if row.ratio > row.most:
                yield (
                    f"a step of ours at {row.sessions} sessions costs {row.ratio:.3f} x that of {row.title}, over "
                    f"{row.most:g}"
                )

    def data(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self) | {"missed": self.missed, "versions": {name: version(name) for name in _PACKAGES}}

    def show(self, console: Console) -> None:
        """Print the report."""
        parts = [*([self._calls()] if self.rows else []), *([self._steps(), self._sessions()] if self.against else [])]
        console.print(Group(*parts, *self._lines()))

    def _calls(self) -> Table:
        table = Table(title="Calls of echo", title_justify="left", box=None, pad_edge=False)
        table.add_column("callers", justify="right")
        table.add_column("what is called")
        for heading in ("calls/s", "p50 ms", "p99 ms", "p99/p50", "CPU µs", "busy", "x floor", "rounds"):
            table.add_column(heading, justify="right", no_wrap=True)
        before = 0
        for row in self.rows:
            if before and row.callers != before:
                table.add_section()
            table.add_row(str(row.callers), TARGETS[row.target].title, *_figures(row))
            before = row.callers
        return table

    def _steps(self) -> Table:
        table = Table(title="Steps of echo, server and client", title_justify="left", box=None, pad_edge=False)
        table.add_column("sessions", justify="right")
        table.add_column("what is played")
        for heading in (
            "steps/s",
            "p50 ms",
            "p99 ms",
            "server µs",
            "client µs",
            "ours / its",
            "rounds",
            "served / its",
        ):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in self.against:
            ratio = f"{row.ratio:.3f}" if row.ratio is not None else ""
            latencies = (f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}")
            served = f"{row.served_ratio:.2f}" if row.served_ratio is not None else ""
            costs = (f"{row.server_us:.0f}", f"{row.client_us:.0f}", ratio, _range(row.ratios, 3), served)
            table.add_row(str(row.sessions), row.title, f"{row.steps_per_second:,.0f}", *latencies, *costs)
        return table

    def _sessions(self) -> Table:
        table = Table(title="\nSessions of its client", title_justify="left", box=None, pad_edge=False)
        table.add_column("sessions", justify="right")
        table.add_column("what is played")
        for heading in ("opened/s", "ours / its", "KB each", "ours / its", "threads each"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in self.against:
            if (costs := row.opening) is not None:
                opened = f"{row.opened_ratio:.2f}" if row.opened_ratio is not None else ""
                held = f"{row.held_ratio:.2f}" if row.held_ratio is not None else ""
                figures = (f"{costs.per_second:,.0f}", opened, f"{costs.kb:.0f}", held, f"{costs.threads:.2f}")
                table.add_row(str(row.sessions), row.title, *figures)
        return table

    def _lines(self) -> list[Text]:
        lines = [""]
        if self.rows:
            lines += [
                "CPU is the server's per call; x floor is CPU by that of the floor of the same protocol, the",
                "median over the rounds, and rounds is their range. Where busy is below 1, the server waited for its",
                "callers, or for a machine that has other work.",
            ]
        if self.against:
            lines += [
                "A step is one of echo; server and client are CPU per step. ours / its is the cost of our step, server",
                f"and client together, by that of its; it is judged at {JUDGED_SESSIONS} sessions. served / its is the",
                "CPU of our server, played by its client in its protocol, by that of its server. Sessions are opened",
                "all at once; KB and threads are the server's, and the most of the rounds.",
            ]
        lines += [
            f"Open and close ({TARGETS[opens.target].title}): {opens.ratio:.2f} calls' worth ({_range(opens.ratios)}), "
            f"CPU {opens.cpu_us:,.0f} µs; {opens.per_second:,.0f}/s, {opens.callers} at a time "
            f"(p50 {opens.p50_ms:.1f} ms, p99 {opens.p99_ms:.1f} ms)."
            for opens in self.opens
        ]
        lines += [
            f"Growth ({TARGETS[growth.target].title}): a call with {growth.many:,} open episodes costs "
            f"{growth.ratio:.2f} x ({_range(growth.ratios)}) one with {growth.few}: "
            f"{growth.many_us:.0f} and {growth.few_us:.0f} µs."
            for growth in self.growth
        ]
        lines += [
            f"{held.count:,} open episodes ({TARGETS[held.target].title}): {held.more_mb:.1f} MB "
            f"above {held.before_mb:.1f} MB with none, {held.each_kb:.1f} KB each."
            for held in self.held
        ]
        lines += [f"Missed: {missed}" for missed in self.missed]
        return [Text(line, "red" if line.startswith("Missed") else "") for line in lines]


def _missed_sessions(row: PeerRow) -> Iterator[str]:
    where = f"{row.title} at {row.sessions} sessions of its client"
    if row.opened_ratio is not None and row.opened_ratio < OPENED_LEAST:
        yield f"our server opens {row.opened_ratio:.2f} x as many a second as {where}, under {OPENED_LEAST:g}"
    if row.held_ratio is not None and row.held_ratio > HELD_MOST:
        yield f"a session of our server's holds {row.held_ratio:.2f} x the memory of {where}, over {HELD_MOST:g}"


def _figures(row: MeasuredRow) -> list[str]:
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    return [
        f"{row.calls_per_second:,.0f}",
        f"{row.p50_ms:.2f}",
        f"{row.p99_ms:.2f}",
        f"{row.tail:.1f}",
        f"{row.cpu_us:.0f}",
        f"{row.busy:.2f}",
        ratio,
        _range(row.ratios),
    ]


def _range(ratios: tuple[float, ...], digits: int = 2) -> str:
    return f"{min(ratios):.{digits}f}-{max(ratios):.{digits}f}" if ratios else ""
