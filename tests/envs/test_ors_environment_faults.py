"""What an Open Reward Standard server may do wrong is a typed fault or refusal, never an answer and never a reward."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pytest
from harness import running
from openenv_releases import until
from opening import close_episode, open_episode
from ors_releases import TOOL, Behaviour, Cut, Hostile, events, gives, hangs, output, status, streamed
from patience import patient
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from envport import AsyncClient
from envport.episodes import Episodes, Limits, task_page
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
def looked_at(url: str, **options: Any) -> EnvironmentDefinition:
    """The server as it is while it behaves."""
    return load(f"ors:{url}", "it", options=options)


@asynccontextmanager
async def table(server: Hostile, settings: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Episodes]:
    definition = looked_at(server.url, **options)
    episodes = Episodes({"it": definition, "echo": load("echo")}, **(settings or {}))
    async with episodes.run():
        yield episodes
    await until(lambda: not server.open)


def once(first: Behaviour, times: int = 1) -> Behaviour:
    """Something wrong, and then what is usual."""
    left = [first] * times

    async def behave(hostile: Hostile, request: Request) -> Response:
        if left:
            return await left.pop()(hostile, request)
        return await hostile.usual(request)

    return behave


def cut(*pairs: tuple[str, str]) -> Behaviour:
    return gives(lambda: Cut(events(*pairs), media_type="text/event-stream"))


def answers(text: str, name: str = "end") -> Behaviour:
    return gives(lambda: streamed(("task_id", "c1"), (name, text)))


def image(data: str) -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": "image/png"}


NOT_OPENED: dict[str, tuple[str, Behaviour, str]] = {
    "no id": ("create_session", gives(JSONResponse({})), "has no id"),
    "an empty id": ("create_session", gives(lambda: streamed(("task_id", ""), ("end", ""))), "has no id"),
    "an id that is no header": ("create_session", gives(lambda: streamed(("task_id", "é"), ("end", ""))), "has no id"),
    "a session that breaks off": ("create_session", cut(("task_id", "s")), "could not be reached"),
    "an error": ("create_session", answers("no", "error"), "is the error 'no'"),
    "a refused task": ("create", status(400, "Invalid index"), "HTTP status 400: Invalid index"),
    "an unknown environment": ("create", status(404), "does not know the session"),
    "a refused key": ("create", status(401), "HTTP status 401"),
    "what is created and never told": ("create", cut(), "could not be reached"),
    "other tools": ("task_tools", gives(JSONResponse({"tools": [TOOL, TOOL | {"name": "b"}]})), "lists other tools"),
    "no tools": ("task_tools", gives(JSONResponse({"tools": "none"})), "lists no tools"),
    "tools without names": ("task_tools", gives(JSONResponse({"tools": [{}]})), "lists {} as a tool"),
    "a terminal tool of two words": (
        "task_tools",
        gives(JSONResponse({"tools": [], "terminal_tool": {"arg": 1}})),
        "as its terminal tool",
    ),
    "a session that is gone": ("prompt", status(404), "does not know the session"),
    "a deleted session": ("prompt", status(410), "HTTP status 410"),
    "no JSON": ("prompt", gives(lambda: Response("{")), "is no JSON"),
    "no number": ("prompt", gives(lambda: Response('[{"type":"text","text":"", "detail": NaN}]')), "NaN is no number"),
    "deep": ("prompt", gives(lambda: Response("[" * 100_000)), "nested too deeply"),
    "no blocks": ("prompt", gives(JSONResponse("Go.")), "has no blocks"),
    "a block that is none": ("prompt", gives(JSONResponse(["Go."])), "as a block"),
    "a block of another type": ("prompt", gives(JSONResponse([{"type": "smell", "text": "x"}])), "'smell'"),
    "an image that is none": ("prompt", gives(JSONResponse([image("%")])), "no base64"),
    "a prompt that breaks off": ("prompt", cut(), "could not be reached"),
    "a gateway in between": ("prompt", status(502), "HTTP status 502"),
}


@pytest.mark.parametrize("name", NOT_OPENED)
async def test_a_session_that_cannot_begin_is_a_fault_and_is_ended(
    name: str, server: Hostile, caplog: pytest.LogCaptureFixture
) -> None:
    path, behaviour, why = NOT_OPENED[name]
    async with table(server) as episodes:

        async def created(hostile: Hostile, request: Request) -> Response:
            hostile.open.add(request.headers["x-session-id"])
            return await behaviour(hostile, request)

        server.wrong[path] = created if path == "create" else behaviour
        with pytest.raises(EpisodeFailed) as failed:
            await open_episode(episodes, "it")
        assert (failed.value.reason, failed.value.fault) == ("upstream", "infrastructure")
        assert why in caplog.text
        ended = path != "create_session" or name in ("a session that breaks off", "an error")
        assert (server.paths()[-2:] == ["/delete", "/delete_session"]) == ended


@pytest.mark.parametrize("path", ["create", "task_tools", "prompt", "call"])
async def test_what_the_environment_raises_is_its_fault(path: str, server: Hostile) -> None:
    async with table(server) as episodes:
        if path == "call":
            episode = await open_episode(episodes, "it")
        server.wrong[path] = status(500, "RuntimeError: no dice")
        with pytest.raises(EpisodeFailed) as failed:
            await (episode.call("go", {}) if path == "call" else open_episode(episodes, "it"))  # pyright: ignore
        assert (failed.value.reason, failed.value.fault) == ("environment_error", "environment")
        assert "dice" not in str(failed.value)


def resuming(then: Behaviour) -> Behaviour:
    """Break off a call that is new, and answer one that is asked for again."""

    async def behave(hostile: Hostile, request: Request) -> Response:
        asked = (await request.json()).get("task_id")
        return await (then if asked == "c0" else cut(("task_id", "c0")))(hostile, request)

    return behave


WRONG: dict[str, tuple[Behaviour, str]] = {
    "no stream": (gives(JSONResponse({"ok": True})), "is no stream of events"),
    "no JSON": (answers("{"), "is no JSON"),
    "nothing": (answers(""), "is no JSON"),
    "a list": (answers("[1]"), "as the answer"),
    "no ok": (answers('{"output": {}}'), "None as 'ok'"),
    "a number as ok": (answers(output().replace("true", "1", 1)), "1 as 'ok'"),
    "no output": (answers('{"ok": true}'), "as 'output'"),
    "no blocks": (answers(output(blocks=None)), "has no blocks"),
    "an image that is none": (answers(output(blocks=[image("no")])), "no base64"),
    "text as reward": (answers(output(reward="1")), "'1' as reward"),
    "truth as reward": (answers(output(reward=True)), "True as reward"),
    "a reward beyond numbers": (answers(output(reward=10**400)), "as reward"),
    "no number as reward": (answers(output(reward=float("nan"))), "NaN is no number"),
    "a number as finished": (answers(output(finished=1)), "1 as 'finished'"),
    "text as metadata": (answers(output(metadata="x")), "as 'metadata'"),
    "a refusal without a word": (answers('{"ok": false}'), "without a word"),
    "a finished episode": (
        answers('{"ok": false, "error": "over", "reason": "episode_finished"}'),
        "episode has finished",
    ),
    "a session that is gone": (status(404, "Active environment not found"), "HTTP status 404"),
    "a deleted session": (status(410, "Session deleted"), "HTTP status 410"),
    "a refused key": (status(403), "HTTP status 403"),
    "a gateway in between": (status(504), "before it had named the call"),
    "cut before the call is named": (cut(), "before it had named the call"),
    "another call": (once(cut(("task_id", "c0"))), "with another call"),
    "a forgotten call": (resuming(answers("unknown task_id", "error")), "has forgotten a call"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_no_answer_is_a_fault(name: str, server: Hostile, caplog: pytest.LogCaptureFixture) -> None:
    async with table(server) as episodes:
        episode = await open_episode(episodes, "it")
        assert (await episode.call("go", {})).reward == 1.0
        server.wrong["call"], why = WRONG[name]
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call("go", {})
        assert (failed.value.reason, failed.value.fault) == ("upstream", "infrastructure")
        assert why in caplog.text
        assert episode.info().reward is None


async def test_a_tool_that_raises_is_a_fault_of_the_environment(server: Hostile) -> None:
    async with table(server) as episodes:
        for behaviour in (answers("boom", "error"), resuming(answers("boom", "error"))):
            episode = await open_episode(episodes, "it")
            server.wrong["call"] = behaviour
            with pytest.raises(EpisodeFailed) as failed:
                await episode.call("go", {})
            assert (failed.value.reason, failed.value.fault) == ("environment_error", "environment")


@pytest.mark.parametrize("reason", ["input_validation", "not_found", "name_collision", None])
async def test_a_refused_call_is_told_and_the_episode_goes_on(reason: str | None, server: Hostile) -> None:
    async with table(server) as episodes:
        episode = await open_episode(episodes, "it")
        server.wrong["call"] = once(answers(json.dumps({"ok": False, "error": "too far", "reason": reason})))
        refused = await episode.call("go", {})
        assert (refused.is_error, refused.observation.text) == (True, "too far")
        assert (await episode.call("go", {})).reward == 1.0


async def test_a_hang_ends_at_the_deadline(server: Hostile) -> None:
    async with table(server, {"limits": Limits(call_seconds=0.3, reset_seconds=0.3)}) as episodes:
        episode = await open_episode(episodes, "it")
        server.wrong |= {"call": hangs, "prompt": hangs}
        for hanging in (episode.call("go", {}), open_episode(episodes, "it")):
            with pytest.raises(EpisodeFailed) as failed:
                await hanging
            assert failed.value.reason == "deadline"
        assert episode.info().reward is None


@pytest.mark.parametrize("path", ["create_session", "create", "prompt"])
async def test_a_full_server_refuses_and_says_when_to_try_again(path: str, server: Hostile) -> None:
    async with table(server) as episodes:
        server.wrong[path] = once(status(503, "all are in use", Retry_After="7"))
        with pytest.raises(AtCapacity, match="takes no further session now: all are in use") as full:
            await open_episode(episodes, "it")
        assert full.value.retry_after == 7.0
        server.wrong[path] = status(429)
        with pytest.raises(AtCapacity) as full:
            await open_episode(episodes, "it")
        assert full.value.retry_after == 1.0


async def test_a_server_that_is_starting_is_waited_for(server: Hostile) -> None:
    starting = status(503, "Environment still starting.", X_Backend_State="starting", Retry_After="0")
    server.wrong |= {
        path: once(starting) for path in ("list_environments", "create_session", "create", "prompt", "call")
    }
    definition = load(f"ors:{server.url}", "it")
    episodes = Episodes({"it": definition})
    async with episodes.run():
        episode = await open_episode(episodes, "it")
        assert (await episode.call("go", {})).reward == 1.0
    assert server.paths().count("/it/call") == 2


async def test_a_call_that_reached_nobody_is_sent_again(server: Hostile) -> None:
    async with table(server) as episodes:
        episode = await open_episode(episodes, "it")
        server.wrong["call"] = once(status(429))
        assert (await episode.call("go", {})).reward == 1.0


async def test_a_lost_session_is_found_out_between_calls_and_during_one(server: Hostile) -> None:
    async with table(server, ping_seconds=0.01) as episodes:
        for behaviour in (status(404), status(410), status(502), cut()):
            episode = await open_episode(episodes, "it")
            server.wrong["call"] = hangs
            call = asyncio.create_task(episode.call("go", {}))
            await until(lambda: server.paths()[-1:] == ["/ping"] and "/it/call" in server.paths())
            server.wrong["ping"] = behaviour
            with pytest.raises(EpisodeFailed) as failed:
                await call
            assert (failed.value.reason, failed.value.fault) == ("upstream", "infrastructure")
            server.behave()
        episode = await open_episode(episodes, "it")
        for _ in range(2):
            # Four in a row are no loss, and those before an answer do not count.
            server.wrong["ping"], pinged = once(status(502), 4), server.paths().count("/ping")
            await until(lambda before=pinged: server.paths().count("/ping") > before + 6)
        assert (await episode.call("go", {})).reward == 1.0
        server.wrong["ping"] = status(404)
        pinged = server.paths().count("/ping")
        await until(lambda: server.paths().count("/ping") > pinged)
        # It would answer, as a session that was made anew.
        with pytest.raises(EpisodeFailed):
            await episode.call("go", {})


async def test_a_session_that_cannot_be_ended_is_logged(server: Hostile, caplog: pytest.LogCaptureFixture) -> None:
    async with table(server) as episodes:
        episode = await open_episode(episodes, "it")
        server.wrong["delete"] = status(502)
        await close_episode(episodes, episode)
        await until(lambda: server.paths()[-1] == "/delete_session")
        assert "could not be ended" in caplog.text
        server.open.clear()


async def test_a_client_that_vanishes_leaves_no_session(server: Hostile) -> None:
    with running(looked_at(server.url), limits=Limits(idle_seconds=0.3)) as gateway:
        async with AsyncClient(gateway.url) as client:
            await client.open("it")
            assert len(server.open) == 1
        await until(lambda: not server.open)


async def test_a_task_that_cannot_be_read_is_a_fault_and_one_that_is_slow_keeps_nobody_waiting(
    server: Hostile,
) -> None:
    read = threading.Event()

    async def slow(hostile: Hostile, request: Request) -> Response:
        assert await asyncio.to_thread(read.wait, patient(10))
        return await hostile.usual(request)

    definition = load(f"ors:{server.url}", "it")
    episodes = Episodes({"it": definition, "echo": load("echo")})
    async with episodes.run():
        server.wrong["task"] = status(502)
        with pytest.raises(EpisodeFailed) as failed:
            await open_episode(episodes, "it", task=2)
        assert (failed.value.reason, failed.value.fault) == ("upstream", "infrastructure")
        with pytest.raises(EpisodeFailed):
            await task_page(definition, "train", 0, 2)
        server.wrong["task"] = slow
        slowly = asyncio.create_task(open_episode(episodes, "it", task=1))
        await until(lambda: server.paths()[-1] == "/it/task")
        echo = await open_episode(episodes, "echo")
        assert (await echo.call("echo", {"message": "here"})).observation.text == "here"
        assert not slowly.done()
        read.set()
        assert (await slowly).info().task_index == 1
    assert not server.open


async def test_a_server_of_the_first_version_is_played_too(server: Hostile) -> None:
    gone = dict.fromkeys(("num_tasks", "task", "task_range", "task_tools", "ping"), status(404))
    server.wrong = {
        **gone,
        "create_session": gives(JSONResponse({"sid": "abc"})),
        "tasks": gives(JSONResponse({"tasks": [{"n": 0}, {"n": 1}], "env_name": "it"})),
    }
    episodes = Episodes({"it": load(f"ors:{server.url}", "it")})
    async with episodes.run():
        assert len(episodes.environment("it").splits["train"]) == 2
        episode = await open_episode(episodes, "it", task=1)
        assert (await episode.call("go", {})).reward == 1.0
    (created,) = [asked.body for asked in server.asked if asked.path == "/create" and asked.body["task_spec"]["n"]]
    assert created == {"env_name": "it", "task_spec": {"n": 1}}


async def test_a_server_without_names_leads_to_its_environment(server: Hostile) -> None:
    server.wrong["list_environments"] = status(404)
    episodes = Episodes({"it": load(f"ors:{server.url}", "it")})
    async with episodes.run():
        episode = await open_episode(episodes, "it")
        assert (await episode.call("go", {})).reward == 1.0
    with Hostile() as other:
        server.wrong["tools"] = gives(RedirectResponse(f"{other.url}/it/tools", 308))
        with pytest.raises(ConfigurationError, match="which is another server"):
            load(f"ors:{server.url}", options={"headers": {"Authorization": "for-one-server"}})
        assert other.asked == []


def test_a_server_that_is_none_is_said_at_the_start(server: Hostile) -> None:
    def refused(match: str, **wrong: Behaviour) -> None:
        server.wrong = wrong
        with pytest.raises(ConfigurationError, match=match):
            load(f"ors:{server.url}")
        assert not server.open

    refused(
        "is no Open Reward Standard server: its answer to /list_environments is no JSON",
        list_environments=gives(Response("<html>")),
    )
    refused("is no list of names", list_environments=gives(JSONResponse([])))
    refused("its answer to /it/tools is that there is no such thing", tools=status(404))
    refused("lists no tools", tools=gives(JSONResponse({"tools": None})))
    refused(
        "the environment has no tools",
        tools=gives(JSONResponse({"tools": []})),
        task_tools=gives(JSONResponse({"tools": []})),
    )
    refused("has 7 as a split", splits=gives(JSONResponse([7])))
    refused("has no number of tasks", num_tasks=gives(JSONResponse({"num_tasks": -1})))
    refused("has the HTTP status 502: bad gateway", splits=status(502, "bad gateway"))
    refused("takes no further session now: busy", create=status(503, "busy"))
    refused("could not be reached", tools=cut())
    with pytest.raises(ConfigurationError, match="could not be reached"):
        load("ors:http://127.0.0.1:9")
    for text in ("ftp://host", "http://", "http://user:key@host", "http://host?key=1"):
        with pytest.raises(InvalidOption, match="names no server"):
            load(f'ors:"{text}"')
    with pytest.raises(InvalidOption, match="ping_seconds"):
        load(f"ors:{server.url}", options={"ping_seconds": 0})
    with pytest.raises(InvalidOption, match="'a', which is none of the secrets"):
        load(f"ors:{server.url}", options={"secret_domains": {"a": ["b"]}})


async def test_many_episodes_play_at_once_without_waiting_for_each_other(server: Hostile) -> None:
    async with table(server) as episodes:
        opened = await asyncio.gather(*(open_episode(episodes, "it", task=0) for _ in range(20)))
        assert len(server.open) == 20
        results = await asyncio.gather(*(episode.call("go", {}) for episode in opened))
        assert {result.reward for result in results} == {1.0}
