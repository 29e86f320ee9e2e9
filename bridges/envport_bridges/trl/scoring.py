"""How a trainer scores its episodes: lost ones are left out, and reward functions read the conversation as it was.

TRL's trainers have no hook between the rollouts and the rewards, so one is put around two methods of the instance. It
leans on these internals of TRL 1.16; `tests/bridges/test_trl_lost.py` fails if they change:

- `GRPOTrainer._generate` returns a tuple with the completions' token ids second and the loss mask third.
- `GRPOTrainer._calculate_rewards` returns the rewards of all processes, a row for each episode.
- `_AsyncRolloutLoop._score_group` scores one group of finished rollouts.
"""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from envport.errors import ConfigurationError
from envport_bridges.trl.contract import trl_version
from envport_bridges.trl.figures import log_figures
from envport_bridges.trl.internals import missing_in, require_internals
from envport_bridges.trl.lost import LOST_COLUMN, lost_flags
from envport_bridges.trl.outage import LOST_METRIC
from envport_bridges.trl.outage_callback import outage_callback_of
from envport_bridges.trl.prompt_check import require_tools_in_prompts
from envport_bridges.trl.rollout_environment import finish_all

__all__ = ["COMPLETION_COLUMN", "PROMPT_COLUMN", "score_for"]

logger = logging.getLogger(__name__)

PROMPT_COLUMN, COMPLETION_COLUMN = "episode_prompt", "episode_completion"
"""The columns in which a `rollout_func` hands over its conversations, as messages."""

_HOOK = "_envport_scoring"
_LEAVE_OUT = "leave lost episodes out of training"
_TEMPLATE = ("chat_template", "chat_template_kwargs", "processing_class")


def score_for(trainer: Any, *, takes_out: bool, stops: bool) -> None:
    """Keep lost episodes out of what a trainer learns from. Does nothing the second time.

    Args:
        trainer: A `GRPOTrainer`, or the rollout worker of an `AsyncGRPOTrainer`.
        takes_out: Whether lost episodes are taken out of the rewards, whatever functions gave them. If not, the run is
            stopped when a function gives a lost episode a reward.
        stops: Whether the run is stopped when most of its episodes are lost.

    Raises:
        ConfigurationError: The trainer works in a way in which that cannot be done.
    """
    if hasattr(trainer, _HOOK):
        return
    if hasattr(trainer, "_score_group"):
        setattr(trainer, _HOOK, GroupScoring(trainer))
        return
    require_internals(trainer, ("_calculate_rewards", "_generate"), _LEAVE_OUT)
    setattr(trainer, _HOOK, BatchScoring(trainer, takes_out=takes_out, stops=stops))


