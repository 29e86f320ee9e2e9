"""Tokens that a vLLM server samples, against a server that speaks as it does; `with_vllm` has the real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from patience import patient
from vllm_wire import MODEL, MOST_IDS, vllm_wire

from envport.errors import InvalidOption
from envport_bridges.agents.model.sampling import (
    Sampled,
    SampleRequest,
    SamplerFailed,
    SamplerTimeout,
    SamplingSettings,
)
from envport_bridges.agents.model.vllm_sampler import VllmSampler


@contextmanager
def sampling(url: str, **options: Any) -> Iterator[VllmSampler]:
    sampler = VllmSampler(url, **options)
    try:
        yield sampler
    finally:
        sampler.close()


def of_one(sampler: VllmSampler, ids: list[int], max_tokens: int = 8) -> Sampled:
    (future,) = sampler.sample([SampleRequest(ids, max_tokens)])
    return future.result(patient(20))


def test_ids_go_there_and_come_back_with_their_log_probabilities():
    settings = SamplingSettings(temperature=0.7, top_p=0.9, top_k=20, min_p=0.1, repetition_penalty=1.1)
    with vllm_wire(lambda body: [3, 2]) as server, sampling(f"{server.url}/v1", settings=settings, end_ids=[2]) as made:
        assert of_one(made, [5, 6, 7], 9) == Sampled([3, 2], [-0.375, -0.25])
        assert (made.model, made.most_ids, made.gathers) == (MODEL, MOST_IDS, False)
        (body,) = server.bodies
    assert isinstance(body.pop("seed"), int)
    assert body == {
        "model": MODEL,
        "prompt": [5, 6, 7],
        "max_tokens": 9,
        "n": 1,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "stop_token_ids": [2],
        "logprobs": 0,
        "return_token_ids": True,
    }


def test_no_request_waits_for_another():
    late = threading.Event()

    def script(body: dict[str, Any]) -> list[int]:
        if body["prompt"] == [1]:
            assert late.wait(patient(20))
        return body["prompt"]

    with vllm_wire(script) as server, sampling(server.url) as made:
        slow, quick = made.sample([SampleRequest([1], 4), SampleRequest([2], 4)])
        assert quick.result(patient(20)).ids == [2]
        assert of_one(made, [3]).ids == [3]
        assert not slow.done()
        late.set()
        assert slow.result(patient(20)).ids == [1]


def test_every_request_has_a_seed_of_its_own_and_all_follow_from_one():
    seeds: list[list[int]] = []
    with vllm_wire(lambda body: [1]) as server:
        for seed in (4, 4, None):
            with sampling(server.url, seed=seed) as made:
                for future in made.sample([SampleRequest([n], 1) for n in range(3)]):
                    future.result(patient(20))
            seeds.append(sorted(body["seed"] for body in server.bodies[-3:]))
    assert len(set(seeds[0])) == 3
    assert seeds[0] == seeds[1] != seeds[2]


def test_an_answer_that_takes_too_long_is_told_apart():
    never = threading.Event()

    def script(body: dict[str, Any]) -> list[int]:
        never.wait(patient(20))
        return [1]

    with vllm_wire(script) as server, sampling(server.url, seconds=0.2) as made:
        with pytest.raises(SamplerTimeout, match=r"no answer from .* within 0.2 seconds"):
            of_one(made, [1])
        never.set()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (lambda body: (400, "prompt is too long"), "answered with 400: .*prompt is too long"),
        (lambda body: (500, "out of memory"), "answered with 500: .*out of memory"),
        (lambda body: {"text": "hello"}, "does not answer with token ids and log probabilities"),
        (lambda body: [], "answered with 0 tokens and 0 log probabilities"),
    ],
)
def test_a_server_that_gives_no_tokens_is_a_failure(script: Any, why: str):
    with (
        vllm_wire(script) as server,
        sampling(server.url, patience=0.1) as made,
        pytest.raises(SamplerFailed, match=why),
    ):
        of_one(made, [1])


def test_a_server_that_is_being_started_is_waited_for():
    answers = iter([(503, "starting"), (503, "starting"), [7]])
    with vllm_wire(lambda body: next(answers)) as server, sampling(server.url, patience=patient(20)) as made:
        assert of_one(made, [1]).ids == [7]


def test_a_server_that_is_gone_is_a_failure():
    with vllm_wire(lambda body: [1]) as server:
        made = VllmSampler(server.url, patience=0.1)
    with pytest.raises(SamplerFailed, match="no answer from "):
        of_one(made, [1])
    made.close()
    with pytest.raises(SamplerFailed, match="no answer from "):
        VllmSampler(server.url)


def test_the_key_of_the_server_is_sent():
    with vllm_wire(lambda body: [1]) as server, sampling(server.url, key="a-key") as made:
        of_one(made, [1])
        assert server.keys == ["Bearer a-key"]


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -0.1, "at least 0"),
        ("top_p", 0.0, "above 0 and at most 1"),
        ("top_p", 1.5, "above 0 and at most 1"),
        ("top_k", -1, "at least 0"),
        ("min_p", 1.1, "from 0 to 1"),
        ("repetition_penalty", 0.0, "above 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(name: str, value: float, allowed: str):
    with pytest.raises(InvalidOption, match=f"{name} is {value}; it has to be {allowed}"):
        SamplingSettings(**{name: value})
