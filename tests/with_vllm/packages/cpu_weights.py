"""Has vLLM take new weights on a CPU. vLLM loads it in each of its processes that has this folder on its path.

On a CPU, vLLM packs the weights of linear layers when a model is loaded, computes with the pack, and leaves an empty
weight. New weights are then refused (in the trainer's process), or loaded to no effect (in a server, which answers that
all went well).
"""

from __future__ import annotations

from typing import Any

import torch


def keep_weights() -> None:
    """Have linear layers compute with `layer.weight`, where new weights go."""
    from vllm.model_executor.layers import utils

    if not hasattr(utils, "dispatch_cpu_unquantized_gemm"):
        raise RuntimeError("this version of vLLM packs weights in another way: see how a linear layer processes them")
    utils.dispatch_cpu_unquantized_gemm = _compute_with_the_weight


def _compute_with_the_weight(layer: Any, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear
