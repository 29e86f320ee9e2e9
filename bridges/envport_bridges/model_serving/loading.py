"""Loads a saved model, so that it can answer requests: its chat format as in training, and a sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from envport.errors import InvalidOption, MissingExtra
from envport_bridges.agents.model.chat import ChatFormat
from envport_bridges.agents.model.sampling import Sampler, SamplerFailed
from envport_bridges.agents.model.transformers_sampler import (
    TransformersSampler,
    load_configuration,
    load_model,
    load_tokenizer,
    weights_fingerprint,
)
from envport_bridges.agents.model.vllm_sampler import VllmSampler
from envport_bridges.model_serving.settings import ServedModelSettings

__all__ = ["ServedModel"]


@dataclass(frozen=True)
class ServedModel:
    """A model that is ready to answer.

    Attributes:
        name: The name of its folder, or its name on the hub.
        weights: The fingerprint of its weights; `None` if they are elsewhere.
        chat: Its chat format.
        sampler: What samples.
        settings: How it is served.
        close: Ends the sampler.
    """

    name: str
    weights: str | None
    chat: ChatFormat
    sampler: Sampler
    settings: ServedModelSettings
    close: Callable[[], None] = lambda: None

    @classmethod
    def load(cls, model: str, settings: ServedModelSettings, vllm_key: str | None = None) -> ServedModel:
        """Load a model.

        Args:
            model: A folder, or a name on the hub.
            settings: How it is served.
            vllm_key: The API key of the vLLM server.

        Raises:
            InvalidOption: It cannot be loaded, or the vLLM server does not answer; the message says why.
            ConfigurationError: Agents cannot be served with its chat template.
            MissingExtra: The extra `trl` is not installed.
        """
        if find_spec("trl") is None:
            raise MissingExtra("Serving a model", "trl")
        # Refuse first what can be told without the libraries, which take seconds to import.
        sampling = settings.sampling
        if model.startswith((".", "/", "~")) and not Path(model).exists():
            raise InvalidOption(f"there is no folder {model}; it has to be a saved model, or a name on the hub")
        name = Path(model).resolve().name if Path(model).exists() else model
        tokenizer = load_tokenizer(model)
        # Before the weights are loaded, which takes longest.
        chat: Any = _chat_formats().of_model(
            tokenizer, *load_configuration(model), template_settings=settings.chat_template_kwargs or {}
        )
        if settings.vllm is not None:
            return cls._at_vllm(name, chat, settings, settings.vllm, vllm_key)
        loaded = load_model(model, device=settings.device, dtype=settings.dtype)
        sampler = TransformersSampler(
            loaded, end_ids=chat.end_ids, pad_id=_pad_id(tokenizer), settings=sampling, seed=settings.seed
        )
        return cls(name, weights_fingerprint(loaded), chat, sampler, settings)

    @classmethod
    def _at_vllm(cls, name: str, chat: Any, settings: ServedModelSettings, url: str, key: str | None) -> ServedModel:
        try:
            sampler = VllmSampler(url, settings=settings.sampling, end_ids=chat.end_ids, seed=settings.seed, key=key)
        except SamplerFailed as error:
            raise InvalidOption(f"vllm is {url!r}, and cannot be used: {error}") from error
        if sampler.most_ids is not None:
            chat = replace(chat, most_ids=min(chat.most_ids, sampler.most_ids))
        return cls(name, None, chat, sampler, settings, sampler.close)

    @property
    def description(self) -> Mapping[str, Any]:
        """What evaluations are told of it."""
        return {
            "name": self.name,
            "weights": self.weights,
            "sampler": "vllm" if self.settings.vllm is not None else "transformers",
            "settings": self.settings.told,
        }


def _chat_formats() -> Any:
    # Imported only here: TRL takes seconds.
    return import_module("envport_bridges.trl.chat_format").ChatTemplateFormat


def _pad_id(tokenizer: Any) -> int:
    found = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return int(found or 0)
