"""A `GRPOTrainer` that also trains the chains of an agent's episode that are not its row.

TRL takes one row for each prompt. An agent that compacts its conversation, or has others work for it, has several: this
trainer adds them once the rewards are known, each with the advantage of its episode, as TRL's `AsyncGRPOTrainer` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import pad

from envport.errors import ConfigurationError
from envport_bridges.agents.model.calls import CallChain
from envport_bridges.trl.agent_rows import AddedRow

__all__ = ["AgentGRPOTrainer"]

_TOKEN_MEANS = ("cispo", "dapo", "vespo")
"""Losses that are a mean over all tokens of the batch, so that a row more does not make the others count less."""

_NOT_COMPUTED = ("old_per_token_logps", "ref_per_token_logps", "importance_sampling_ratio")
"""Columns that a batch may have, and for which added rows have no values."""


class AgentGRPOTrainer(GRPOTrainer):
    """Takes `rollout_func=spec.agent_rollout_func(..., all_chains=True)`.

    It is refused where an added row would change how much the others count (a loss that is not a mean over tokens), or
    where the batch needs log probabilities of each row (`beta`, `num_iterations` above 1, vLLM's importance sampling).
    """

    trains_all_chains = True

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)  # pyright: ignore[reportUnknownMemberType]
        if getattr(self.rollout_func, "all_chains", False):
            _require_mean_over_tokens(self)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        trainer: Any = self
        added = [row for row in getattr(trainer.rollout_func, "added", ()) if not _is_left_out(row.chain, trainer)]
        if not added or not trainer.model.training:
            return batch
        if computed := [key for key in _NOT_COMPUTED if key in batch]:
            raise ConfigurationError(
                f"all_chains=True does not work here: this batch needs {', '.join(computed)} of each row. Set beta=0, "
                "num_iterations=1 and vllm_importance_sampling_correction=False, and let one generation serve no more "
                "than one optimizer step (steps_per_generation at most gradient_accumulation_steps)."
            )
        return _with_rows(batch, _filled(added, len(batch["prompt_ids"]), trainer.args.steps_per_generation), trainer)


def _require_mean_over_tokens(trainer: Any) -> None:
    if trainer.loss_type not in _TOKEN_MEANS:
        raise ConfigurationError(
            f"all_chains=True does not work with loss_type={trainer.loss_type!r}: further rows of an episode would "
            f"change how much the others count. Allowed: {', '.join(map(repr, _TOKEN_MEANS))}."
        )


def _is_left_out(chain: CallChain, trainer: Any) -> bool:
    """Whether the trainer masks rows like this one, because they were cut."""
    ends = (*trainer.eos_token_ids, trainer._tokenizer.pad_token_id)
    return trainer.mask_truncated_completions and chain.completion_ids[-1] not in ends


def _filled(added: Sequence[AddedRow], rows: int, steps: int) -> list[AddedRow | None]:
    """The added rows, and empty ones so that the batch still divides into steps."""
    missing = -(rows + len(added)) % steps
    return [*added, *[None] * missing]


def _logprobs(chain: CallChain) -> list[float]:
    # The trainer has `None` where vLLM knows none.
    known = cast("Sequence[float | None]", chain.logprobs or [0.0] * len(chain.mask))
    return [math.nan if value is None else value for value in known]


def _with_rows(batch: dict[str, Any], added: Sequence[AddedRow | None], trainer: Any) -> dict[str, Any]:
    end: int = trainer._tokenizer.pad_token_id
    chains = [row.chain if row is not None else None for row in added]

    def put(key: str, ids: Callable[[CallChain], list[Any]], empty: list[Any], side: str, value: int) -> None:
        rows = list(batch[key])
        rows += [torch.tensor(ids(chain) if chain else empty, dtype=rows[0].dtype) for chain in chains]
        batch[key] = pad([row.cpu() for row in rows], padding_value=value, padding_side=side).to(batch[key].device)

    put("prompt_ids", lambda chain: chain.prompt_ids, [end], "left", end)
    put("prompt_mask", lambda chain: [1] * len(chain.prompt_ids), [1], "left", 0)
    put("completion_ids", lambda chain: chain.completion_ids, [end], "right", end)
    put("completion_mask", lambda chain: [1] * len(chain.completion_ids), [1], "right", 0)
    put("tool_mask", lambda chain: chain.mask, [0], "right", 1)
    if "sampling_per_token_logps" in batch:
        put("sampling_per_token_logps", _logprobs, [0.0], "right", 0)
    places = torch.tensor([row.place if row is not None else 0 for row in added], device=batch["advantages"].device)
    batch["advantages"] = torch.cat([batch["advantages"], batch["advantages"][places]])
    trained = torch.tensor(float(sum(chain.trained for chain in chains if chain)), device=trainer.accelerator.device)
    batch["num_items_in_batch"] = batch["num_items_in_batch"] + trainer.accelerator.gather(trained).sum().to(
        batch["num_items_in_batch"].dtype
    )
    return batch
