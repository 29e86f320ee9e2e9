"""The interface between the endpoint and what samples tokens: a trainer, transformers, or vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from envport.errors import EnvportError, InvalidOption

__all__ = ["SampleRequest", "Sampled", "Sampler", "SamplerFailed", "SamplerTimeout", "SamplingSettings"]


class SamplerFailed(EnvportError):
    """A sampler gave no tokens. This is a fault of the infrastructure, never of the agent that asked."""

    code = "sampler_failed"


class SamplerTimeout(SamplerFailed):
    """A sampler gave no tokens in time."""

    code = "sampler_timeout"


@dataclass(frozen=True)
class SamplingSettings:
    """How tokens are chosen. The defaults are those of GRPO: the model's own distribution.

    Attributes:
        temperature: What the logits are divided by; 0 takes the most probable token.
        top_p: The most probable tokens that together have this probability are chosen from; 1 for all.
        top_k: As many of the most probable tokens are chosen from; 0 for all.
        min_p: Tokens that are less probable than this share of the most probable one are not chosen; 0 for all.
        repetition_penalty: Makes tokens less probable that came before; 1 for none.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self):
        for name, value, allowed, text in (
            ("temperature", self.temperature, self.temperature >= 0, "at least 0"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("top_k", self.top_k, self.top_k >= 0, "at least 0"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "from 0 to 1"),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0, "above 0"),
        ):
            if not allowed:
                raise InvalidOption(f"{name} is {value}; it has to be {text}")


@dataclass(frozen=True)
class SampleRequest:
    """A context to continue.

    Attributes:
        prompt_ids: Token ids of the context.
        max_tokens: Most tokens to sample, at least 1.
    """

    prompt_ids: Sequence[int]
    max_tokens: int


@dataclass(frozen=True)
class Sampled:
    """What was sampled.

    Attributes:
        ids: Token ids, with the token that ended the turn if one did.
        logprobs: The log probability of each of them, if the sampler knows it.
    """

    ids: list[int]
    logprobs: list[float] | None = None


class Sampler(Protocol):
    """Samples continuations. Its methods are called from one thread only."""

    @property
    def gathers(self) -> bool:
        """Whether requests are best sampled together, so that it is worth waiting some milliseconds for more of them.

        A sampler that works on all of its requests at once, whenever they come, need not.
        """
        ...

    def sample(self, requests: Sequence[SampleRequest]) -> Sequence[Future[Sampled]]:
        """Begin to sample a continuation of each request, or sample them all before returning.

        Returns:
            A future for each request, in their order. What one raises reaches the agent as an error of the server, and
            ends training; see `ModelDesk`.
        """
        ...
