"""What an episode was and what it showed, so that it can be played again and compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_jsonable_python

from envport.runtimes import StepResult
from envport.types import Observation, Task

__all__ = ["Tape", "shown"]


@dataclass
class Tape:
    """An episode.

    Attributes:
        task: Its task; `None` if it has none.
        seed: Its seed.
        opening: What `reset` showed, as plain data.
        calls: Its calls in turn: the tool, the arguments, and what was shown, as plain data.
        scored: Whether it was scored.
        score: Its score.
    """

    task: Task | None
    seed: int
    opening: Any = None
    calls: list[tuple[str, dict[str, Any], Any]] = field(default_factory=list[tuple[str, dict[str, Any], Any]])
    scored: bool = False
    score: float | None = None


def shown(result: StepResult | Observation | str) -> Any:
    """What a call gave, as plain data: the same, whichever runtime it came through."""
    if isinstance(result, str):
        return {"refused": result}
    if isinstance(result, Observation):
        return result.model_dump(mode="json")
    data = {"observation": result.observation.model_dump(mode="json"), "info": to_jsonable_python(result.info)}
    return {**data, "reward": result.reward, "terminated": result.terminated, "truncated": result.truncated}
