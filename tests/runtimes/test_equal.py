"""What an environment gives does not depend on what runs it."""

import asyncio
import json
from typing import Any

import anyio
import httpx2
import pytest
from harness import running
from opening import close_episode, open_episode, start_over
from patience import patient
from runtime_environments import SECRET, Everything, Gentle
from runtimes import KINDS, play, serving

from envport import Client, Task
from envport.environment import RuntimeKind
from envport.episodes import CallResult, Episode
from envport.errors import EpisodeFailed, EpisodeOver, InvalidArguments, InvalidRequest
from envport.registry import EnvironmentDefinition, load

EVERYTHING = EnvironmentDefinition("everything", Everything)
GENTLE = EnvironmentDefinition("gentle", Gentle)

SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("draw", {}),
    ("options", {}),
    *(("give", {"what": what}) for what in ("text", "nothing", "number", "image", "model", "data", "mixed", "odd")),
    ("say", {"text": 'it\'s "quoted"\n\x00 Größe 😀'}),
    ("say", {"text": "a\ud800b"}),
    ("say", {"text": "x" * 300_000}),
    ("nest", {"value": {"a": [1, 1.0, -0.0, 2**70, None, True, {"": []}]}}),
    ("fill", {"characters": 3_000_000}),
    ("earn", {}),
    ("earn", {"reward": 0.1}),
    ("earn", {"reward": -1.0}),
    ("refuse", {}),
    # Refused arguments.
    ("say", {}),
    ("say", {"text": 1}),
    ("say", {"text": "a", "loud": True}),
    ("give", {"what": "it"}),
    ("earn", {"reward": "1"}),
    ("nest", {"value": [float("nan")]}),
    ("shout", {"text": "out\n" * 3}),
    ("draw", {}),
    ("earn", {"reward": 1.0, "ends": "terminated"}),
    ("draw", {}),
]


async def attempt(episode: Episode, tool: str, arguments: dict[str, Any]) -> CallResult | tuple[str, str]:
    try:
        return await episode.call(tool, arguments)
    except (InvalidArguments, EpisodeFailed, EpisodeOver) as error:
        return type(error).__name__, str(error)


async def story(kind: RuntimeKind, seed: int = 3) -> dict[str, Any]:
    """Everything that comes of a script."""
    async with serving(EVERYTHING, runtime=kind) as episodes:
        episode = await open_episode(episodes, "everything", seed=seed)
        results = [await attempt(episode, tool, arguments) for tool, arguments in SCRIPT]
        differs = {"episode_id", "created_at", "ended_at", "expires_in", "environment_seconds"}
        info = episode.info().model_dump(exclude=differs)
        _, records, _ = await episodes.trajectories.read(episode.handle)
        return {
            "first": episode.first_observation,
            "results": results,
            "info": info,
            "records": [record.model_dump(exclude={"started_at", "seconds"}) for record in records],
        }


@pytest.fixture(scope="module")
def inline_story() -> dict[str, Any]:
    return asyncio.run(story("inline"))


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_calls_give_the_same(kind: RuntimeKind, inline_story: dict[str, Any]):
    told = await story(kind)
    for mine, its in zip(told["results"], inline_story["results"], strict=True):
        assert mine == its
    assert told == inline_story


