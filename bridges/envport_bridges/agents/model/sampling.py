"""The interface between the endpoint and what samples tokens: a trainer, transformers, or vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

__all__ = ["SampleRequest", "Sampled", "Sampler"]


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
