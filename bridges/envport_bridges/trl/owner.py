"""The trainer that makes an environment instance.

TRL calls an environment factory without arguments, so an instance does not learn who trains on it. Two promises need
to know: a lost episode is never trained on, and arguments are read as the model's chat format writes them. So the
factory looks for the trainer among its callers. `tests/bridges/test_trl_lost.py` fails if TRL stops calling the factory
from a method of the trainer.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["find_owner"]


def find_owner() -> Any | None:
    """The trainer, or AsyncGRPOTrainer's rollout worker, that is making an environment; `None` if there is none."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        owner = frame.f_locals.get("self")
        # Both keep their factories under this name before they call the first one.
        if "environment_factories" in getattr(owner, "__dict__", ()):
            return owner
        frame = frame.f_back
    return None
