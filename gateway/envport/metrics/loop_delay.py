"""Measures how late the event loop runs. Every call waits for this time, in addition to its environment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Histogram

__all__ = ["LoopDelay"]

_PERIOD = 0.25
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class LoopDelay:
    """Measures how late the event loop wakes up, four times a second.

    Args:
        registry: Where the metric is registered.
    """

    def __init__(self, registry: CollectorRegistry):
        self._histogram = Histogram(
            "envport_event_loop_delay_seconds",
            "How late the event loop was, sampled four times a second.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def run(self) -> Generator[None]:
        """Measure the delay of the running event loop."""
        self._sample_later(asyncio.get_running_loop())
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _sample_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_PERIOD, self._sample, loop, time.perf_counter() + _PERIOD)

    def _sample(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._histogram.observe(max(0.0, time.perf_counter() - due))
        self._sample_later(loop)
