"""Episodes over HTTP, with the typed clients."""

import ast
from pathlib import Path
from typing import Any

import httpx2
import pytest
from environments import SECRET, Endless, Short, Stubborn, Tasked, Tracked
from harness import RunningGateway, connect, running, texts
from patience import patient

import envport.client.aio
import envport.client.sync
from envport import AsyncClient, Client, Task, TaskSource
from envport.clock import ManualClock
from envport.episodes import Limits
from envport.errors import (
    AtCapacity,
    ConfigurationError,
    EpisodeFailed,
    GatewayUnreachable,
    InvalidRequest,
    UnknownEnvironment,
    UnknownEpisode,
    UnknownTask,
)
from envport.registry import EnvironmentDefinition, load


@pytest.fixture(scope="module")
def served():
    specs = [EnvironmentDefinition(cls.__name__.lower(), cls) for cls in (Tracked, Short, Stubborn, Tasked)]
    with running(*specs) as gateway:
        yield gateway


@pytest.fixture
def control(served: RunningGateway):
    with Client(served.url) as client:
        yield client


async def play(url: str, *calls: tuple[str, dict[str, object]]):
    async with connect(url, "modern") as client:
        return [await client.call_tool(name, arguments) for name, arguments in calls]


def test_environments_are_described(control: Client):
    names = [environment.name for environment in control.environments()]
    assert names == ["tracked", "short", "stubborn", "tasked"]
    short = control.environment("short")
    assert (short.limits.max_steps, short.reward, short.version) == (3, "last", "1")
    assert short.tools == load("environments:Short").listing
    assert short.fingerprint == load("environments:Short").fingerprint
    assert [(split.name, split.num_tasks) for split in control.environment("tasked").splits] == [
        ("train", 10**9),
        ("test", 1),
    ]


def test_tasks_come_by_page_and_lazily(control: Client):
    Endless.made = 0
    page = control.tasks("tasked", offset=10**9 - 2, limit=5)
    assert Endless.made == 2
    assert (page.split, page.total, page.offset) == ("train", 10**9, 10**9 - 2)
    assert [task.id for task in page.tasks] == ["t999999998", "t999999999"]
    assert page.tasks[0].metadata == {"difficulty": 999999998 % 3}
    assert control.tasks("tasked", split="test").tasks[0].prompt == "Do a."


def test_an_environment_without_tasks_has_an_empty_page(control: Client):
    page = control.tasks("tracked", offset=3)
    assert (page.split, page.total, page.offset, page.tasks) == ("", 0, 3, [])


@pytest.mark.parametrize(
    ("choice", "error", "said"),
    [
        ({"environment": "nope"}, UnknownEnvironment, "served: 'tracked', 'short'"),
        ({"environment": "tasked", "split": "dev"}, UnknownTask, "'train', 'test'"),
        ({"environment": "tasked", "task": 10**9}, UnknownTask, "0 to 999999999"),
        ({"environment": "tasked", "task": -1}, UnknownTask, "0 to 999999999"),
        ({"environment": "tracked", "task": 1}, InvalidRequest, "has no tasks"),
        ({"environment": "tracked", "seed": -1}, InvalidRequest, "from 0 to"),
        ({"environment": "tracked", "seed": 2**63}, InvalidRequest, "from 0 to"),
        ({"environment": "tracked", "seed": "1"}, InvalidRequest, "seed"),
        ({"environment": "tracked", "seed": True}, InvalidRequest, "seed"),
        ({"environment": "tasked", "task": {"prompt": "no id"}}, InvalidRequest, "task"),
        (
            {"environment": "tasked", "task": "first"},
            InvalidRequest,
            "^task: it has to be an index into the split, or a",
        ),
        ({"environment": "tasked", "task": True}, InvalidRequest, "task"),
    ],
)
def test_what_cannot_be_opened_is_said_clearly(control: Client, choice, error, said):
    with pytest.raises(error, match=said):
        control.open(**choice)


