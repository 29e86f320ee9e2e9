"""Environments of Open Reward Standard servers by `ors:URL`: openreward's own server, in a virtual environment."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from openenv_releases import until
from opening import close_episode, open_episode, start_over
from ors_releases import Asked, Hostile, Released, openreward_python, released, variables
from patience import patient

from envport.checker import check_environment
from envport.episodes import Episodes, OpenRequest, task_page
from envport.errors import ConfigurationError, EpisodeFailed, InvalidArguments, InvalidOption, InvalidRequest
from envport.registry import load
from envport.types import Task


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    with released(tmp_path_factory.mktemp("ors")) as running:
        yield running


@asynccontextmanager
async def table(url: str, settings: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Episodes]:
    episodes = Episodes({"it": load(f'ors:"{url}"', "it", options=options)}, **(settings or {}))
    async with episodes.run():
        yield episodes


async def test_an_episode_is_a_session_with_its_prompt_rewards_and_end(server: Released) -> None:
    async with table(server.url) as episodes:
        episode = await open_episode(episodes, "it", split="held-out", task=1)
        first = episode.first_observation
        assert [block["type"] for block in first.content] == ["text", "image"]
        assert (first.text, first.content[1]["mimeType"]) == ("Guess number 1.", "image/png")
        wrong = await episode.call("guess", {"number": 0})
        assert (wrong.observation.text, wrong.reward, wrong.terminated) == ("wrong", -0.5, False)
        assert (await episode.call("look", {})).observation.content[1]["type"] == "image"
        assert server.alive() == 1
        right = await episode.call("guess", {"number": 1})
        assert (right.observation.text, right.reward, right.terminated) == ("right", 1.0, True)
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.info().reward) == ("terminated", 0.5)
        # What the standard calls metadata is for trainers.
        trajectory = await episodes.trajectory(episode.handle, "me")
        assert trajectory.steps[0].info == {"answer": 1, "ors/details": [{"tries": 1}]}
        assert "answer" not in wrong.observation.model_dump_json()
        await until(lambda: server.alive() == 0)


async def test_the_last_reward_may_be_the_episode_s(server: Released) -> None:
    async with table(server.url, reward="last") as episodes:
        episode = await open_episode(episodes, "it", split="held-out", task=1)
        for number in (0, 1):
            await episode.call("guess", {"number": number})
        assert episode.info().reward == 1.0


def test_tools_keep_their_schemas_and_names(server: Released) -> None:
    listing = {tool["name"]: tool for tool in load(f"ors:{server.url}").listing}
    assert list(listing) == ["guess", "knock", "look", "read", "say-it", "wait"]
    assert listing["guess"]["description"] == "Guess."
    shown = httpx2.get(f"{server.url}/guess/tools").json()["tools"][0]["input_schema"]
    assert listing["guess"]["inputSchema"] == shown
    assert listing["look"]["inputSchema"] == {"type": "object", "properties": {}, "additionalProperties": False}


async def test_calls_come_back_whole_and_refused_ones_are_told(server: Released) -> None:
    async with table(server.url, splits=["held-out"]) as episodes:
        episode = await open_episode(episodes, "it")
        assert (await episode.call("read", {})).observation.text == " 0\n" * 5_000
        assert (await episode.call("say-it", {"words": " ä\u2028\n"})).observation.text == " ä\u2028\n"
        with pytest.raises(InvalidArguments):
            await episode.call("guess", {"number": 10})
        refused = await episode.call("say-it", {"words": "\ud800"})
        assert refused.is_error
        assert "lone surrogate" in refused.observation.text
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call("guess", {"number": 0, "note": "boom"})
        assert "dice" not in str(failed.value)
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.fault, episode.info().reward) == (
            "environment_error",
            "environment",
            None,
        )
    async with table(server.url, splits=["held-out"], exceptions="refusal") as episodes:
        episode = await open_episode(episodes, "it")
        refused = await episode.call("guess", {"number": 0, "note": "boom"})
        assert (refused.is_error, refused.observation.text) == (True, "the dice are lost, and None with them")
        assert not (await episode.call("look", {})).is_error
    assert server.alive() == 0


async def test_tasks_are_read_by_index_and_range_and_never_all(server: Released) -> None:
    definition = load(f"ors:{server.url}")
    assert {split: len(tasks) for split, tasks in definition.splits.items()} == {
        "train": 1_000_000,
        "held-out": 2,
        "empty": 0,
    }
    before = len(server.told("asked"))
    assert definition.task("train", 999_999).metadata["spec"] == {"question": "Guess number 999999.", "answer": 9}
    assert server.told("asked")[before:] == ["train/999999"]
    page = await task_page(definition, "train", 100, 30)
    assert [task.id for task in page.tasks] == [f"train/{index}" for index in range(100, 130)]
    # The first alone, those that follow as a range.
    assert len(server.told("asked")) == before + 1 + 51
    assert definition.splits["train"][101:200:50][1].id == "train/151"
    assert definition.splits["train"][-1] == definition.task("train", 999_999)
    with pytest.raises(InvalidOption, match="no split 'dev'; its splits are: train, held-out, empty"):
        load(f"ors:{server.url}", options={"splits": ["dev"]})


async def test_an_episode_s_task_is_one_of_the_server_s(server: Released) -> None:
    async with table(server.url, splits=["train", "held-out"]) as episodes:
        one, same = [await open_episode(episodes, "it", seed=5) for _ in range(2)]
        # The standard has no seeds. A seed draws the task, if none is chosen.
        assert one.first_observation == same.first_observation
        before = one.info().task
        await start_over(episodes, one, task=3)
        assert one.first_observation.text == "Guess number 3."
        assert before is not None
        assert before.metadata["index"] != 3
        for task in (
            Task(id="mine", metadata={"split": "train", "index": -1}),
            Task(id="mine", metadata={"split": "empty", "index": 0}),
            Task(id="mine"),
        ):
            with pytest.raises(InvalidRequest, match="no task 'mine'"):
                await open_episode(episodes, "it", task=task)
    assert server.alive() == 0


async def test_tools_of_a_task_are_those_of_its_episodes(server: Released) -> None:
    async with table(server.url, environment="Rooms") as episodes:
        definition = episodes.environment("it")
        assert (definition.tools_vary, [tool["name"] for tool in definition.listing]) == (True, ["leave"])
        page = await task_page(definition, "train", 0, 3)
        assert page.fingerprints[0] == page.fingerprints[2] != page.fingerprints[1]
        assert server.alive() == 0
        climbing, digging = [await open_episode(episodes, "it", task=index) for index in (1, 2)]
        assert [tool["name"] for tool in climbing.start.tools.listing] == ["leave", "climb"]
        assert climbing.start.tools.fingerprint == page.fingerprints[1]
        assert (await climbing.call("climb", {"words": "up"})).observation.text == "climbs up"
        assert (await digging.call("dig", {"words": "in"})).reward == 0.25
        result = await digging.call("leave", {})
        assert (result.observation.content[:0], result.reward, result.terminated) == ((), 0.5, True)
        assert digging.info().reward == 0.75
        with pytest.raises(InvalidRequest, match="names no tools"):
            await open_episode(episodes, "it", task=Task(id="mine", metadata={"split": "train", "index": 0}))
    async with table(server.url, environment="rooms", task_tools=False) as episodes:
        # It was said that there are none, so that the episode would list too few.
        with pytest.raises(EpisodeFailed) as failed:
            await open_episode(episodes, "it")
        assert failed.value.reason == "upstream"
    await until(lambda: server.alive() == 0)


async def test_the_terminal_tool_is_a_tool(server: Released) -> None:
    async with table(server.url, environment="answer") as episodes:
        (tool,) = episodes.environment("it").listing
        assert (tool["name"], tool["description"]) == ("submit", "Give the answer.")
        assert tool["inputSchema"]["properties"] == {"words": {"type": "string"}}
        episode = await open_episode(episodes, "it")
        result = await episode.call("submit", {"words": "42"})
        assert (result.reward, result.terminated) == (1.0, True)
    with pytest.raises(InvalidOption, match="no environment 'other'; it has: guess, rooms, answer"):
        load(f"ors:{server.url}", options={"environment": "other"})


async def test_a_broken_stream_is_resumed_and_nothing_is_done_twice(server: Released) -> None:
    async with table(server.url, splits=["held-out"]) as episodes:
        episode = await open_episode(episodes, "it")
        before = server.told("called").count("wait")
        server.break_off("late", 2)
        result = await episode.call("wait", {"words": "there"})
        assert (result.observation.text, result.reward) == ("there", 0.25)
        assert server.told("called").count("wait") == before + 1
        assert episode.info().reward == 0.25
        # Without the call's name, nobody knows whether it was carried out.
        server.break_off("early", 1)
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call("wait", {"words": "again"})
        assert (failed.value.reason, failed.value.fault) == ("upstream", "infrastructure")
        assert server.told("called").count("wait") <= before + 2
    await until(lambda: server.alive() == 0)


async def test_a_session_is_kept_alive_for_an_hour_and_20_minutes_without_a_call(server: Released) -> None:
    async with table(server.url, splits=["held-out"], ping_seconds=0.01) as episodes:
        episode = await open_episode(episodes, "it")
        async with httpx2.AsyncClient(base_url=server.url, timeout=patient(60)) as http:
            # A session that nobody asks anything is forgotten after 15 minutes.
            forgotten = {"X-Session-ID": "forgotten"}
            created = {"env_name": "guess", "split": "train", "index": 0}
            (await http.post("/create", json=created, headers=forgotten)).raise_for_status()
            assert server.alive() == 2
            for _ in range(3):
                (await http.post("/later/20")).raise_for_status()
                assert not (await episode.call("look", {})).is_error
            assert (await http.post("/ping", headers=forgotten)).status_code == 404
        assert server.alive() == 1
    assert server.alive() == 0


async def test_secrets_reach_the_session_and_nothing_else(
    server: Released, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ITS_KEY", "not-for-everybody")
    options: dict[str, Any] = {
        "session_secrets": {"ITS_KEY": "{ITS_KEY}", "two": "x{ITS_KEY}"},
        "variables": ["ITS_KEY"],
        "splits": ["held-out"],
    }
    async with table(server.url, **options) as episodes:
        definition = episodes.environment("it")
        assert "not-for-everybody" not in repr(definition)
        assert dict(definition.options) == {"server": server.url}
        episode = await open_episode(episodes, "it")
        assert (await episode.call("knock", {})).observation.text == "ITS_KEY=17 two=18"
        with pytest.raises(EpisodeFailed), caplog.at_level("DEBUG"):
            await episode.call("guess", {"number": 0, "note": "boom"})
        # The environment said it in its message.
        assert "the dice are lost, and *** with them" in caplog.text
        trajectory = await episodes.trajectory(episode.handle, "me")
        assert "not-for-everybody" not in trajectory.model_dump_json() + caplog.text
    # Without a variable, an episode brings the secret, and nothing is asked of a task before.
    options["variables"] = []
    async with table(server.url, **options) as episodes:
        brought = {"ITS_KEY": "of-this-episode"}
        episode = await episodes.open_episode(OpenRequest("it", "me", secrets=brought))
        assert (await episode.call("knock", {})).observation.text == "ITS_KEY=15 two=16"
    broken = {**options, "session_secrets": {"broken": "{ITS_KEY}"}, "variables": ["ITS_KEY"]}
    with pytest.raises(ConfigurationError, match=r"\*\*\* opens nothing") as refused:
        load(f"ors:{server.url}", options=broken)
    assert "not-for-everybody" not in str(refused.value)
    with pytest.raises(InvalidOption, match=r"no value for \{OTHER\}"):
        load(f"ors:{server.url}", options={"session_secrets": {"a": "{OTHER}"}, "task_tools": True})
    assert server.alive() == 0


OFFICIAL = """
from openreward import OpenReward
with OpenReward() as client:
    environment = client.environments.get("Some.One/thing_1")
    environment.list_splits()
    with environment.session(split="train", index=1, secrets={"mine": ("hidden-thing", ["a.example"])}) as session:
        session.list_tools(), session.get_prompt(), session.call_tool("go", {})
