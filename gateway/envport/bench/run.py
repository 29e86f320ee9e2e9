"""A run of the benchmark, from its plan to its report."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from envport.bench.against import measure_against
from envport.bench.measure import MeasuringPlan, measure_calls, measure_growth, measure_memory, measure_opens
from envport.bench.peers import PEERS
from envport.bench.processes import require_linux
from envport.bench.report import Report
from envport.bench.targets import TARGETS
from envport.errors import MissingExtra

__all__ = ["require_bench", "run_bench"]

_HELD_OVER = ("episode-modern", "episode-legacy")


def require_bench() -> None:
    """Check that the benchmark can run.

    Raises:
        MissingExtra: The load generator's HTTP client is not installed.
        ConfigurationError: This is not Linux, so the resource use of other processes cannot be read.
    """
    require_linux()
    if find_spec("aiohttp") is None:
        raise MissingExtra("the bench's load generator", "bench")


def run_bench(plan: MeasuringPlan | None = None, say: Callable[[str], None] = lambda _: None) -> Report:
    """Start the servers and the load generator in separate processes, and measure.

    Args:
        plan: The targets and the size of each measurement.
        say: Receives progress messages.

    Raises:
        MissingExtra: The load generator's HTTP client is not installed.
        ConfigurationError: This is not Linux, so the resource use of other processes cannot be read; or a peer could
            not be installed.
        GatewayUnreachable: A server gave a wrong answer or none, so there are no results.
    """
    plan = plan or MeasuringPlan()
    require_bench()
    return Report(
        rows=tuple(measure_calls(plan, say)) if plan.targets else (),
        opens=tuple(measure_opens(plan, say)) if plan.opens else (),
        held=tuple(measure_memory(plan, TARGETS[name], say) for name in _HELD_OVER) if plan.held else (),
        growth=tuple(measure_growth(plan, say)) if plan.grown else (),
        against=tuple(
            measure_against(PEERS[plan.against], plan.concurrency, plan.calls, plan.rounds, plan.gateway, say)
            if plan.against
            else ()
        ),
    )