def test_unknown_fields_are_refused(served: RunningGateway):
    answer = httpx2.post(f"{served.url}/episodes", json={"environment": "tracked", "sede": 1})
    assert answer.status_code == 422
    assert "sede" in answer.json()["error"]["message"]


async def test_an_episode_from_open_to_end(control: Client):
    opened = control.open("tracked", seed=5)
    assert opened.observation.text == "seed 5"
    assert opened.seed == 5
    state = control.episode(opened.episode_id)
    assert (state.status, state.outcome, state.steps, state.reward) == ("running", None, 0, None)
    assert state.expires_in == pytest.approx(1800, abs=5)

    await play(opened.mcp_url, ("step", {}), ("refuse", {}), ("step", {"x": 1}), ("finish", {"reward": 1}))
    state = control.episode(opened.episode_id)
    assert (state.status, state.steps, state.errors) == ("terminated", 3, 2)
    assert state.rewards == [0.5, None, 1.0]
    assert state.reward == 1.5
    assert state.outcome is not None
    assert (state.outcome.reason, state.outcome.fault) == ("terminated", None)

    trajectory = control.trajectory(opened.episode_id)
    assert trajectory.first_observation.text == "seed 5"
    assert [(step.tool, step.error, step.reward) for step in trajectory.steps] == [
        ("step", None, 0.5),
        ("refuse", "tool_error", None),
        ("step", "invalid_arguments", None),
        ("finish", None, 1.0),
    ]
    assert trajectory.steps[-1].info == {"why": "asked to"}
    assert trajectory.steps[-1].arguments == {"reward": 1}


async def test_a_call_after_the_end_says_how_it_ended(control: Client):
    opened = control.open("tracked")
    _, late = await play(opened.mcp_url, ("finish", {"reward": 1}), ("step", {}))
    assert late.is_error
    (text,) = texts(late)
    assert text.startswith("The episode is over and takes no more calls. It terminated after 1 step. To play on, start")


async def test_the_step_limit_truncates_and_the_last_reward_counts(control: Client):
    opened = control.open("short")
    *_, last = await play(opened.mcp_url, *[("go", {})] * 3)
    assert (last.meta["envport/truncated"], last.meta["envport/outcome"]) == (True, "step_limit")
    state = control.episode(opened.episode_id)
    assert (state.status, state.reward, state.rewards) == ("truncated", 3.0, [1.0, 2.0, 3.0])


async def test_reset_starts_over(control: Client):
    opened = control.open("tasked", split="train", task=4, seed=9)
    (first,) = await play(opened.mcp_url, ("roll", {}))
    again = control.reset(opened.episode_id)
    assert (again.episode_id, again.observation) == (opened.episode_id, opened.observation)
    (second,) = await play(opened.mcp_url, ("roll", {}))
    assert texts(first) == texts(second)
    other = control.reset(opened.episode_id, seed=10)
    assert other.observation != opened.observation
    elsewhere = control.reset(opened.episode_id, split="test", task=0)
    assert elsewhere.prompt == "Do a."
    state = control.episode(opened.episode_id)
    assert (state.resets, state.steps, state.split, state.task_index) == (3, 0, "test", 0)


async def test_reset_revives_an_ended_episode(control: Client):
    opened = control.open("tracked")
    await play(opened.mcp_url, ("finish", {"reward": 1}))
    control.reset(opened.episode_id)
    (answer,) = await play(opened.mcp_url, ("step", {}))
    assert not answer.is_error
    assert control.episode(opened.episode_id).reward == 0.5


def test_tasks_of_one_s_own_and_drawn_ones(control: Client):
    own = control.open("tasked", task={"id": "mine", "prompt": "Do mine."}, seed=1)
    assert own.prompt == "Do mine."
    drawn = {control.open("tasked", seed=3).observation.text for _ in range(2)}
    assert len(drawn) == 1, "the seed chooses the task"