@pytest.mark.parametrize("kind", KINDS)
async def test_another_seed_gives_another(kind: RuntimeKind, inline_story: dict[str, Any]):
    async with serving(EVERYTHING, runtime=kind) as episodes:
        assert (await open_episode(episodes, "everything", seed=4)).first_observation != inline_story["first"]
        assert (await open_episode(episodes, "everything", seed=3)).first_observation == inline_story["first"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reset_starts_over(kind: RuntimeKind):
    async with serving(EVERYTHING, runtime=kind) as episodes:
        episode = await open_episode(episodes, "everything", seed=5)
        drawn = await play(episode, "draw")
        await start_over(episodes, episode)
        assert await play(episode, "draw") == drawn
        await start_over(episodes, episode, seed=6)
        assert await play(episode, "draw") != drawn


@pytest.mark.parametrize("kind", KINDS)
async def test_tasks_arrive_whole(kind: RuntimeKind):
    task = Task(id="t", prompt="Do it.", metadata={"answer": [1, 2.5, None, "\ud800", {"deep": True}]})
    async with serving(EVERYTHING, runtime=kind) as episodes:
        episode = await open_episode(episodes, "everything", task=task, seed=1)
    given = json.loads(episode.first_observation.content[-1]["text"])["task"]
    assert given["metadata"]["answer"][:3] == [1, 2.5, None]


@pytest.mark.parametrize("kind", KINDS)
async def test_options_arrive_as_their_types(kind: RuntimeKind):
    spec = load("runtime_environments:Everything?greeting=Hi&numbers=[3,4]&folder=/tmp")
    async with serving(spec, runtime=kind) as episodes:
        episode = await open_episode(episodes, "everything")
        assert episode.first_observation.text.startswith("Hi")
        (block,) = (await episode.call("options", {})).observation.content
    assert block["text"] == '{"options": [[3, 4], "/tmp", "PosixPath"]}'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool", ["boom", "leave", "strange"])
async def test_what_breaks_ends_the_episode_and_says_nothing_of_the_inside(
    kind: RuntimeKind, tool: str, caplog: pytest.LogCaptureFixture
):
    async with serving(EVERYTHING, runtime=kind) as episodes:
        episode = await open_episode(episodes, "everything")
        await episode.call("earn", {"reward": 1.0})
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call(tool, {})
        with pytest.raises(EpisodeOver):
            await episode.call("draw", {})
    assert episode.outcome is not None
    assert (episode.status, episode.outcome.reason, episode.outcome.fault) == (
        "failed",
        "environment_error",
        "environment",
    )
    assert episode.reward is None
    assert SECRET not in f"{failed.value} {episode.outcome}"
    if tool == "boom":
        assert SECRET in caplog.text, "the log does not say what happened"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", [EVERYTHING, GENTLE], ids=lambda spec: spec.name)
async def test_an_environment_says_that_what_it_stands_on_has_failed(
    kind: RuntimeKind, spec: EnvironmentDefinition, caplog: pytest.LogCaptureFixture
):
    async with serving(spec, runtime=kind) as episodes:
        episode = await open_episode(episodes, spec.name)
        with pytest.raises(EpisodeFailed, match=r"has failed\. The episode has ended") as failed:
            await episode.call("lose", {})
        assert episodes.live == 0
    assert episode.outcome is not None
    assert (episode.status, episode.outcome.reason, episode.outcome.fault) == ("failed", "upstream", "infrastructure")
    assert episode.reward is None
    assert SECRET not in f"{failed.value} {episode.outcome}"
    assert SECRET in caplog.text
    if spec is EVERYTHING:
        assert "by the server" in caplog.text, "the log does not say what caused it"


def starting(how: str) -> Task:
    return Task(id=how, metadata={"at_reset": how})


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_while_it_begins(kind: RuntimeKind):
    async with serving(EVERYTHING, runtime=kind) as episodes:
        with pytest.raises(EpisodeFailed, match="has failed"):
            await open_episode(episodes, "everything", task=starting("lose"))
        assert episodes.live == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_that_the_environment_refuses_is_the_callers_mistake(
    kind: RuntimeKind, caplog: pytest.LogCaptureFixture
):
    async with serving(EVERYTHING, runtime=kind, max_episodes=1, wait_seconds=0) as episodes:
        for _ in range(2):
            # The place is given back each time.
            with pytest.raises(InvalidRequest, match="There is no such level"):
                await open_episode(episodes, "everything", task=starting("refuse"))
        episode = await open_episode(episodes, "everything", task=starting("well"))
        with pytest.raises(InvalidRequest, match="There is no such level"):
            await start_over(episodes, episode, task=starting("refuse"))
        assert episode.outcome is not None
        assert (episode.status, episode.outcome.reason, episode.reward) == ("failed", "refused", None)
        assert episodes.live == 0
        await start_over(episodes, episode, task=starting("well"))
        assert episode.status == "running"
        await episode.call("draw", {})
    assert not caplog.records, "a mistake of the caller's is no fault to be logged"


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_task_is_a_refused_request(kind: RuntimeKind):
    with running(EVERYTHING, runtime=kind) as gateway, Client(gateway.url) as control:
        with pytest.raises(InvalidRequest, match="There is no such level"):
            control.open("everything", task=starting("refuse"))
        body = {"environment": "everything", "task": starting("refuse").model_dump()}
        assert httpx2.post(f"{gateway.url}/episodes", json=body).status_code == 422
        assert httpx2.get(f"{gateway.url}/readyz").json()["live"] == 0
        with pytest.raises(EpisodeFailed, match="has failed"):
            control.open("everything", task=starting("lose"))


@pytest.mark.parametrize("kind", KINDS)
async def test_progress_arrives_in_order_and_only_where_it_was_asked_for(kind: RuntimeKind):
    heard: list[tuple[float, float | None, str | None]] = []

    def hear(progress: float, total: float | None = None, message: str | None = None) -> None:
        heard.append((progress, total, message))

    async with serving(EVERYTHING, runtime=kind) as episodes:
        episode = await open_episode(episodes, "everything")
        await episode.call("toil", {"steps": 3}, hear)
        await episode.call("toil", {"steps": 3})
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, None, None)]


