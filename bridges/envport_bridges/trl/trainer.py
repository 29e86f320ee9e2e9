"""GRPOTrainer with resets and tool calls of different rollouts side by side, each played to the end of its episode.

TRL plays one rollout after another. But it calls the tools of all rollouts in one loop, and needs the results only in
the next loop. So a call may return a placeholder that is resolved there. TRL's loop does not know that an episode can
end, but it leaves a rollout whose tool results do not fit. So the results of a call that ended an episode are made too
long. No code of TRL's loop is copied. If it is not the loop that this was written for, the trainer is the stock one.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from trl.trainer.grpo_trainer import GRPOTrainer

from envport_bridges.rollouts.loop import quick_handover
from envport_bridges.trl.contract import trl_version
from envport_bridges.trl.internals import loop_is_known, missing_in
from envport_bridges.trl.play import Deferred, Play
from envport_bridges.trl.rollout_environment import RolloutEnvironment, play_of
from envport_bridges.trl.rows import same_episode

__all__ = ["ConcurrentGRPOTrainer", "ConcurrentRollouts"]

logger = logging.getLogger(__name__)

_NEEDED = (
    "_environment_pool",
    "_is_vlm",
    "_multi_environment",
    "_tokenizer",
    "data_collator",
    "environment_factories",
    "environments",
    "max_completion_length",
)
"""Attributes of a `GRPOTrainer` without which rollouts are not played side by side."""


# TRL's own annotations are partial, and its internals have none.
_Trainer = cast("Any", object)


class ConcurrentRollouts(_Trainer):
    """Plays the rollouts of a trainer side by side: `class MyTrainer(ConcurrentRollouts, GMPOTrainer)`.

    For `GRPOTrainer` and what inherits from it. Up to the end of each episode, where it stops, it gives the same token
    ids, masks, advantages and counts. Calls of one rollout stay in order. Vision models, and a TRL that works in
    another way, get the trainer's own behaviour, said once in the log. Control tokens in what environments show are
    text, unless `chat_template_kwargs` says otherwise. Episodes that were lost to faults are in neither the advantages
    nor the loss, whatever reward functions there are.
    """

    takes_lost_out = True

    def __init__(self, *args: Any, **kwargs: Any):
        self._side_by_side = False
        self._coming: Sequence[Mapping[str, Any]] | None = None
        stock: Any = super()
        stock.__init__(*args, **kwargs)
        # What an environment shows is data, whatever it looks like. An option that was given is kept. With a processor
        # for images, transformers refuses the option: the trainer would stop at the first picture.
        if not missing_in(self, ("chat_template_kwargs", "_is_vlm")) and not self._is_vlm:
            given: dict[str, Any] = vars(self)["chat_template_kwargs"]
            self.chat_template_kwargs: dict[str, Any] = {"sanitize_control_tokens": True, **given}
        if (why := self._why_in_turn()) is not None:
            logger.warning("episodes are played one after another, not concurrently: %s", why)
        elif self.environment_factories is not None:
            self._side_by_side = True
            if not self.args.dataloader_num_workers:
                self._collate = self.data_collator
                self.data_collator = self._note_coming

    def _why_in_turn(self) -> str | None:
        """What keeps the rollouts of environments from being played side by side."""
        if missing := missing_in(self, _NEEDED):
            return f"TRL {trl_version()} is unknown, and its trainer has no attribute {missing[0]!r}"
        classes = type(self).__mro__
        if not loop_is_known(classes[classes.index(ConcurrentRollouts) + 1 :]):
            return f"the tool loop of TRL {trl_version()} is unknown"
        if self._is_vlm and self.environment_factories is not None:
            return "a vision model needs the images at once"
        return None

    def _note_coming(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        # A loader makes a batch while the one before is being trained on, to know which one is the last.
        self._coming = rows
        return self._collate(rows)

    def _generate_and_score_completions(self, inputs: Sequence[Mapping[str, Any]]) -> Any:
        if not self._side_by_side:
            return self._stock_completions(inputs)
        coming, self._coming = self._coming, None
        self._try_to_begin(inputs)
        completions = self._stock_completions(inputs)
        # Their rewards are known: while the model is updated, the next episodes are opened.
        if coming is not None and self.model.training and not _alike(coming, inputs):
            self._try_to_begin(coming)
        return completions

    def _stock_completions(self, inputs: Sequence[Mapping[str, Any]]) -> Any:
        stock: Any = super()
        return stock._generate_and_score_completions(inputs)

    def _try_to_begin(self, inputs: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._begin_episodes(inputs)
        except (AttributeError, LookupError, TypeError):
            # The stock code opens what was not opened here.
            self._side_by_side = False
            logger.warning(
                "TRL %s keeps its environments in another way: episodes are played one after another from here on",
                trl_version(),
                exc_info=True,
            )

    def _begin_episodes(self, inputs: Sequence[Mapping[str, Any]]) -> None:
        """Open the episodes of a batch, each by the instance that the stock code is about to reset with that row."""
        used: dict[str | None, int] = {}
        for row in inputs:
            name = row.get("environment") if self._multi_environment else None
            if name not in self.environment_factories:
                return
            pool = cast("list[Any]", self._environment_pool[name])
            place = used[name] = used.get(name, -1) + 1
            if place == len(pool):
                pool.append(self.environment_factories[name]())
            if isinstance(pool[place], RolloutEnvironment):
                columns = row if not self._multi_environment else {k: v for k, v in row.items() if k != "environment"}
                play_of(pool[place]).begin(columns)

    def _tool_call_loop(self, *args: Any, **kwargs: Any) -> Any:
        stock: Any = super()
        if not self._side_by_side:
            return stock._tool_call_loop(*args, **kwargs)
        self._failures = 0
        self._ends: dict[Play, list[dict[str, Any]]] = {}
        plays = [play_of(one) if isinstance(one, RolloutEnvironment) else None for one in self.environments]
        with quick_handover(), _deferred([play for play in plays if play is not None]):
            mask, completions, ids, logprobs, calls, failures, images = stock._tool_call_loop(*args, **kwargs)
        for play, messages in zip(plays, completions, strict=True):
            # TRL took them back, as they did not fit. The model does not answer them; reward functions read them.
            messages += self._ends.get(play, []) if play is not None else []
        return mask, completions, ids, logprobs, calls, failures + self._failures, images

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> Any:
        play = self._resolve(tool_messages)
        if play is not None and play.record.outcome is not None:
            self._ends[play] = tool_messages
            return [self._tokenizer.eos_token_id] * (self.max_completion_length + 1)
        stock: Any = super()
        return stock._get_tool_suffix_ids(tool_messages)

    def _resolve(self, messages: Sequence[dict[str, Any]]) -> Play | None:
        """Wait for the results of a turn's calls; returns what played them."""
        play: Play | None = None
        for message in messages:
            if isinstance(content := message.get("content"), Deferred):
                play = content.play
                message["content"], failed = content.resolve()
                self._failures += failed
        return play


def _alike(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two batches open the same episodes, as where each is trained on several times."""
    return len(rows) == len(others) and all(map(same_episode, rows, others))


@contextmanager
def _deferred(plays: Sequence[Play]) -> Generator[None]:
    for play in plays:
        play.deferring = True
    try:
        yield
    finally:
        for play in plays:
            play.deferring = False


class ConcurrentGRPOTrainer(ConcurrentRollouts, cast("Any", GRPOTrainer)):
    """`GRPOTrainer` whose environments are reset and called side by side; takes what `GRPOTrainer` takes.

    See `ConcurrentRollouts`.
    """