def test_close_frees_the_environment_and_the_handle(control: Client, served: RunningGateway):
    before = Tracked.alive
    opened = control.open("tracked")
    assert Tracked.alive == before + 1
    assert control.close_episode(opened.episode_id).status == "closed"
    assert control.close_episode(opened.episode_id).status == "closed"
    assert control.episode(opened.episode_id).status == "closed"
    with pytest.raises(UnknownEpisode):
        control.reset(opened.episode_id)
    with pytest.raises(UnknownEpisode):
        control.episode("ep_unknown")
    assert Tracked.alive == before


def test_a_broken_reset_is_a_failure_and_leaks_nothing(control: Client, served: RunningGateway, caplog):
    live = served.gateway.table.live
    with pytest.raises(EpisodeFailed) as failed:
        control.open("stubborn")
    assert failed.value.fault == "environment"
    assert SECRET not in str(failed.value)
    assert SECRET in caplog.text
    assert served.gateway.table.live == live


class Unreadable(Tasked):
    def splits(self) -> dict[str, TaskSource]:
        return {"train": UnreadableTasks()}


class UnreadableTasks(list[Task]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        raise RuntimeError(SECRET)


def test_what_nobody_foresaw_is_answered_in_the_form_of_every_error_and_tells_nothing(caplog):
    with running(EnvironmentDefinition("unreadable", Unreadable)) as gateway:
        answer = httpx2.get(f"{gateway.url}/environments/unreadable/tasks")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert SECRET not in answer.text
    assert SECRET in caplog.text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("boom", {}), ("reward_of", {"kind": "nan"}), ("reward_of", {"kind": "text"}), ("strange", {})],
)
async def test_an_environment_that_breaks_ends_as_failed_and_has_no_reward(control: Client, tool, arguments, caplog):
    opened = control.open("tracked", reward_in_meta=True)
    _, broken, after = await play(opened.mcp_url, ("step", {}), (tool, arguments), ("step", {}))
    assert broken.is_error
    assert after.is_error
    assert SECRET not in broken.model_dump_json() + after.model_dump_json()
    assert "Traceback" in caplog.text
    state = control.episode(opened.episode_id)
    assert state.status == "failed"
    assert state.outcome is not None
    assert state.outcome.fault == "environment"
    assert (broken.meta["envport/fault"], after.meta["envport/fault"]) == ("environment", "environment")
    assert state.reward is None


def test_the_reward_is_on_the_wire_only_if_asked_for(served: RunningGateway):
    with Client(served.url) as control:
        for asked in (False, True):
            opened = control.open("tracked", reward_in_meta=asked)
            bodies = b""
            with httpx2.Client(timeout=patient(30)) as http:
                for name, arguments in (("step", {}), ("finish", {"reward": 0.03125})):
                    meta = {
                        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                        "io.modelcontextprotocol/clientCapabilities": {},
                    }
                    body = {
                        "jsonrpc": "2.0",
                        "id": 1,
                        "method": "tools/call",
                        "params": {"name": name, "arguments": arguments, "_meta": meta},
                    }
                    headers = {
                        "Accept": "application/json, text/event-stream",
                        "MCP-Protocol-Version": "2026-07-28",
                        "Mcp-Method": "tools/call",
                        "Mcp-Name": name,
                    }
                    answer = http.post(opened.mcp_url, json=body, headers=headers)
                    assert answer.status_code == 200
                    bodies += answer.content + str(answer.headers.raw).encode()
            assert (b"0.03125" in bodies, b"reward" in bodies) == (asked, asked)
            assert control.episode(opened.episode_id).reward == 0.53125


