"""Stops a run whose episodes are mostly lost."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from envport.errors import MissingExtra
from envport_bridges.trl.outage import LOST_METRIC, TooManyLost

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise MissingExtra("The training bridge", "trl") from error

__all__ = ["OutageCallback", "outage_callback_of"]

logger = logging.getLogger(__name__)

_BATCHES = 3
_SHARE = 0.5


class OutageCallback(TrainerCallback):
    """Stops a run whose episodes are mostly lost, after it has saved a checkpoint.

    `GRPOTrainer` and `ConcurrentGRPOTrainer` get one by themselves. `AsyncGRPOTrainer` takes `spec.callbacks`: it plays
    in another process, and tells of its episodes in the metrics that it logs.

    Args:
        stops: Whether it stops the run; if not, it does nothing.
    """

    def __init__(self, *, stops: bool = True):
        self._stops = stops
        self._shares: deque[float] = deque(maxlen=_BATCHES)
        self._counted = False
        self._stopped: str | None = None

    def count(self, share: float) -> None:
        """Take note of a batch.

        Args:
            share: Which share of its episodes was lost, over all processes.
        """
        self._counted = True
        self._shares.append(share)

    @property
    def mostly_lost(self) -> bool:
        """Whether more than half of the episodes of each of the last three batches were lost."""
        return len(self._shares) == _BATCHES and min(self._shares) > _SHARE

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read what a trainer logs, if nobody counts its batches."""
        logs: dict[str, Any] = kwargs.get("logs") or {}
        if not self._counted and LOST_METRIC in logs:
            self._shares.append(float(logs[LOST_METRIC]))
            self._stop_if_lost(args, state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Have a checkpoint saved and the run ended."""
        self._stop_if_lost(args, state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell the caller of `train`."""
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            raise TooManyLost(stopped)

    def _stop_if_lost(self, args: Any, state: Any, control: Any) -> None:
        if not self._stops or not self.mostly_lost:
            return
        shares = ", ".join(f"{share:.0%}" for share in self._shares)
        self._stopped = (
            f"{shares} of the episodes of the last {_BATCHES} batches were lost to faults, so the run was stopped at "
            f"step {state.global_step}. The log says what each was lost to. Its checkpoint is "
            f"{args.output_dir}/checkpoint-{state.global_step}: mend the cause, and go on with "
            "train(resume_from_checkpoint=True). EnvironmentSpec(on_outage=...) chooses what a run does then."
        )
        self._shares.clear()
        logger.error("%s", self._stopped)
        control.should_save = True
        control.should_training_stop = True


def outage_callback_of(trainer: Any, *, stops: bool) -> OutageCallback:
    """The callback of a trainer; adds one if it has none.

    Args:
        trainer: A `GRPOTrainer`.
        stops: Whether an added one stops the run.
    """
    for one in trainer.callback_handler.callbacks:
        if isinstance(one, OutageCallback):
            return one
    made = OutageCallback(stops=stops)
    trainer.add_callback(made)
    return made