@pytest.mark.parametrize("kind", KINDS)
async def test_async_environments_have_an_event_loop_that_runs_on(kind: RuntimeKind):
    async with serving(GENTLE, runtime=kind) as episodes:
        episode = await open_episode(episodes, "gentle")
        assert [await play(episode, "next_tick") for _ in range(3)] == ["0", "1", "2"]
        assert (await episode.call("refuse", {})).is_error
        if kind != "thread":
            assert await play(episode, "at_once") == "at once"
        await close_episode(episodes, episode)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_async_call_past_its_deadline_ends_the_episode(kind: RuntimeKind):
    async with serving(GENTLE, runtime=kind, call_seconds=0.2) as episodes:
        episode = await open_episode(episodes, "gentle")
        with pytest.raises(EpisodeFailed, match=r"longer than its limit of 0\.2 s"):
            await episode.call("hang", {})
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.fault) == ("deadline", "environment")
        assert episodes.live == 0


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_async_call_that_ignores_its_cancellation_is_past_its_deadline(
    kind: RuntimeKind, returns: bool, caplog: pytest.LogCaptureFixture
):
    async with serving(GENTLE, runtime=kind, call_seconds=0.2) as episodes:
        episode = await open_episode(episodes, "gentle")
        with anyio.fail_after(patient(5)), pytest.raises(EpisodeFailed, match=r"longer than its limit of 0\.2 s"):
            await episode.call("swallow", {"returns": returns})
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.reward, episodes.live) == ("deadline", None, 0)
    left_running = "environment gentle: the call was cancelled, but runs on in the event loop" in caplog.text
    assert left_running == (kind != "process" and not returns)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reset_past_its_deadline_ends_the_episode(kind: RuntimeKind):
    stuck = EnvironmentDefinition("stuck", Gentle, {"stuck": True})
    async with serving(stuck, runtime=kind, reset_seconds=3.0 if kind == "process" else 0.2) as episodes:
        with pytest.raises(EpisodeFailed, match="longer than its limit"):
            await open_episode(episodes, "stuck")
        assert episodes.live == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_wire_is_the_same(kind: RuntimeKind):
    with running(EVERYTHING, runtime=kind) as gateway, Client(gateway.url) as control:
        opened = control.open("everything", seed=3)
        assert [block["type"] for block in opened.observation.content] == ["text", "image", "text"]
        assert json.loads(opened.observation.content[-1]["text"])["seed"] == 3
        assert control.environment("everything").fingerprint == EVERYTHING.fingerprint
        control.close_episode(opened.episode_id)
