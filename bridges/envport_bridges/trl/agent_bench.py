"""What an episode costs when an agent plays it, for `python -m envport_bridges.trl.bench agents`."""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from envport_bridges.agents.model.desk import DeskFigures

__all__ = ["MOST_OF_A_ROLLOUT", "AgentCosts", "measure_agents"]

MOST_OF_A_ROLLOUT = 4.0
"""Target: time of an episode that a resident agent plays, by that of one of `spec.rollout_func`."""

_AT_ONCE = (8, 16, 32)
_STARTED_AT_ONCE = 8


@dataclass(frozen=True)
class AgentCosts:
    """Seconds of an episode, in rounds that each played the same episodes by `rollout_func` and by an agent.

    Attributes:
        episodes: How many episodes each round had; 16 of those with a process for each.
        rounds: How many rounds there were.
        rollout: Seconds of an episode by `rollout_func`, all at once: the median.
        resident: Seconds by resident agents and their ratio to `rollout`: medians, by how many played at once.
        started: The same by agents that are started for each episode, 8 at once.
        figures: What the policy of the resident agents was asked.
    """

    episodes: int
    rounds: int
    rollout: float
    resident: dict[int, tuple[float, float]]
    started: tuple[float, float]
    figures: DeskFigures

    @property
    def tokenized_differently(self) -> float:
        """Share of the requests that extend an earlier one whose context tokenizing them again would have changed."""
        return self.figures.tokenized_differently / max(1, self.figures.extended)


def measure_agents(example: Path, rounds: int = 3, episodes: int = 64, warm_up: int | None = None) -> AgentCosts:
    """Play episodes of the example's game: in turns by `rollout_func`, and by its agent in one way after another.

    Args:
        example: The folder of the example.
        rounds: How many rounds to play.
        episodes: How many episodes a round has in each way.
        warm_up: Episodes of the policy's warm-up; as many as in the example if not given.
    """
    sys.path.insert(0, str(example))
    train: Any = importlib.import_module("train")
    with tempfile.TemporaryDirectory() as folder:
        words = ["--groups", str(episodes // 8), "--group-size", "8", "--batches", "1", "--output", folder]
        options = train.parse([*words, "--warm-up", str(warm_up)] if warm_up else words)
        return _played(train, options, rounds)


def _played(train: Any, options: Any, rounds: int) -> AgentCosts:
    import torch
    from transformers import PrinterCallback, set_seed

    torch.set_num_threads(1)  # As the example does.
    set_seed(0)
    spec = train.spec_of(options, 0)
    model, tokenizer = train.policy(spec, 0, options, options.output)
    command = f"{{python}} {train.HERE / options.agent}"
    rollout: Any = spec.rollout_func
    trainer: Any = train.GRPOTrainer(
        model=model,
        args=train.settings(options, 0, options.output),
        processing_class=tokenizer,
        train_dataset=spec.rollout_dataset,
        rollout_func=spec.rollout_func,
        reward_funcs=spec.reward_funcs,
    )
    trainer.remove_callback(PrinterCallback)
    prompts = [prompt for prompt in spec.rollout_dataset["prompt"] for _ in range(options.group_size)]
    rolled: list[float] = []

    def beside_rollout(play: Any, asked: list[Any]) -> tuple[float, float]:
        for warm_up in (rollout, play):
            warm_up(asked, trainer)  # Connections, gateways and processes are there afterwards.
        taken = [(_seconds(rollout, prompts, trainer), _seconds(play, asked, trainer)) for _ in range(rounds)]
        rolled.extend(one for one, _ in taken)
        return median(seconds for _, seconds in taken), median(seconds / one for one, seconds in taken)

    # One after another, as the processes of those that are idle for a minute end.
    resident: dict[int, tuple[float, float]] = {}
    for at_once in _AT_ONCE:
        with closing(spec.agent_rollout_func(f"{command} --resident", resident=True, at_once=at_once)) as play:
            resident[at_once] = beside_rollout(play, prompts)
    # A program that is started for each episode takes seconds.
    few = prompts[: 2 * _STARTED_AT_ONCE]
    started = beside_rollout(spec.agent_rollout_func(command, at_once=_STARTED_AT_ONCE), few)
    with closing(spec.agent_rollout_func(f"{command} --resident", resident=True, compare_tokenizing=True)) as comparing:
        comparing(prompts, trainer)
    return AgentCosts(len(prompts), rounds, median(rolled), resident, started, comparing.figures)


def _seconds(play: Any, prompts: list[Any], trainer: Any) -> float:
    """Seconds of an episode."""
    began = time.perf_counter()
    play(prompts, trainer)
    return (time.perf_counter() - began) / len(prompts)
