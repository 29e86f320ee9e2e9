"""Samplers whose every answer is known: what they were asked, and what they wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from envport_bridges.agents.model.sampling import Sampled, SampleRequest

Writer = Callable[[Sequence[int], int], list[int]]
"""What is written after a context, given how many tokens there is room for."""


@dataclass
class ScriptedSampler:
    """Samples what a function writes, and keeps it all.

    Attributes:
        write: The function.
        gathers: See `Sampler`.
        log: Every context, with what was sampled in it.
        batches: How many requests each batch had.
    """

    write: Writer
    gathers: bool = False
    log: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    def sample(self, requests: Sequence[SampleRequest]) -> list[Future[Sampled]]:
        self.batches.append(len(requests))
        return [self._sampled(request) for request in requests]

    def _sampled(self, request: SampleRequest) -> Future[Sampled]:
        ids = self.write(request.prompt_ids, request.max_tokens)
        self.log.append((tuple(request.prompt_ids), tuple(ids)))
        future: Future[Sampled] = Future()
        future.set_result(Sampled(ids, [-float(one % 7) for one in ids]))
        return future
