"""Where the CPU time of a server goes while a target is called: its functions by own and by cumulative time."""

from __future__ import annotations

import pstats
import signal
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from envport.bench.measure import Bench, MeasuringPlan
from envport.bench.processes import Process, python_module
from envport.bench.profiled import BEGUN, ENDED
from envport.bench.targets import BenchTarget

__all__ = ["Flame", "FlameFunction", "measure_flame"]

_TOP = 15
_CALLERS = 16


@dataclass(frozen=True, slots=True)
class FlameFunction:
    """A function, and its share of the server's CPU time.

    Attributes:
        name: The function.
        where: Its file and line; empty for one that is not written in Python.
        entered: How often it was entered per call of the target. A coroutine is entered each time that it goes on.
        own: Share of the time spent in itself.
        cumulative: Share of the time spent in it and in what it calls.
    """

    name: str
    where: str
    entered: float
    own: float
    cumulative: float


@dataclass(frozen=True, slots=True)
class Flame:
    """What the profiler saw.

    Attributes:
        target: The target that was called.
        calls: How many calls it had.
        functions: The functions of the server.
    """

    target: str
    calls: int
    functions: tuple[FlameFunction, ...]

    def show(self, console: Console) -> None:
        """Print the functions that matter most."""
        for title, key in (("own", "own"), ("cumulative", "cumulative")):
            table = Table(title=f"{self.target}: top functions by {title} CPU time", title_justify="left", box=None)
            for heading in ("own %", "cumulative %", "times a call"):
                table.add_column(heading, justify="right", no_wrap=True)
            table.add_column("function")
            for one in sorted(self.functions, key=lambda one: getattr(one, key), reverse=True)[:_TOP]:
                shares = (f"{100 * one.own:.1f}", f"{100 * one.cumulative:.1f}", f"{one.entered:.2f}")
                table.add_row(*shares, f"{one.name}  {one.where}".rstrip())
            console.print(table)
        console.print(
            "The profiler itself makes calls of small Python functions dearer than they are.", highlight=False
        )


def measure_flame(plan: MeasuringPlan, target: BenchTarget, say: Callable[[str], None]) -> Flame:
    """Call a target, and profile its server meanwhile.

    Raises:
        GatewayUnreachable: The server gave a wrong answer or none.
    """
    say(f"profiling {target.title}")
    count = plan.calls * plan.rounds
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "stats")
        interpreter = (*python_module(), "envport.bench.profiled", str(file))
        bench = Bench(stack, {}, plan.gateway, interpreter)
        process, _ = bench.server(target.server)
        callers = min(_CALLERS, max(plan.concurrency))
        bench.job("calls", target, callers, 2 * callers)
        _told(process, signal.SIGUSR1, BEGUN)
        sample = bench.job("calls", target, callers, count)
        _told(process, signal.SIGUSR2, ENDED)
        return Flame(target.title, sample.count, _functions(file, sample.count))


def _told(process: Process, number: int, answer: str) -> None:
    """Send a signal, and wait for its answer. A gateway prints other lines too."""
    process.signal(number)
    while process.read() != answer:
        pass


def _functions(file: Path, calls: int) -> tuple[FlameFunction, ...]:
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = cast("Any", pstats.Stats(str(file))).stats
    whole = sum(own for _, _, own, _, _ in stats.values()) or 1.0
    return tuple(
        FlameFunction(name, _where(path, line), entered / calls, own / whole, cumulative / whole)
        for (path, line, name), (_, entered, own, cumulative, _) in stats.items()
    )


def _where(path: str, line: int) -> str:
    return "" if path == "~" else f"{'/'.join(Path(path).parts[-3:])}:{line}"
