"""Scores the stock that an episode leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

from envport import Task


def wanted(folder: Path, task: Task) -> float:
    """1 if the stock is the one that the task wants, else 0.

    Args:
        folder: A copy of the episode's working folder.
        task: The task. Its metadata have the stock that is wanted; the player never sees them.
    """
    file = folder / "stock.json"
    return float(file.is_file() and json.loads(file.read_text("utf-8")) == task.metadata["stock"])
