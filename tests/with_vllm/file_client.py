"""TRL's client of a vLLM server, with weights that travel by a file: TRL's own way is NCCL, which needs CUDA."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from trl.generation.vllm_client import VLLMClient


class FileClient(VLLMClient):
    """Writes the weights, and has the server on this machine load them."""

    def init_communicator(self, device: Any = 0) -> None:
        self._folder = tempfile.TemporaryDirectory()

    def update_named_params(self, metadata: Any, named_params: Iterable[tuple[str, torch.Tensor]]) -> None:
        tensors = {name: weight.detach().cpu().contiguous().clone() for name, weight in named_params}
        save_file(tensors, Path(self._folder.name, "model.safetensors"))
        load = {"method": "reload_weights", "kwargs": {"weights_path": self._folder.name}}
        self._post(f"{self.base_url}/collective_rpc", json=load)


class ForgetfulClient(FileClient):
    """Sends the first weights, and none after that, as if they got lost on the way."""

    _sent = False

    def update_named_params(self, metadata: Any, named_params: Iterable[tuple[str, torch.Tensor]]) -> None:
        if not self._sent:
            super().update_named_params(metadata, named_params)
        self._sent = True
