"""The trainer that makes an environment instance.

TRL calls an environment factory without arguments, so an instance does not learn who trains on it. Two promises need
to know: a lost episode is never trained on, and arguments are read as the model's chat format writes them. So the
factory looks for the trainer among its callers. `tests/bridges/test_trl_lost.py` fails if TRL stops calling the factory
from a method of the trainer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Owner", "find_owner"]


@dataclass(frozen=True)
class Owner:
    """Who trains on an instance.

    Attributes:
        trainer: A `GRPOTrainer`, or the rollout worker of an `AsyncGRPOTrainer`.
        processing_class: Its tokenizer, or its processor if the model sees images.
        episodes_at_once: How many episodes are open at once, over all of its processes; `None` if it is not known, as
            where there are several environments.
    """

    trainer: Any
    processing_class: Any
    episodes_at_once: int | None


def find_owner() -> Owner | None:
    """The trainer that is making an environment; `None` if the instance is made by hand."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        trainer: Any = frame.f_locals.get("self")
        # Both kinds keep their factories under this name before they call the first one.
        if "environment_factories" in getattr(trainer, "__dict__", ()):
            # While the trainer is being constructed, what it was given is not an attribute yet.
            given: dict[str, Any] = {**vars(trainer), **frame.f_locals}
            return Owner(trainer, given.get("processing_class"), _episodes_at_once(given))
        frame = frame.f_back
    return None


def _episodes_at_once(given: Mapping[str, Any]) -> int | None:
    if len(given["environment_factories"] or ()) > 1:
        return None
    batch = getattr(given.get("args"), "generation_batch_size", None)
    return batch if batch is not None else given.get("max_inflight_tasks")
