"""Environments of OpenEnv servers by `openenv:URL`: the servers of two releases, each in a virtual environment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openenv_releases import NEW, OLD, RELEASES, Released, released, until
from opening import close_episode, open_episode

from envport.checker import check_environment
from envport.episodes import Episode, Episodes, OpenRequest
from envport.errors import (
    AtCapacity,
    ConfigurationError,
    EpisodeFailed,
    InvalidArguments,
    InvalidOption,
    InvalidRequest,
)
from envport.registry import load
from envport.types import Task


@pytest.fixture(scope="module", params=RELEASES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    with released(request.param, tmp_path_factory.mktemp("openenv")) as running:
        yield running


@asynccontextmanager
async def table(url: str, settings: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Episodes]:
    definition = load(f'openenv:"{url}"', "it", options=options)
    episodes = Episodes({"it": definition}, **(settings or {}))
    async with episodes.run():
        yield episodes


def first(episode: Episode) -> dict[str, Any]:
    data = episode.first_observation.structured_content
    assert data is not None
    return data


async def test_an_episode_is_a_session_with_its_seed_rewards_and_end(server: Released) -> None:
    async with table(f"{server.url}/guess", splits=[]) as episodes:
        tool = episodes.environment("it").listing[0]
        assert (tool["name"], tool["description"]) == ("step", "Guess the number.")
        assert list(tool["inputSchema"]["properties"]) == ["number", "how", "note"]
        assert tool["inputSchema"]["required"] == ["number"]
        one, same = [await open_episode(episodes, "it", seed=2**40 + 5) for _ in range(2)]
        other = await open_episode(episodes, "it", seed=6)
        told = [episode.first_observation.structured_content for episode in (one, same, other)]
        assert told[0] == told[1] != told[2]
        assert told[2] == {"hint": "guess", "inside": {"seed": 6}}
        assert server.alive() == 3
        rewards: list[float | None] = []
        for number in range(10):
            result = await one.call("step", {"number": number})
            rewards.append(result.reward)
            if result.terminated:
                break
        assert result.observation.structured_content["hint"] == "right"  # pyright: ignore
        # The reward of the reset is paid with the first step.
        assert rewards == [*[-0.25, *[-0.5] * 9][:number], 1.0 if number else 1.25]
        assert one.outcome is not None
        assert one.outcome.reason == "terminated"
        await close_episode(episodes, same)
        await close_episode(episodes, other)
        await until(lambda: server.alive() == 0)


async def test_pictures_and_nested_data_are_kept(server: Released) -> None:
    options = {"hidden": ["metadata"], "splits": [], "arguments": {"level": 3}}
    async with table(f"{server.url}/guess", **options) as episodes:
        episode = await open_episode(episodes, "it", seed=1)
        assert first(episode)["inside"] == {"seed": 1, "level": 3}
        seen = (await episode.call("step", {"number": 0, "how": "quietly"})).observation
        assert [block["type"] for block in seen.content] == ["text", "image", "image"]
        assert {block["mimeType"] for block in seen.content[1:]} == {"image/png"}
        text = seen.content[0]["text"]
        assert '"views": [{"frame": "<picture 1>"}]' in text
        assert '"pixels": "<picture 2>"' in text
        assert '"board": [[0, 1], [1, 0]]' in text
        assert "tried" not in text
    assert server.alive() == 0


async def test_a_refused_action_is_told_and_an_exception_is_a_fault(server: Released) -> None:
    async with table(f"{server.url}/guess") as episodes:
        episode = await open_episode(episodes, "it", seed=1)
        with pytest.raises(InvalidArguments):
            await episode.call("step", {"number": 10})
        refused = await episode.call("step", {"number": 0, "note": "too long"})
        assert refused.is_error
        assert "note: a note has at most 5 letters" in refused.observation.text
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call("step", {"number": 0, "note": "boom"})
        assert "dice" not in str(failed.value)
        assert episode.outcome is not None
        assert episode.info().reward is None
        assert (episode.outcome.reason, episode.outcome.fault) == ("environment_error", "environment")
    async with table(f"{server.url}/guess", exceptions="refusal") as episodes:
        episode = await open_episode(episodes, "it", seed=1)
        refused = await episode.call("step", {"number": 0, "note": "boom"})
        assert refused.is_error
        assert refused.observation.text == "the dice are lost"
        assert not (await episode.call("step", {"number": 0})).is_error
    assert server.alive() == 0


@pytest.mark.parametrize("path", ["tools", "bare"])
async def test_the_environment_s_own_tools_are_the_tools(path: str, server: Released) -> None:
    async with table(f"{server.url}/{path}") as episodes:
        listing = {tool["name"]: tool for tool in episodes.environment("it").listing}
        assert list(listing) == ["add", "picture", "refuse"]
        assert listing["add"]["description"] == "Add a number."
        assert listing["add"]["inputSchema"] == {
            "type": "object",
            "additionalProperties": False,
            "properties": {"number": {"type": "integer", "minimum": 1}, "times": {"type": "integer", "default": 1}},
            "required": ["number"],
        }
        episode = await open_episode(episodes, "it")
        picture = (await episode.call("picture", {})).observation.content[0]
        assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
        refused = await episode.call("refuse", {"why": "no"})
        assert refused.is_error
        assert "not found: no" in refused.observation.text
        result = await episode.call("add", {"number": 4})
        # It was the third step: what was listed before the reset does not count.
        assert (result.observation.text, result.reward, result.terminated) == ("4", 3.0, False)
        result = await episode.call("add", {"number": 3, "times": 2})
        assert (result.observation.structured_content, result.terminated) == ({"result": 10}, True)
    await until(lambda: server.alive() == 0)


@pytest.mark.parametrize("path", ["union", "wrapped"])
async def test_each_type_of_action_is_a_tool(path: str, server: Released) -> None:
    async with table(f"{server.url}/{path}") as episodes:
        listing = episodes.environment("it").listing
        assert [(tool["name"], tool["description"]) for tool in listing] == [
            ("move", "Move somewhere."),
            ("wait", "Wait."),
        ]
        assert listing[0]["inputSchema"]["required"] == ["to"]
        assert list(listing[0]["inputSchema"]["$defs"]) == ["Place"]
        assert listing[1]["inputSchema"]["properties"] == {}
        assert "$defs" not in listing[1]["inputSchema"]
        episode = await open_episode(episodes, "it")
        assert (await episode.call("move", {"to": {"x": 3}})).observation.structured_content["hint"] == "Move 3"  # pyright: ignore
        assert (await episode.call("wait", {})).observation.structured_content["hint"] == "Wait"  # pyright: ignore


async def test_what_openenv_init_makes_is_played_one_after_another(server: Released) -> None:
    async with table(f"{server.url}/made") as episodes:
        for word in ("hello", "you"):
            episode = await open_episode(episodes, "it")
            # It takes one session, so that the gateway does not open a second one.
            with pytest.raises(AtCapacity):
                await episodes.open_episode(OpenRequest("it", "me", wait=False))
            result = await episode.call("step", {"message": word})
            data = result.observation.structured_content
            assert data is not None
            assert (data["echoed_message"], data["message_length"]) == (word, len(word))
            assert result.reward == pytest.approx(len(word) / 10)
            await episodes.finish(episode.handle, "me")
            await close_episode(episodes, episode)


async def test_a_full_server_refuses_with_a_time_to_try_again(server: Released) -> None:
    async with table(f"{server.url}/three") as episodes:
        opened = [await open_episode(episodes, "it") for _ in range(3)]
        with pytest.raises(AtCapacity, match="takes no further session now") as full:
            await open_episode(episodes, "it")
        assert full.value.retry_after > 0
        with pytest.raises(ConfigurationError, match="takes no further session now"):
            load(f'openenv:"{server.url}/three"')
        await close_episode(episodes, opened[0])
        await open_episode(episodes, "it")
    assert server.alive() == 0


async def test_tasks_are_those_of_the_task_api(server: Released) -> None:
    if server.release == OLD:
        assert load(f'openenv:"{server.url}/guess"').splits == {}
        with pytest.raises(InvalidOption, match="has none"):
            load(f'openenv:"{server.url}/guess"', options={"splits": ["test"]})
        return
    with pytest.raises(InvalidOption, match="'seed', which each episode has"):
        load(f'openenv:"{server.url}/guess"', options={"arguments": {"seed": 1}})
    assert {split: len(tasks) for split, tasks in load(f'openenv:"{server.url}/guess"').splits.items()} == {
        "train": 501,
        "test": 2,
    }
    with pytest.raises(InvalidOption, match="no split 'dev'; its splits are: train, test"):
        load(f'openenv:"{server.url}/guess"', options={"splits": ["dev"]})
    async with table(f"{server.url}/guess", splits=["test"]) as episodes:
        assert list(episodes.environment("it").splits) == ["test"]
        episode = await open_episode(episodes, "it", task=1, seed=4)
        assert episode.prompt == "Guess number 1."
        assert first(episode)["inside"] == {"seed": 4, "split": "test", "index": 1}
        with pytest.raises(InvalidRequest, match="no task 'mine'"):
            await open_episode(episodes, "it", task=Task(id="mine", metadata={"split": "train", "index": 0}))


async def test_the_second_message_of_a_step_takes_no_time(server: Released) -> None:
    # The server sends its answers through a socket that holds a second short one back for 40 ms.
    loop, seconds = asyncio.get_running_loop(), list[float]()
    async with table(f"{server.url}/wrapped") as episodes:
        episode = await open_episode(episodes, "it")
        for _ in range(20):
            began = loop.time()
            await episode.call("wait", {})
            seconds.append(loop.time() - began)
    assert min(seconds[10:]) < 0.03


def test_it_passes_the_checker(server: Released) -> None:
    newest = server.release == NEW
    report = check_environment(
        f'openenv:"{server.url}/guess"', seeds=range(1 + newest), steps=5, another_process=newest
    )
    assert [finding for finding in report.findings if finding.level == "error"] == []
    assert server.alive() == 0


async def test_a_server_that_dies_is_a_fault_of_the_infrastructure(server: Released) -> None:
    # The last test with this server.
    async with table(f"{server.url}/guess") as episodes:
        episode = await open_episode(episodes, "it", seed=1)
        await episode.call("step", {"number": 0, "how": "aloud"})
        with pytest.raises(EpisodeFailed):
            await episode.call("step", {"number": 0, "note": "gone"})
        assert episode.outcome is not None
        assert episode.info().reward is None
        assert (episode.outcome.reason, episode.outcome.fault) == ("upstream", "infrastructure")
        with pytest.raises(EpisodeFailed):
            await open_episode(episodes, "it")
    with pytest.raises(ConfigurationError, match="could not be reached"):
        load(f'openenv:"{server.url}/guess"')
