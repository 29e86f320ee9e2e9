"""What an OpenEnv server may do wrong is a typed fault or refusal, never an answer and never a reward."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from typing import Any

import pytest
from harness import running
from openenv_releases import Behaviour, Hostile, error, observe, until
from opening import close_episode, open_episode, start_over
from websockets.asyncio.server import ServerConnection

from envport import AsyncClient
from envport.checker import check_environment
from envport.clock import ManualClock
from envport.episodes import Episodes, Limits, OpenRequest
from envport.errors import AtCapacity, ConfigurationError, EpisodeFailed, InvalidOption
from envport.registry import EnvironmentDefinition, load


@pytest.fixture(scope="module")
def running_server() -> Iterator[Hostile]:
    with Hostile() as hostile:
        yield hostile


@pytest.fixture
def server(running_server: Hostile) -> Hostile:
    running_server.behave()
    return running_server


@cache
def looked_at(url: str) -> EnvironmentDefinition:
    """The server as it is while it behaves."""
    return load(f"openenv:{url}", "it")


@asynccontextmanager
async def table(server: Hostile, **settings: Any) -> AsyncIterator[Episodes]:
    usual = server.tools is None and server.sessions > 1
    definition = looked_at(server.url) if usual else load(f"openenv:{server.url}", "it")
    episodes = Episodes({"it": definition}, **settings)
    async with episodes.run():
        yield episodes
    await until(lambda: server.open == 0)


def sent(text: str | bytes) -> Behaviour:
    async def behave(_: Hostile, socket: ServerConnection, kind: str) -> None:
        await socket.send(text)

    return behave


def answered(**data: Any) -> Behaviour:
    return sent(json.dumps({"type": "observation", "data": {"observation": {}, "reward": None, "done": False} | data}))


async def twice(_: Hostile, socket: ServerConnection, kind: str) -> None:
    await observe(socket, "one")
    await observe(socket, "two")


async def dies(_: Hostile, socket: ServerConnection, kind: str) -> None:
    socket.transport.abort()


async def leaves(_: Hostile, socket: ServerConnection, kind: str) -> None:
    await socket.close()


async def floods(_: Hostile, socket: ServerConnection, kind: str) -> None:
    for _number in range(200):
        await observe(socket, "x" * 10_000)


async def fails(_: Hostile, socket: ServerConnection, kind: str) -> None:
    await error(socket, "SESSION_ERROR", "no session")


async def hangs(_: Hostile, socket: ServerConnection, kind: str) -> None:
    await socket.wait_closed()


WRONG: dict[str, Behaviour] = {
    "no JSON": sent("{"),
    "bytes": sent(b"\xff\xfe"),
    "a list": sent("[1]"),
    "a number": sent("NaN"),
    "deep": sent("[" * 100_000),
    "no data": sent('{"type":"observation"}'),
    "another type": sent('{"type":"state","data":{"observation":{},"reward":1,"done":false}}'),
    "no observation": answered(observation=None),
    "text as reward": answered(reward="1"),
    "a reward beyond numbers": answered(reward=10**400),
    "NaN in data": sent('{"type":"observation","data":{"observation":{"x":NaN},"reward":1,"done":false}}'),
    "a number as done": answered(done=1),
    "no done": sent('{"type":"observation","data":{"observation":{},"reward":1}}'),
    "twice": twice,
    "dies": dies,
    "leaves": leaves,
    "floods": floods,
    "fails": fails,
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("when", ["reset", "step"])
async def test_what_is_no_answer_is_a_fault(when: str, name: str, server: Hostile) -> None:
    async with table(server) as episodes:
        if when == "reset":
            server.misbehave = WRONG[name]
            with pytest.raises(EpisodeFailed) as failed:
                await open_episode(episodes, "it")
            assert (failed.value.reason, failed.value.fault) == ("upstream", "infrastructure")
            return
        episode = await open_episode(episodes, "it")
        assert (await episode.call("step", {"number": 1})).reward == 2.0
        server.misbehave = WRONG[name]
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call("step", {"number": 2})
        assert (failed.value.reason, failed.value.fault) == ("upstream", "infrastructure")
        assert episode.info().reward is None


async def test_an_episode_that_is_over_when_it_begins_is_a_fault_of_the_environment(server: Hostile) -> None:
    async with table(server) as episodes:
        server.misbehave = answered(done=True)
        with pytest.raises(EpisodeFailed) as failed:
            await open_episode(episodes, "it")
        assert (failed.value.reason, failed.value.fault) == ("environment_error", "environment")


TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
NO_RESULT: dict[str, Any] = {
    "another tool": {"tool_name": "listen", "result": {"content": []}, "error": None},
    "no tool": {"text": "step"},
    "a timeout": {"tool_name": "look", "result": None, "error": {"error_type": "timeout", "message": "30 s"}},
    "a lost call": {"tool_name": "look", "result": None, "error": {"error_type": "transport_error", "message": "?"}},
    "no content": {"tool_name": "look", "result": {"content": [{"type": "smell"}]}, "error": None},
}


@pytest.mark.parametrize("name", NO_RESULT)
async def test_what_is_no_result_of_the_tool_is_a_fault(name: str, server: Hostile) -> None:
    server.tools = [TOOL]
    async with table(server) as episodes:
        episode = await open_episode(episodes, "it")
        server.misbehave = answered(observation=NO_RESULT[name])
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call("look", {})
        assert (failed.value.reason, failed.value.fault) == ("upstream", "infrastructure")


async def test_a_failed_call_that_ends_the_episode_pays_its_reward(server: Hostile) -> None:
    server.tools = [TOOL]
    async with table(server) as episodes:
        episode = await open_episode(episodes, "it")
        error = {"error_type": "execution_error", "message": "too far"}
        server.misbehave = answered(observation={"tool_name": "look", "error": error}, reward=-1, done=True)
        result = await episode.call("look", {})
        # The reset was worth 1.
        assert (result.observation.text, result.reward, result.terminated) == ("too far", 0.0, True)


@pytest.mark.parametrize("now", [[], [TOOL | {"description": "Look again."}], [TOOL, TOOL | {"name": "b"}], "no list"])
async def test_tools_that_have_changed_are_a_fault(now: Any, server: Hostile) -> None:
    server.tools = [TOOL]
    async with table(server) as episodes:
        server.tools = now
        with pytest.raises(EpisodeFailed) as failed:
            await open_episode(episodes, "it")
        assert failed.value.reason == "upstream"


async def test_an_environment_without_tools_is_not_served(server: Hostile) -> None:
    server.tools = []
    with pytest.raises(ConfigurationError, match="has no tools"):
        load(f"openenv:{server.url}")
    server.misbehave, server.tools = None, "none"  # pyright: ignore
    with pytest.raises(ConfigurationError, match="lists no tools"):
        load(f"openenv:{server.url}")


async def test_a_server_that_does_not_repeat_types_is_played_too(server: Hostile) -> None:
    server.repeats = False
    async with table(server) as episodes:
        episode = await open_episode(episodes, "it")
        for number in range(3):
            assert (await episode.call("step", {"number": number})).observation.structured_content == {"text": "step"}


async def test_a_hang_ends_at_the_deadline(server: Hostile) -> None:
    async with table(server, limits=Limits(call_seconds=0.3)) as episodes:
        episode = await open_episode(episodes, "it")
        server.misbehave = hangs
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call("step", {"number": 1})
        assert failed.value.reason == "deadline"
        assert episode.info().reward is None


@pytest.mark.parametrize("runtime", ["inline", "process"])
async def test_a_full_server_refuses_and_can_be_tried_again(runtime: Any, server: Hostile) -> None:
    server.sessions = 2
    async with table(server, runtime=runtime) as episodes:
        one = await open_episode(episodes, "it")
        await open_episode(episodes, "it")
        with pytest.raises(AtCapacity, match="takes no further session now: 2/2 sessions") as full:
            await open_episode(episodes, "it")
        assert full.value.retry_after == 1.0
        await episodes.close(one.handle, "me")
        await until(lambda: server.open == 1)
        await open_episode(episodes, "it")


async def test_the_gateway_opens_no_more_episodes_than_a_server_of_one_session_takes(server: Hostile) -> None:
    server.sessions = 1
    async with table(server) as episodes:
        await open_episode(episodes, "it")
        with pytest.raises(AtCapacity, match="all 1 episodes of environment 'it' are in use"):
            await episodes.open_episode(OpenRequest("it", "me", wait=False))


async def test_a_session_ends_before_the_next_one_begins(server: Hostile) -> None:
    server.sessions, server.closing_seconds = 1, 0.3
    async with table(server) as episodes:
        for _ in range(3):
            episode = await open_episode(episodes, "it")
            await close_episode(episodes, episode)


async def test_a_reset_that_finds_the_server_full_frees_the_place(server: Hostile) -> None:
    async with table(server, limits=Limits(max_episodes=1)) as episodes:
        episode = await open_episode(episodes, "it")
        server.sessions = 0
        with pytest.raises(AtCapacity, match="takes no further session now"):
            await start_over(episodes, episode)
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.fault) == ("upstream", "infrastructure")
        server.sessions = 1
        await episodes.open_episode(OpenRequest("it", "me", wait=False))


def test_a_server_of_one_session_is_checked_one_episode_at_a_time(server: Hostile) -> None:
    server.sessions = 1
    report = check_environment(f"openenv:{server.url}", steps=3, another_process=False)
    assert (report.findings, report.beside, report.alone) == ([], False, 3)


async def test_a_client_that_vanishes_leaves_no_session(server: Hostile) -> None:
    clock = ManualClock()
    with running(load(f"openenv:{server.url}", "it"), limits=Limits(idle_seconds=60), clock=clock) as gateway:
        server.sessions = 1
        async with AsyncClient(gateway.url) as client:
            await client.open("it")
            with pytest.raises(AtCapacity, match="takes no further session now") as full:
                await client.open("it")
            assert full.value.retry_after == 1.0
        assert server.open == 1
        await asyncio.to_thread(gateway.run, lambda: clock.advance(61))
        await until(lambda: server.open == 0)


def test_a_server_that_is_none_is_said_at_the_start(server: Hostile) -> None:
    def refused(match: str) -> None:
        with pytest.raises(ConfigurationError, match=match):
            load(f"openenv:{server.url}")

    server.sessions = 0
    refused("takes no further session now, and one is needed to look at it: 0/0 sessions")
    server.sessions = 100
    server.page = b"<html>"
    refused("is no OpenEnv server: its answer to /schema is no JSON")
    server.page = b'{"action": {"type": "string"}}'
    refused("actions are no objects")
    server.page = b'{"action": {"$ref": "#/$defs/Gone"}}'
    refused("refer to '#/\\$defs/Gone'")
    server.page = b'{"action": {"type": "object", "properties": {"a": {"type": "nothing"}}}}'
    refused("nothing")
    server.page, server.status = None, HTTPStatus.BAD_GATEWAY
    refused("has the HTTP status 502")
    server.status = HTTPStatus.NOT_FOUND
    refused("has no schema of actions")
    with pytest.raises(ConfigurationError, match="could not be reached"):
        load("openenv:http://127.0.0.1:9")
    for text in ("ftp://host", "http://", "http://[::1", "http://user:key@host", "http://host?key=1"):
        with pytest.raises(InvalidOption, match="names no server"):
            load(f'openenv:"{text}"')


async def test_keys_are_sent_and_shown_nowhere(server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ITS_KEY", "not-for-everybody")
    options = {"headers": {"Authorization": "Bearer {ITS_KEY}"}, "variables": ["ITS_KEY"]}
    server.authorized.clear()
    definition = load(f"openenv:{server.url}", options=options)
    assert server.authorized == {"Bearer not-for-everybody"}
    assert "not-for-everybody" not in repr(definition)
    assert dict(definition.options) == {"server": server.url}
    with pytest.raises(InvalidOption, match=r"no value for \{OTHER\}"):
        load(f"openenv:{server.url}", options={"headers": {"Authorization": "{OTHER}"}})


async def test_many_episodes_play_at_once_without_waiting_for_each_other(server: Hostile) -> None:
    async with table(server) as episodes:
        opened = await asyncio.gather(*(open_episode(episodes, "it") for _ in range(20)))
        assert server.open == 20
        results = await asyncio.gather(*(episode.call("step", {"number": 1}) for episode in opened))
        assert {result.reward for result in results} == {2.0}
