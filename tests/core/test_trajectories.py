"""Trajectories are kept as they happen, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from envport.tools.content import text_observation
from envport.trajectories import EpisodeSnapshot, MemoryTrajectories, Totals
from envport.types import Observation, StepRecord


def unused() -> EpisodeSnapshot:
    raise AssertionError("memory keeps no more than the calls")


def record(index: int, observation: Observation | None = None, **fields: Any) -> StepRecord:
    made = observation or text_observation(f"seen {index}")
    return StepRecord(index=index, tool="act", **{"arguments": {}, "observation": made, **fields})


async def test_calls_are_kept_in_order() -> None:
    store = MemoryTrajectories()
    await store.begin("a", text_observation("first"), unused)
    for index in range(1, 4):
        await store.append("a", record(index), Totals())
    first, records, dropped = await store.read("a")
    assert first.text == "first"
    assert [one.index for one in records] == [1, 2, 3]
    assert dropped == 0


async def test_episodes_do_not_mix_and_are_forgotten() -> None:
    store = MemoryTrajectories()
    for name in "ab":
        await store.begin(name, text_observation(name), unused)
        await store.append(name, record(1, text_observation(name)), Totals())
    store.forget("a")
    store.forget("never was")
    assert await store.read("a") == (Observation(), [], 0)
    assert (await store.read("b"))[1][0].observation.text == "b"


async def test_what_comes_after_forgetting_is_not_kept() -> None:
    store = MemoryTrajectories()
    await store.append("a", record(1), Totals())
    assert (await store.read("a"))[1] == []


async def test_beginning_again_starts_over() -> None:
    store = MemoryTrajectories(max_records=1)
    await store.begin("a", text_observation("one"), unused)
    await store.append("a", record(1), Totals())
    await store.append("a", record(2), Totals())
    await store.begin("a", text_observation("two"), unused)
    first, records, dropped = await store.read("a")
    assert (first.text, list(records), dropped) == ("two", [], 0)


async def test_the_latest_calls_are_kept_by_number() -> None:
    store = MemoryTrajectories(max_records=3)
    await store.begin("a", Observation(), unused)
    for index in range(10):
        await store.append("a", record(index), Totals())
    _, records, dropped = await store.read("a")
    assert [one.index for one in records] == [7, 8, 9]
    assert dropped == 7


BIG = "x" * 10_000


@pytest.mark.parametrize(
    "fields",
    [
        {"observation": text_observation(BIG)},
        {"observation": Observation(content=({"type": "image", "data": BIG, "mimeType": "image/png"},))},
        {"observation": Observation(content=({"type": "resource", "resource": {"uri": "a:b", "blob": BIG}},))},
        {"observation": Observation(structured_content={"deep": [{"er": BIG}]})},
        {"arguments": {"text": BIG}},
        {"arguments": {"list": ["x" * 100] * 100}},
        {"info": {"log": [BIG]}},
    ],
    ids=["text", "image", "resource", "structured", "argument", "nested argument", "info"],
)
async def test_the_latest_calls_are_kept_by_size_wherever_the_size_is(fields: dict[str, Any]) -> None:
    store = MemoryTrajectories(max_bytes=50_000)
    await store.begin("a", Observation(), unused)
    for index in range(100):
        await store.append("a", record(index, **fields), Totals())
    _, records, dropped = await store.read("a")
    assert 1 <= len(records) <= 5
    assert records[-1].index == 99
    assert dropped == 100 - len(records)


async def test_a_call_larger_than_the_bound_is_kept_alone() -> None:
    store = MemoryTrajectories(max_bytes=1000)
    await store.begin("a", Observation(), unused)
    await store.append("a", record(1), Totals())
    await store.append("a", record(2, text_observation(BIG)), Totals())
    assert [one.index for one in (await store.read("a"))[1]] == [2]


async def test_the_oldest_episodes_make_room_for_the_latest():
    store = MemoryTrajectories(max_total_bytes=2_000)
    for episode in "abc":
        await store.begin(episode, Observation(), unused)
        for index in range(5):
            await store.append(episode, record(index + 1), Totals())
    kept = {episode: len((await store.read(episode))[1]) for episode in "abc"}
    dropped = {episode: (await store.read(episode))[2] for episode in "abc"}
    assert kept["c"] == 5
    assert kept["a"] == 0
    assert all(kept[episode] + dropped[episode] == 5 for episode in "abc")
    await store.append("a", record(6), Totals())
    assert len((await store.read("a"))[1]) == 1
    store.forget("c")
    for index in range(5):
        await store.append("a", record(index + 7), Totals())
    assert len((await store.read("a"))[1]) == 6


async def test_half_a_character_in_an_argument_can_be_read_back():
    store = MemoryTrajectories()
    await store.begin("a", Observation(), unused)
    await store.append(
        "a", StepRecord(index=1, tool="say", arguments={"text": "x\ud800y"}, observation=Observation()), Totals()
    )
    (kept,) = (await store.read("a"))[1]
    assert kept.arguments == {"text": "x�y"}
