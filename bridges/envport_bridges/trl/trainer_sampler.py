"""Samples with whatever a trainer generates with: transformers, or vLLM in the same process or as a server."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from envport_bridges.agents.model.sampling import Sampled, SampleRequest, SamplingSettings
from envport_bridges.agents.model.vllm_sampler import VllmSampler

__all__ = ["TrainerSampler", "needed_to_sample", "sampler_of"]


def needed_to_sample(trainer: Any) -> tuple[str, ...]:
    """The internals of a trainer that this module leans on."""
    return "_generate_single_turn", "vllm_generation" if trainer.use_vllm else "generation_config"


class TrainerSampler:
    """A `Sampler` that has the trainer generate a batch. To be used in the trainer's thread.

    Args:
        trainer: A `GRPOTrainer`.
    """

    gathers = True

    def __init__(self, trainer: Any):
        self._trainer = trainer

    @property
    def most_ids(self) -> int | None:
        """How many ids the model can see at once, if vLLM was told to allow fewer than the model does."""
        return getattr(self._trainer.args, "vllm_max_model_length", None) if self._trainer.use_vllm else None

    def close(self) -> None:
        """Do nothing: the trainer generates on."""

    def sample(self, requests: Sequence[SampleRequest]) -> Sequence[Future[Sampled]]:
        """Generate one batch, to the largest of the requests' limits; each is cut at its own."""
        prompts = [list(request.prompt_ids) for request in requests]
        with _at_most(self._trainer, max(request.max_tokens for request in requests)):
            written, logprobs = self._trainer._generate_single_turn(prompts, None, {}, num_generations=1)
        futures: list[Future[Sampled]] = []
        for number, request in enumerate(requests):
            most = request.max_tokens
            future = Future[Sampled]()
            future.set_result(
                Sampled(list(written[number][:most]), list(logprobs[number][:most]) if logprobs is not None else None)
            )
            futures.append(future)
        return futures


@contextmanager
def _at_most(trainer: Any, tokens: int) -> Generator[None]:
    """Generate at most so many tokens: the generate call itself takes no limit."""
    holder, name = (
        (trainer.vllm_generation, "max_completion_length")
        if trainer.use_vllm
        else (trainer.generation_config, "max_new_tokens")
    )
    configured = getattr(holder, name)
    setattr(holder, name, min(tokens, configured))
    try:
        yield
    finally:
        setattr(holder, name, configured)


def sampler_of(trainer: Any) -> TrainerSampler | VllmSampler:
    """What samples for the agents of a trainer: a vLLM server, if it has one, else the trainer itself."""
    if not trainer.use_vllm or trainer.vllm_generation.mode != "server":
        return TrainerSampler(trainer)
    generation = trainer.vllm_generation
    if generation.generation_kwargs or generation.structured_outputs_regex:
        # It may be anything that vLLM knows, and only the trainer's own client passes it on.
        return TrainerSampler(trainer)
    settings = SamplingSettings(
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=max(0, generation.top_k),
        min_p=generation.min_p or 0.0,
        repetition_penalty=generation.repetition_penalty,
    )
    return VllmSampler(generation.vllm_client.base_url, settings=settings, end_ids=trainer.eos_token_ids)
