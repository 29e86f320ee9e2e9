"""How a saved model is served."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from envport.errors import InvalidOption
from envport_bridges.agents.model.sampling import SamplingSettings

__all__ = ["ServedModelSettings"]

_TEXT = (str, "a text")
_NUMBER = ((int, float), "a number")
_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "device": _TEXT,
    "dtype": _TEXT,
    "vllm": _TEXT,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "chat_template_kwargs": (dict, "a JSON object"),
}


@dataclass(frozen=True)
class ServedModelSettings:
    """How a saved model is served.

    Attributes:
        device: Where it runs, as torch names it.
        dtype: Type of its weights, as torch names it; `auto` for that in which it was saved.
        max_tokens: Most tokens of a conversation after its first context, as GRPO's `max_completion_length`; no limit
            but the model's if not given.
        temperature: What the logits are divided by; 0 takes the most probable token.
        top_p: The most probable tokens that together have this probability are chosen from.
        top_k: As many of the most probable tokens are chosen from; 0 for all.
        seed: Seed of the samples; chance if not given.
        vllm: Address of a vLLM server that samples; the model is not loaded here then.
        chat_template_kwargs: Variables of the chat template, as in GRPO's `chat_template_kwargs`.
    """

    device: str = "cpu"
    dtype: str = "auto"
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    vllm: str | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Read settings that were given by name.

        Raises:
            InvalidOption: There is no such setting, or its value has another type.
        """
        names = [field.name for field in fields(cls)]
        for name, value in given.items():
            if name not in names:
                raise InvalidOption(f"a served model has no setting {name!r}; it has {', '.join(names)}")
            wanted, called = _TYPES.get(name, (int, "a whole number"))
            if isinstance(value, bool) or not isinstance(value, wanted):
                raise InvalidOption(f"{name} is {value!r}; it has to be {called}")
        return cls(**given)

    def __post_init__(self):
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidOption(f"max_tokens is {self.max_tokens}; it has to be at least 1")

    @property
    def sampling(self) -> SamplingSettings:
        """How tokens are chosen."""
        return SamplingSettings(self.temperature, self.top_p, self.top_k)

    @property
    def told(self) -> dict[str, Any]:
        """The settings that change what the model answers, for whoever compares two evaluations."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "max_conversation_tokens": self.max_tokens,
            "chat_template_kwargs": json.dumps(self.chat_template_kwargs, sort_keys=True)
            if self.chat_template_kwargs
            else None,
        }
