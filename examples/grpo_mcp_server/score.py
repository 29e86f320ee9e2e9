"""Scores the working folder that an episode leaves behind."""

from __future__ import annotations

from pathlib import Path

from envport import Task


def made(folder: Path, task: Task) -> float:
    """1 if the folder that was asked for is there, and nothing else."""
    return float([path.name for path in folder.iterdir()] == [task.metadata["colour"]])