"""


async def test_a_name_of_the_catalogue_is_a_deployment_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with Hostile() as standin:
        ours = await asked_of_the_catalogue(standin, monkeypatch)
        for asked in ours:
            assert (asked.headers["x-api-key"], asked.headers["x-deployment"]) == ("key-of-mine", "Some.One/thing_1")
            # The catalogue finds the server by the session, also for what needs none elsewhere.
            assert ("x-session-id" in asked.headers) == (asked.path != "/create_session")
        paths = [asked.path for asked in ours]
        assert paths.count("/delete_session") == paths.count("/create_session")
        created = next(asked for asked in ours if asked.path == "/create")
        assert created.secrets["mine"] == {"value": "hidden-thing", "allowed_domains": ["a.example"]}
        assert created.secrets["api_key"]["value"] == "key-of-mine"
        assert "search.openreward.ai" in created.secrets["api_key"]["allowed_domains"]
    with pytest.raises(InvalidOption, match="secret 'mine' needs the hosts"):
        load("ors:someone/thing", options={"session_secrets": {"mine": "x"}})
    monkeypatch.delenv("OPENREWARD_API_KEY")
    with pytest.raises(ConfigurationError, match="set the environment variable OPENREWARD_API_KEY"):
        load("ors:someone/thing")


@pytest.mark.slow
async def test_the_catalogue_is_asked_as_the_official_client_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Hostile() as standin:
        ours = await asked_of_the_catalogue(standin, monkeypatch)
        standin.asked = []
        official = await asyncio.create_subprocess_exec(
            str(openreward_python()), "-c", OFFICIAL, env=variables(), stderr=subprocess.PIPE
        )
        _, errors = await official.communicate()
        assert official.returncode == 0, errors.decode()
        theirs = standin.asked
    of_session = ("/create", "/create_session")
    carried = [
        {json.dumps(one.secrets, sort_keys=True) for one in some if one.path in of_session} for some in (ours, theirs)
    ]
    # The official client asks for lists with a session without secrets, and we do.
    assert carried[0] == carried[1]
    for path in {asked.path for asked in ours} & {asked.path for asked in theirs} - {"/delete_session"}:
        for name in ("x-api-key", "x-deployment"):
            sent = [{asked.headers.get(name) for asked in some if asked.path == path} for some in (ours, theirs)]
            assert sent[0] >= sent[1] - {None}, path


async def asked_of_the_catalogue(standin: Hostile, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What an episode asks of a stand-in for the catalogue."""
    monkeypatch.setenv("OPENREWARD_API_KEY", "key-of-mine")
    monkeypatch.setenv("OPENREWARD_URL", "https://catalogue.example")
    monkeypatch.setenv("OPENREWARD_SESSION_URL", standin.url)
    monkeypatch.setenv("MINE", "hidden-thing")
    options = {"session_secrets": {"mine": "{MINE}"}, "variables": ["MINE"], "secret_domains": {"mine": ["a.example"]}}
    async with table("Some.One/thing_1", **options) as episodes:
        assert load("ors:Some.One/thing_1", options=options).name == "thing_1"
        episode = await open_episode(episodes, "it", task=1)
        assert (await episode.call("go", {})).reward == 1.0
        assert dict(episode.spec.options) == {"server": "Some.One/thing_1"}
    assert standin.open == set()
    return list(standin.asked)


@pytest.mark.parametrize("options", [{"splits": ["held-out"]}, {"environment": "rooms"}])
def test_it_passes_the_checker(options: dict[str, Any], server: Released) -> None:
    definition = load(f"ors:{server.url}", options=options)
    report = check_environment(definition, seeds=range(1), steps=3, another_process=False)
    assert [finding for finding in report.findings if finding.level == "error"] == []
    assert server.alive() == 0


async def test_a_server_that_dies_is_a_fault_of_the_infrastructure(server: Released) -> None:
    # The last test with this server.
    async with table(server.url, splits=["held-out"]) as episodes:
        episode, other = [await open_episode(episodes, "it") for _ in range(2)]
        with pytest.raises(EpisodeFailed):
            await episode.call("guess", {"number": 0, "note": "gone"})
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.fault) == ("upstream", "infrastructure")
        assert episode.info().reward is None
        await close_episode(episodes, other)
        with pytest.raises(EpisodeFailed) as failed:
            await open_episode(episodes, "it", task=0)
        assert failed.value.reason == "upstream"
    with pytest.raises(ConfigurationError, match="could not be reached"):
        load(f"ors:{server.url}")
