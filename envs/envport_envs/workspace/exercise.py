"""An exercise: what a task asks for, what lies in the working folder, and what decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envport_envs.workspace.hidden import HiddenTest

__all__ = ["Exercise"]


@dataclass(frozen=True, slots=True)
class Exercise:
    """What a task asks for.

    Attributes:
        prompt: What the player reads.
        path: The file that is judged.
        solution: A content of it that solves the task.
        test: Decides whether a content solves the task.
        files: What lies in the working folder at the beginning, by name.
    """

    prompt: str
    path: str
    solution: str
    test: HiddenTest
    files: Mapping[str, str] = field(default_factory=dict[str, str])
