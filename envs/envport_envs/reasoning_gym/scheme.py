"""The scheme `reasoning_gym:`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from envport.registry import EnvironmentDefinition
from envport_envs.reasoning_gym.environment import ConfigsByTask, ReasoningGymEnvironment, SplitSize

__all__ = ["reasoning_gym"]

_LONGEST_NAME = 64


def reasoning_gym(
    rest: str,
    /,
    *,
    weights: list[float] | None = None,
    train_size: SplitSize = 1_000,
    test_size: SplitSize = 200,
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0,
    config: ConfigsByTask | None = None,
    partial: bool = False,
) -> EnvironmentDefinition:
    """Tasks of reasoning-gym: `reasoning_gym:chain_sum`, or several of them, `reasoning_gym:chain_sum,leg_counting`.

    Args:
        rest: The name of a task, or several with commas between them: `chain_sum`, `chain_sum,leg_counting`.
        weights: How often each task is drawn, as JSON: `[2,1]`.
        train_size: Questions of the split `train`.
        test_size: Questions of the split `test`.
        seed: Seed of the questions.
        config: Settings of tasks by name, as JSON: `{"chain_sum": {"max_terms": 8}}`.
        partial: Whether an answer that is not right may earn a part; see `ReasoningGymEnvironment`.

    Raises:
        EnvironmentNotFound: Reasoning-gym has no such task.
        ConfigurationError: The task is not served, because its scorer is not sound.
        InvalidOption: The weights or the settings do not fit the tasks.
        MissingExtra: Reasoning-gym is not installed.
    """
    given = {
        "tasks": rest,
        "weights": weights,
        "train_size": train_size,
        "test_size": test_size,
        "seed": seed,
        "config": config,
        "partial": partial,
    }
    options = {key: value for key, value in given.items() if value is not None}
    name = rest.replace(" ", "").replace(",", "-")
    return EnvironmentDefinition(
        name if len(name) <= _LONGEST_NAME else "reasoning_gym", ReasoningGymEnvironment, options
    )
