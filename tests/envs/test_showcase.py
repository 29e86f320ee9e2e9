"""The showcase shows what it says it shows."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opening import open_episode

from envport.episodes import CallResult, Episode, Episodes
from envport.errors import EpisodeFailed, InvalidArguments
from envport.registry import load


@asynccontextmanager
async def showcase(reference: str = "showcase") -> AsyncIterator[Episode]:
    episodes = Episodes({"showcase": load(reference)})
    async with episodes.run():
        yield await open_episode(episodes, "showcase", seed=1)


async def call(episode: Episode, tool: str, **arguments: Any) -> CallResult:
    return await episode.call(tool, arguments)


async def test_every_kind_of_content_is_shown() -> None:
    kinds: dict[str, list[str]] = {}
    async with showcase() as episode:
        for tool in ("text", "image", "audio", "link", "resource", "mixed", "nothing"):
            result = await call(episode, f"show_{tool}")
            kinds[tool] = [block["type"] for block in result.observation.content]
        structured = await call(episode, "list_notes")
        assert structured.observation.structured_content == {"notes": [], "total": 0}
    assert kinds == {
        "text": ["text"],
        "image": ["image"],
        "audio": ["audio"],
        "link": ["resource_link"],
        "resource": ["resource"],
        "mixed": ["text", "image", "text"],
        "nothing": [],
    }


async def test_the_image_and_the_tone_are_real() -> None:
    async with showcase() as episode:
        sound = base64.b64decode((await call(episode, "show_audio")).observation.content[0]["data"])
        with wave.open(io.BytesIO(sound)) as tone:
            assert (tone.getnframes(), tone.getframerate()) == (400, 8000)
        pillow = pytest.importorskip("PIL.Image")
        shown = (await call(episode, "show_image", colour="green")).observation.content[0]
        image = pillow.open(io.BytesIO(base64.b64decode(shown["data"])))
        assert (image.size, image.getpixel((0, 0))) == ((8, 8), (40, 180, 80))


TRIP = {"start": "2024-02-29", "stops": [{"place": "Köln", "nights": 2, "arrival": "12:30:00"}, {"place": "Bonn"}]}


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("choose", {"size": "small"}, '{"size": "small", "level": 2, "colours": []}'),
        ("choose", {"size": "large", "level": 3, "colours": ["red"]}, '"colours": ["red"]'),
        ("measure", {"amount": 1e-5}, "AB-123: 1.000e-04"),
        ("measure", {"amount": 1e-6, "times": 5, "code": "XY-001", "comment": "hm"}, "XY-001: 5.000e-06 (hm)"),
        ("plan", {"trip": {**TRIP, "budget": [9.5, "EUR"], "tickets": {"adult": 2}}}, "3 nights from 29 February 2024"),
        ("plan", {"trip": TRIP, "urgent": True}, "Now: 3 nights"),
        ("either", {"value": 1}, "int"),
        ("either", {"value": "1"}, "str"),
        ("either", {"value": [1, 2.5]}, "list"),
        ("either", {"value": None}, "NoneType"),
        (
            "count_nodes",
            {"tree": {"value": 1, "children": [{"value": 2}, {"value": 3, "children": [{"value": 4}]}]}},
            "4",
        ),
        ("from", {"value": 7}, "7"),
    ],
)
async def test_every_kind_of_argument_gets_through(tool: str, arguments: dict[str, Any], said: str) -> None:
    async with showcase() as episode:
        assert said in (await call(episode, tool, **arguments)).observation.text


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("choose", {"size": "tiny"}, '"small", "medium", "large"'),
        ("choose", {"size": "small", "level": 4}, "1, 2, 3"),
        ("choose", {"size": "small", "colours": ["blue"]}, '"red", "amber", "green"'),
        ("measure", {"amount": 0}, "above 0, at most 1e-05"),
        ("measure", {"amount": 1e-6, "times": 7}, "a multiple of 5"),
        ("measure", {"amount": 1e-6, "code": "AB-1234"}, "matching"),
        ("plan", {"trip": {**TRIP, "start": "2023-02-29"}}, "'trip' at start"),
        ("plan", {"trip": {**TRIP, "stops": []}}, "'trip' at stops"),
        ("plan", {"trip": {**TRIP, "budget": [1, "GBP"]}}, "'trip' at budget"),
        ("either", {"value": 1.5}, "an integer or a string or an array"),
        ("count_nodes", {"tree": {"value": 1, "children": [{}]}}, "'tree' at children.0.value"),
    ],
)
async def test_every_kind_of_bad_argument_is_refused_in_words(
    tool: str, arguments: dict[str, Any], complaint: str
) -> None:
    async with showcase() as episode:
        with pytest.raises(InvalidArguments) as caught:
            await call(episode, tool, **arguments)
        assert complaint in str(caught.value)
        assert episode.live


async def test_hints_say_what_is_true() -> None:
    async with showcase() as episode:
        before = (await call(episode, "list_notes")).observation
        for name, spec in episode.spec.tools.items():
            if spec.hints.read_only and "required" not in spec.input_schema:
                await call(episode, name)
        assert (await call(episode, "list_notes")).observation == before
        assert [name for name, spec in episode.spec.tools.items() if spec.hints.open_world] == ["python_version"]
        assert [name for name, spec in episode.spec.tools.items() if spec.hints.destructive] == [
            "clear_notes",
            "crash",
            "finish",
            "cut_off",
        ]


async def test_notes_are_kept_listed_and_thrown_away() -> None:
    async with showcase() as episode:
        for text in ("one", "two"):
            await call(episode, "add_note", text=text)
        listed = (await call(episode, "list_notes")).observation.structured_content
        assert listed == {"notes": [{"step": 1, "text": "one"}, {"step": 2, "text": "two"}], "total": 2}
        await call(episode, "clear_notes")
        assert (await call(episode, "list_notes")).observation.structured_content == {"notes": [], "total": 0}


async def test_progress_is_reported_in_order() -> None:
    told: list[tuple[float, float | None, str | None]] = []

    def progress(progress: float, total: float | None = None, message: str | None = None) -> None:
        told.append((progress, total, message))

    async with showcase() as episode:
        await episode.call("count_down", {"start": 3}, progress)
        assert told == [(1, 3, "3"), (2, 3, "2"), (3, 3, "1")]
        assert (await call(episode, "count_down", start=3)).observation.text == "Lift-off!"


async def test_rewards_and_both_ways_to_end() -> None:
    async with showcase() as episode:
        assert (await call(episode, "score", points=-0.5)).reward == -0.5
        result = await call(episode, "finish")
        assert (result.terminated, result.truncated, episode.reward) == (True, False, 0.5)
    async with showcase() as episode:
        result = await call(episode, "cut_off")
        assert (result.terminated, result.truncated, episode.reward) == (False, True, None)


async def test_refusing_and_crashing() -> None:
    async with showcase() as episode:
        result = await call(episode, "refuse", reason="No, thank you.")
        assert (result.is_error, result.observation.text) == (True, "No, thank you.")
        assert (await call(episode, "crash")).is_error
        assert episode.live
    async with showcase("showcase?faults=true") as episode:
        with pytest.raises(EpisodeFailed) as caught:
            await call(episode, "crash")
        assert "inside-detail" not in str(caught.value)
        assert episode.status == "failed"


def test_faults_do_not_change_the_listing() -> None:
    assert load("showcase?faults=true").fingerprint == load("showcase").fingerprint
