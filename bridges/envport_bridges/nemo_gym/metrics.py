"""The aggregate of a run's rewards, which NeMo Gym asks its resources servers for."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

__all__ = ["AggregateRequest", "aggregate"]

_TASK = "_ng_task_index"
_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "median": statistics.median,
    "std": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,
}


class AggregateRequest(BaseModel):
    """What the rollouts of a run came to: the answers of `/verify`, without the trajectories."""

    verify_responses: list[dict[str, Any]]


def aggregate(responses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean, extremes, median and standard deviation of every number, for the run and for each of its tasks.

    Args:
        responses: The answers of `/verify`. Those that are masked are left out.
    """
    counted = [response for response in responses if response.get("mask_sample") is not True]
    by_task: dict[int, list[Mapping[str, Any]]] = {}
    for response in counted:
        by_task.setdefault(int(response.get(_TASK, 0)), []).append(response)
    overall = _described(counted)
    return {
        "group_level_metrics": [
            {_TASK: task, "num_rollouts": len(by_task[task]), **_described(by_task[task])} for task in sorted(by_task)
        ],
        "agent_metrics": overall,
        "key_metrics": {name: value for name, value in overall.items() if name.startswith("mean/")},
    }


def _described(responses: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    columns: dict[str, list[float]] = {}
    for response in responses:
        for name, value in {**response, **_usage(response)}.items():
            if isinstance(value, bool | int | float) and not name.startswith("_ng_") and math.isfinite(value):
                columns.setdefault(name, []).append(float(value))
    return {f"{what}/{name}": of(values) for name, values in columns.items() for what, of in _STATISTICS.items()}


def _usage(response: Mapping[str, Any]) -> Mapping[str, Any]:
    answer: Any = response.get("response")
    usage: Any = cast("Mapping[str, Any]", answer).get("usage") if isinstance(answer, Mapping) else None
    return cast("Mapping[str, Any]", usage) if isinstance(usage, Mapping) else {}
