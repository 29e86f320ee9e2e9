"""Metrics that are counted when events happen: opens, resets, calls, ends and refusals."""

from __future__ import annotations

from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from envport.types import Outcome

__all__ = ["EpisodeMetrics"]

MetricT = TypeVar("MetricT", Counter, Histogram)

# The buckets cover fast calls of inline environments, and calls that wait for a person or a build.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class _Series(dict[tuple[str, ...], MetricT], Generic[MetricT]):
    """The series of a metric by their labels. They are cached, to avoid the lock of the Prometheus client."""

    def __init__(self, metric: MetricT):
        super().__init__()
        self._metric = metric

    def __missing__(self, labels: tuple[str, ...]) -> MetricT:
        series = self[labels] = self._metric.labels(*labels)
        return series


class _Timed:
    """A histogram by environment and result."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry):
        self._series = _Series(
            Histogram(name, documentation, ("environment", "result"), buckets=_SECONDS, registry=registry)
        )

    def observe(self, environment: str, result: str, seconds: float) -> None:
        self._series[environment, result].observe(seconds)


class EpisodeMetrics:
    """An `EpisodeObserver` that counts the events of episodes.

    Labels contain only names of environments and words that envport defines, so that their number is bounded.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry):
        self._opens = _Timed(
            "envport_open_duration_seconds",
            "How long callers waited for an episode to be opened, for room included.",
            registry,
        )
        self._resets = _Timed("envport_reset_duration_seconds", "How long resets of episodes took.", registry)
        self._calls = _Timed(
            "envport_call_duration_seconds",
            "How long tool calls took, the wait for their turn in the episode included.",
            registry,
        )
        ended = Counter(
            "envport_episodes_ended",
            "Episodes that ended, by how they ended; fault is its owner (player, environment, infrastructure) or none.",
            ("environment", "status", "reason", "fault"),
            registry=registry,
        )
        self._ended = _Series(ended)
        self._refused = Counter(
            "envport_admission_refusals",
            "Episodes that were refused for want of room, by the limit that was reached.",
            ("limit",),
            registry=registry,
        )
        # Start each series at zero, so that a rate includes the first refusal.
        for limit in ("total", "principal", "environment", "draining"):
            self._refused.labels(limit)

    def opened(self, environment: str, result: str, seconds: float) -> None:
        """Count an opened episode."""
        self._opens.observe(environment, result, seconds)

    def reset(self, environment: str, result: str, seconds: float) -> None:
        """Count a reset."""
        self._resets.observe(environment, result, seconds)

    def called(self, environment: str, result: str, seconds: float) -> None:
        """Count a tool call."""
        self._calls.observe(environment, result, seconds)

    def ended(self, environment: str, outcome: Outcome) -> None:
        """Count the end of an episode."""
        self._ended[environment, outcome.status, outcome.reason, outcome.fault or "none"].inc()

    def refused(self, limit: str) -> None:
        """Count a refusal."""
        self._refused.labels(limit).inc()
