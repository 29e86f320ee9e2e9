"""TRL 1.15 computes its loss with Triton alone, which needs a GPU. For `make test-trl`, torch computes it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


class _LogProbs:
    """In place of TRL's kernel: the log probabilities of target tokens, without a chunk at a time."""

    @staticmethod
    def apply(
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        temperature: float,
        chunk_size: int,
        softcap: float | None,
        scale: float,
        outputs: tuple[str, ...],
    ) -> tuple[torch.Tensor | None, ...]:
        logits = torch.nn.functional.linear(hidden, weight, bias) * scale
        if softcap is not None:
            logits = softcap * torch.tanh(logits / softcap)
        every = torch.log_softmax(logits / temperature, dim=-1)
        chosen = every.gather(1, targets.unsqueeze(1)).squeeze(1)
        entropy = -(every.exp() * every).sum(dim=-1) if "entropy" in outputs else None
        return chosen, entropy, None, None, None


def compute_losses_without_triton() -> None:
    """Let a TRL that has no kernel here compute its loss."""
    utils: Any = import_module("trl.trainer.utils")
    if getattr(utils, "_ChunkedLogProbFunction", utils) is None:
        utils._ChunkedLogProbFunction = _LogProbs