class BatchScoring:
    """Stands in front of two methods of a `GRPOTrainer`.

    Args:
        trainer: The trainer.
        takes_out: See `score_for`.
        stops: See `score_for`.
    """

    def __init__(self, trainer: Any, *, takes_out: bool, stops: bool):
        # A trainer that nobody holds any more is freed, and its environments with it.
        self._trainer_of = weakref.ref(trainer)
        self._takes_out = takes_out
        self._stops = stops
        self._checked = False
        trainer._generate = self._generate
        trainer._calculate_rewards = self._calculate_rewards

    @property
    def _trainer(self) -> Any:
        return self._trainer_of()

    def _generate(self, prompts: Any) -> Any:
        """Generate, and take lost episodes out of the loss. The loss mask is 1 for each token to train on."""
        generated: Any = _stock(self._trainer)._generate(self._trainer, prompts)
        if not self._checked:
            self._checked = True
            self._check(generated[0])
        finish_all(self._trainer.environments or ())
        log_figures(self._trainer, self._trainer.environments or ())
        lost = lost_flags(self._trainer.environments, {})
        if lost is None or not any(lost):
            return generated
        prompt_ids, completion_ids, given, *others = generated
        mask: list[list[int]] = given or [[1] * len(ids) for ids in completion_ids]
        mask = [[0] * len(row) if is_lost else row for row, is_lost in zip(mask, lost, strict=True)]
        return prompt_ids, completion_ids, mask, *others

    def _check(self, prompt_ids: Sequence[Sequence[int]]) -> None:
        """Check, once there is something to see, that the trainer is as it was when this was written."""
        require_internals(self._trainer, ("accelerator", "environments", "reward_func_names"), _LEAVE_OUT)
        if missing := missing_in(self._trainer, (*_TEMPLATE, "_is_vlm", "_log_metric")):
            logger.warning(
                "TRL %s is unknown, and its trainer has no %s: whether the model is shown the tools is not checked, "
                "and envport's figures may be missing from the metrics",
                trl_version(),
                ", ".join(map(repr, missing)),
            )
        if not missing_in(self._trainer, _TEMPLATE):
            require_tools_in_prompts(self._trainer, self._trainer.environments or (), prompt_ids)

    def _log(self, name: str, value: float) -> None:
        if hasattr(self._trainer, "_log_metric"):
            self._trainer._log_metric(name, value)

    def _calculate_rewards(self, inputs: Any, prompts: list[Any], completions: list[Any], completion_ids: Any) -> Any:
        """The rewards of all processes: a tensor of episodes x functions, NaN where a function gave none."""
        _warn_of_control_tokens(self._trainer)
        if inputs and COMPLETION_COLUMN in inputs[0]:
            # In place, because TRL logs these lists as well.
            prompts[:] = [row.pop(PROMPT_COLUMN) for row in inputs]
            completions[:] = [row.pop(COMPLETION_COLUMN) for row in inputs]
            self._log_tools(inputs)
        trainer = self._trainer
        try:
            rewards: Any = _stock(trainer)._calculate_rewards(trainer, inputs, prompts, completions, completion_ids)
        except BaseException:
            # Agents that stay would wait for another batch.
            getattr(getattr(trainer, "rollout_func", None), "close", _nothing)()
            raise
        columns = {LOST_COLUMN: [row[LOST_COLUMN] for row in inputs]} if inputs and LOST_COLUMN in inputs[0] else {}
        lost = lost_flags(trainer.environments, columns) or [False] * len(inputs)
        self._log(LOST_METRIC, sum(lost) / max(1, len(lost)))
        everywhere = trainer.accelerator.gather(rewards.new_tensor(lost)).bool()
        if trainer.model.training:
            outage_callback_of(trainer, stops=self._stops).count(float(everywhere.float().mean()))
        if everywhere.any():
            self._leave_out(rewards, everywhere)
        return rewards

    def _leave_out(self, rewards: Any, lost: Any) -> None:
        number = f"{int(lost.sum())} of {len(lost)} episodes were lost to faults"
        scored = (~rewards[lost].isnan()).any(dim=0).tolist()
        if any(scored) and not self._takes_out:
            names = [name for name, gave in zip(self._trainer.reward_func_names, scored, strict=True) if gave]
            raise ConfigurationError(
                f"{number}, and {_named(names)} gave them a reward: they would be trained on as if the model had "
                f"earned it. Pass reward_funcs=spec.rewards({', '.join(names)}), or use ConcurrentGRPOTrainer, which "
                "leaves lost episodes out whatever the reward functions give."
            )
        rewards[lost] = float("nan")
        logger.error("%s and are left out of training", number)

    def _log_tools(self, inputs: Sequence[dict[str, Any]]) -> None:
        """Log what TRL logs for its own tool loop only."""
        calls, failures = (sum(row[column] for row in inputs) for column in ("tool_calls", "tool_failures"))
        self._log("tools/call_frequency", calls / max(1, len(inputs)))
        self._log("tools/failure_frequency", failures / max(1, calls))


class GroupScoring:
    """Stands in front of the method of an `AsyncGRPOTrainer`'s rollout worker that scores a group.

    Reward functions are shown no environments there, but the worker has asked those for their rewards. An episode whose
    environment gave `None` was lost, and the group is scored without it.

    Args:
        worker: The rollout worker.
    """

    def __init__(self, worker: Any):
        self._worker_of = weakref.ref(worker)
        worker._score_group = self._score_group

    async def _score_group(self, group: Any) -> list[Any]:
        kept = [place for place, scored in enumerate(group.env_rewards) if scored is None or scored[1] is not None]
        total = len(group.env_rewards)
        worker: Any = self._worker_of()
        worker._push_metrics({LOST_METRIC: 1 - len(kept) / max(1, total)})
        if len(kept) < total:
            logger.error("%d of %d episodes were lost to faults and are left out of training", total - len(kept), total)
            group = _only(group, kept)
        return await _stock(worker)._score_group(worker, group) if kept else []


def _nothing() -> None:
    """What is done where there is nothing to close."""


def _stock(trainer: Any) -> Any:
    """The class, whose methods those of the instance hide."""
    return cast("Any", type(trainer))


def _only(group: Any, kept: Sequence[int]) -> Any:
    """A group of rollouts, with some of them: every list of the group has an item for each."""
    fields = {field.name: getattr(group, field.name) for field in dataclasses.fields(group)}
    lists = cast("dict[str, list[Any]]", {name: value for name, value in fields.items() if isinstance(value, list)})
    columns = cast("dict[str, list[Any]]", group.reward_kwargs)
    return dataclasses.replace(group, **_at(kept, lists), reward_kwargs=_at(kept, columns))


def _at(kept: Sequence[int], lists: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [values[place] for place in kept] for name, values in lists.items()}


def _named(names: Sequence[str]) -> str:
    return f"the reward function{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _warn_of_control_tokens(trainer: Any) -> None:
    # With a processor for images, transformers refuses the option.
    if missing_in(trainer, ("_is_vlm", "chat_template_kwargs")) or trainer._is_vlm:
        return
    if "sanitize_control_tokens" not in trainer.chat_template_kwargs:
        _warn_once_of_control_tokens()


@cache
def _warn_once_of_control_tokens() -> None:
    logger.warning(
        "control tokens in what the environment shows are taken for the chat template's own: an observation can end a "
        'turn and speak for the user. Set GRPOConfig(chat_template_kwargs={"sanitize_control_tokens": True}).'
    )
