"""Keeps NaN out of a trainer's logs: where a whole batch was lost, there is nothing to log."""

from __future__ import annotations

import math
from typing import Any

from transformers import TrainerCallback

__all__ = ["FiniteLogs", "keep_logs_finite"]


class FiniteLogs(TrainerCallback):
    """Takes what is not finite out of every log entry, before any logger sees it.

    TRL averages rewards without the lost episodes, and logs NaN where none is left. Put it first:
    `trainer.callback_handler.callbacks.insert(0, FiniteLogs())`. The default reward function does so by itself.
    """

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Clean the entry, and the copy that the trainer keeps."""
        for entry in (logs, state.log_history[-1] if state.log_history else None):
            if entry is not None:
                for key in [key for key, value in entry.items() if _not_finite(value)]:
                    del entry[key]


def _not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def keep_logs_finite(log_metric: Any) -> None:
    """Add `FiniteLogs` to the trainer whose `log_metric` this is, if it is one and has none yet."""
    handler = getattr(getattr(log_metric, "__self__", None), "callback_handler", None)
    if handler is not None and not any(isinstance(callback, FiniteLogs) for callback in handler.callbacks):
        handler.callbacks.insert(0, FiniteLogs())
