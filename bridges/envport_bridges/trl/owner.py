"""The trainer that makes an environment instance.

TRL calls an environment factory without arguments, so an instance does not learn who trains on it. Two promises need
to know: a lost episode is never trained on, and arguments are read as the model's chat format writes them. So the
factory looks for the trainer among its callers. `tests/bridges/test_trl_lost.py` fails if TRL stops calling the factory
from a method of the trainer.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

__all__ = ["Owner", "find_owner"]


@dataclass(frozen=True)
class Owner:
    """Who trains on an instance.

    Attributes:
        trainer: A `GRPOTrainer`, or the rollout worker of an `AsyncGRPOTrainer`.
        processing_class: Its tokenizer, or its processor if the model sees images.
    """

    trainer: Any
    processing_class: Any


def find_owner() -> Owner | None:
    """The trainer that is making an environment; `None` if the instance is made by hand."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        trainer: Any = frame.f_locals.get("self")
        # Both kinds keep their factories under this name before they call the first one.
        if "environment_factories" in getattr(trainer, "__dict__", ()):
            # While the trainer is being constructed, what it was given is not an attribute yet.
            given = frame.f_locals.get("processing_class")
            return Owner(trainer, given or getattr(trainer, "processing_class", None))
        frame = frame.f_back
    return None
