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

from envport.errors import ConfigurationError
from envport_bridges.trl.contract import KNOWN_TRL, trl_version

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
    """The trainer that is making an environment; `None` if the instance is made by hand.

    Raises:
        ConfigurationError: TRL is making it, but its trainer cannot be found.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    made_by_trl = False
    while frame is not None:
        made_by_trl |= str(frame.f_globals.get("__name__")).startswith("trl.")
        trainer: Any = frame.f_locals.get("self")
        # Both kinds keep their factories under this name before they call the first one.
        if "environment_factories" in getattr(trainer, "__dict__", ()):
            # While the trainer is being constructed, what it was given is not an attribute yet.
            given: dict[str, Any] = {**vars(trainer), **frame.f_locals}
            # The rollout worker keeps what it was given under another name.
            processing_class = given.get("processing_class", given.get("tokenizer"))
            return Owner(trainer, processing_class, _episodes_at_once(given))
        frame = frame.f_back
    if made_by_trl:
        raise ConfigurationError(
            f"TRL {trl_version()} makes environments in a way that is not known here, so lost episodes could not be "
            f"left out of training. Install a version that works: {', '.join(KNOWN_TRL)}."
        )
    return None


def _episodes_at_once(given: Mapping[str, Any]) -> int | None:
    if len(given["environment_factories"] or ()) > 1:
        return None
    batch = getattr(given.get("args"), "generation_batch_size", None)
    return batch if batch is not None else given.get("max_inflight_tasks")