async def test_idle_episodes_expire():
    clock, before = ManualClock(), Tracked.alive
    with running(EnvironmentDefinition("tracked", Tracked), clock=clock, limits=Limits(idle_seconds=60)) as gateway:
        async with AsyncClient(gateway.url) as control:
            kept, left = await control.open("tracked"), await control.open("tracked")
            gateway.run(lambda: clock.advance(40))
            await control.keep_alive(kept.episode_id)
            gateway.run(lambda: clock.advance(40))
            state = await control.episode(left.episode_id)
            assert state.status == "expired"
            assert state.outcome is not None
            assert state.outcome.fault is None
            assert (await control.episode(kept.episode_id)).status == "running"
            assert Tracked.alive == before + 1
            (answer,) = await play(left.mcp_url, ("step", {}))
            (unknown,) = await play(left.mcp_url.replace(left.episode_id, "ep_never"), ("step", {}))
            assert answer.model_dump() == unknown.model_dump()
            assert "start_episode" in texts(answer)[0]
            gateway.run(lambda: clock.advance(200))
            with pytest.raises(UnknownEpisode):
                await control.episode(left.episode_id)


async def test_past_capacity_is_a_clear_refusal_with_when_to_try_again():
    limits = Limits(max_episodes=2, wait_seconds=0)
    with running(EnvironmentDefinition("tracked", Tracked), limits=limits) as gateway:
        async with AsyncClient(gateway.url) as control:
            one, _ = await control.open("tracked"), await control.open("tracked")
            with pytest.raises(AtCapacity, match="all 2 episodes") as refused:
                await control.open("tracked")
            assert refused.value.retry_after >= 1
            answer = httpx2.post(f"{gateway.url}/episodes", json={"environment": "tracked"})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            async with connect(f"{gateway.url}/environments/tracked/mcp", "modern") as client:
                full = await client.call_tool("start_episode", {})
            assert full.is_error
            assert "No room" in texts(full)[0]
            await play(one.mcp_url, ("finish", {"reward": 0}))
            await control.open("tracked")


def test_health_and_readiness(served: RunningGateway):
    assert httpx2.get(f"{served.url}/healthz").json() == {"status": "ok"}
    ready = httpx2.get(f"{served.url}/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")


def test_openapi_describes_every_route(served: RunningGateway):
    paths = httpx2.get(f"{served.url}/openapi.json").json()["paths"]
    assert {"/environments", "/environments/{name}/tasks", "/episodes", "/episodes/{episode_id}"} <= set(paths)
    for operations in paths.values():
        for operation in operations.values():
            assert operation["description"] or operation["summary"]


def test_no_gateway_is_a_clear_error():
    with Client("http://127.0.0.1:9") as client, pytest.raises(GatewayUnreachable, match=r"127\.0\.0\.1:9"):
        client.environments()


def test_the_two_clients_are_one():
    """The sync client is the async one without its awaits."""

    def shape(module) -> str:
        source = Path(module.__file__).read_text()
        for old, new in (
            ("async def ", "def "),
            ("await ", ""),
            ("AsyncClient", "Client"),
            ("__aenter__", "__enter__"),
            ("__aexit__", "__exit__"),
            ("self._http.aclose", "self._http.close"),
            ("aclose", "close"),
            ("The async client", "The sync client"),
            ("For async code.", "Blocks until each answer."),
        ):
            source = source.replace(old, new)
        return ast.dump(ast.parse(source))

    assert shape(envport.client.aio) == shape(envport.client.sync)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://here:8000/environments/catch", "that of its gateway is needed here: http://here:8000$"),
        ("https://here/games/environments/catch/mcp", "needed here: https://here/games$"),
        ("127.0.0.1:8000", "'127.0.0.1:8000' is no address of a gateway, such as http://127.0.0.1:8000$"),
        ("http://", "'http://' is no address of a gateway"),
        ("http://[::1", "is no address of a gateway"),
        ("http://here:99999", "is no address of a gateway"),
    ],
)
def test_a_client_says_whose_address_it_needs(client: type[Client] | type[AsyncClient], url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        client(url)
