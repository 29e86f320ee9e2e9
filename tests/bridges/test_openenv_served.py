"""OpenEnv's protocol in front of our environments, as its clients speak it, message by message."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import httpx2
import pytest
from environments import Gate
from harness import RunningGateway, running
from patience import patient
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from envport import AsyncClient, Client, Environment, Step, Task, ToolError, tool
from envport.access import Access, Principal, Scope
from envport.clock import ManualClock
from envport.episodes import Limits
from envport.errors import MissingExtra
from envport.registry import EnvironmentDefinition, load
from envport.tools.sampling import ArgumentSampler
from envport_bridges.audit.catalogue import ENTRIES
from envport_bridges.openenv import openenv_surface
from envport_bridges.rollouts import Rollouts

SURFACES = {"openenv": openenv_surface}
TRAINER, OTHER, PLAYER = (f"{name}-0123456789abcdef" for name in ("trainer", "other", "player"))
SCOPES: dict[str, frozenset[Scope]] = {
    TRAINER: frozenset({"control", "play"}),
    OTHER: frozenset({"control", "play"}),
    PLAYER: frozenset({"play"}),
}


class Fragile(Environment):
    """Breaks when it is told to."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        if seed == 13:
            raise RuntimeError("the secret cause")
        return "whole"

    @tool
    def break_it(self) -> Step[str]:
        """Break."""
        raise RuntimeError("the secret cause")

    @tool
    def touch(self, hard: bool = False) -> Step[str]:
        """Touch it.

        Args:
            hard: Whether it refuses.
        """
        if hard:
            raise ToolError("not so hard")
        return Step("touched", reward=0.25)


class Judged(Environment):
    """Its final state is scored."""

    def reset(self, *, seed: int, task: Task | None) -> None:
        self.broken = seed == 13

    @tool
    def submit(self, answer: int) -> Step[str]:
        """Submit.

        Args:
            answer: The answer.
        """
        self.answer = answer
        return Step("submitted", reward=0.5, terminated=True)

    def score(self) -> float:
        if self.broken:
            raise RuntimeError("the secret cause")
        return float(self.answer)


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningGateway]:
    tokens = [
        (hashlib.sha256(token.encode()).digest(), Principal(token[:5], scopes)) for token, scopes in SCOPES.items()
    ]
    served = (load("catch"), load("counter"), load("showcase"), *map(_defined, (Fragile, Judged)))
    with running(*served, access=Access(tokens), environment_surfaces=SURFACES) as gateway:
        yield gateway


def _defined(cls: type[Environment]) -> EnvironmentDefinition:
    return EnvironmentDefinition(cls.__name__.lower(), cls)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Line:
    """The client's end of a session."""

    def __init__(self, socket: ClientConnection):
        self.socket = socket

    async def ask(self, kind: str, data: Any = None) -> tuple[str, dict[str, Any]]:
        await self.socket.send(json.dumps({"type": kind} if data is None else {"type": kind, "data": data}))
        return await self.receive()

    async def receive(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(patient(20)):
            message = json.loads(await self.socket.recv())
        assert set(message) == {"type", "data"}
        return message["type"], message["data"]

    async def observed(self, kind: str, data: Any = None) -> dict[str, Any]:
        answered, told = await self.ask(kind, data)
        assert answered == "observation", told
        return told

    async def refused(self, kind: str, data: Any = None) -> tuple[str, str]:
        answered, told = await self.ask(kind, data)
        assert answered == "error", told
        return told["code"], told["message"]

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return await self.observed("step", {"type": "call_tool", "tool_name": name, "arguments": arguments})


@asynccontextmanager
async def line(
    gateway: RunningGateway, environment: str, token: str | None = TRAINER, query: str = ""
) -> AsyncIterator[Line]:
    url = f"ws://127.0.0.1:{gateway.port}/environments/{environment}/openenv/ws{query}"
    headers = bearer(token) if token is not None else {}
    async with connect(url, additional_headers=headers, open_timeout=patient(20)) as socket:
        yield Line(socket)


async def test_an_episode_is_played_to_its_end_with_the_rewards_of_every_other_way(guarded: RunningGateway):
    async with line(guarded, "catch") as trainer:
        for seed in (3, 4):
            first = await trainer.observed("reset", {"seed": seed, "episode_id": "mine"})
            assert (first["reward"], first["done"], first["metadata"]["seed"]) == (None, False, seed)
            seen, rewards, done = [first["observation"]["text"]], [], False
            while not done:
                told = await trainer.call("move", direction="right")
                done = told["done"]
                seen.append(told["observation"]["text"])
                rewards.append(told["reward"])
            assert await trainer.ask("state") == ("state", {"episode_id": "mine", "step_count": len(rewards)})
            with Rollouts("catch").open(seed=seed) as rollout:
                assert seen[0] == rollout.observation.text
                for text in seen[1:]:
                    assert rollout.call("move", {"direction": "right"}).content[0]["text"] == text
                assert list(rollout.rewards) == rewards
    # The last word of a session has no answer.
    async with line(guarded, "catch") as trainer:
        await trainer.socket.send('{"type": "close"}')
        await trainer.socket.wait_closed()
        assert trainer.socket.close_code == 1000


async def test_a_call_may_be_written_in_three_ways_and_a_refused_one_changes_nothing(guarded: RunningGateway):
    async with line(guarded, "catch") as trainer:
        tools = (await trainer.observed("step", {"type": "list_tools"}))["observation"]["tools"]
        assert [json.dumps(tool["input_schema"]) for tool in tools] == [
            json.dumps(tool["inputSchema"]) for tool in load("catch").listing
        ]
        await trainer.observed("reset", {"seed": 1})
        for action in (
            {"type": "call_tool", "tool_name": "move", "arguments": {"direction": "left"}, "metadata": {}},
            {"tool_name": "move", "arguments": {"direction": "left"}},
            {"direction": "left"},
        ):
            told = await trainer.observed("step", action)
            assert told["observation"]["error"] is None
            assert told["observation"]["result"]["data"] == told["observation"]["text"]
        told = await trainer.call("move", direction="up")
        assert told["observation"]["error"]["error_type"] == "invalid_args"
        assert '"left", "stay", "right"' in told["observation"]["error"]["message"]
        assert (told["reward"], told["done"]) == (None, False)
        assert (await trainer.call("fly"))["observation"]["error"]["error_type"] == "tool_not_found"
        assert (await trainer.ask("state"))[1]["step_count"] == 3


WRONG = [
    ("{", "INVALID_JSON"),
    (b'{"type": "state"}', "INVALID_JSON"),
    ('{"type": "step", "data": {"number": NaN}}', "INVALID_JSON"),
    ("[1]", "VALIDATION_ERROR"),
    ("7", "VALIDATION_ERROR"),
    ("{}", "UNKNOWN_TYPE"),
    ('{"type": ["step"]}', "UNKNOWN_TYPE"),
    ('{"type": "render"}', "UNKNOWN_TYPE"),
    ('{"type": "step"}', "VALIDATION_ERROR"),
    ('{"type": "step", "data": [1]}', "VALIDATION_ERROR"),
    ('{"type": "state", "id": 4}', "VALIDATION_ERROR"),
    ('{"type": "step", "data": {"type": "list_tools", "more": 1}}', "VALIDATION_ERROR"),
    ('{"type": "step", "data": {"type": "call_tool", "tool_name": 4}}', "VALIDATION_ERROR"),
    ('{"type": "step", "data": {"type": "call_tool", "tool_name": "count", "args": {}}}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"seed": "abc"}}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"seeed": 1}}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"episode_id": ""}}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"task": 3}}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"split": "no"}}', "VALIDATION_ERROR"),
]


async def test_what_is_wrong_is_said_and_the_session_goes_on(guarded: RunningGateway):
    async with line(guarded, "counter") as trainer:
        assert await trainer.refused("step", {"type": "call_tool", "tool_name": "count"}) == (
            "SESSION_ERROR", "there is no episode to step: reset first",
        )  # fmt: skip
        for text, code in WRONG:
            await trainer.socket.send(text)
            kind, told = await trainer.receive()
            assert (kind, told["code"]) == ("error", code), (text, told)
            assert told["message"]
        await trainer.observed("reset")
        assert (await trainer.call("count"))["observation"]["text"] == "1"
        for text, _ in WRONG:
            await trainer.socket.send(text)
            assert (await trainer.receive())[0] == "error"
        # A reset that is malformed has not closed the episode before it.
        assert (await trainer.call("count"))["observation"]["text"] == "2"


async def test_a_lost_episode_is_an_error_and_never_an_observation(guarded: RunningGateway):
    async with line(guarded, "fragile") as trainer:
        code, message = await trainer.refused("reset", {"seed": 13})
        assert code == "FACTORY_ERROR"
        assert "secret" not in message
        await trainer.observed("reset", {"seed": 1})
        assert (await trainer.call("touch"))["reward"] == 0.25
        refused = await trainer.call("touch", hard=True)
        assert (refused["observation"]["result"]["is_error"], refused["done"]) == (True, False)
        for _ in range(2):
            code, message = await trainer.refused("step", {"tool_name": "break_it"})
            assert code == "SESSION_ERROR"
            assert "secret" not in message
        await trainer.observed("reset", {"seed": 2})
        assert (await trainer.call("touch"))["observation"]["text"] == "touched"


async def test_the_last_reward_has_the_score_of_the_final_state(guarded: RunningGateway):
    async with line(guarded, "judged") as trainer:
        await trainer.observed("reset", {"seed": 1})
        told = await trainer.call("submit", answer=3)
        assert (told["reward"], told["done"]) == (3.5, True)
        # After its end, a step is an error, which a trainer cannot take for a reward.
        assert (await trainer.refused("step", {"answer": 3}))[0] == "EXECUTION_ERROR"
        await trainer.observed("reset", {"seed": 13})
        assert (await trainer.refused("step", {"answer": 3}))[0] == "SESSION_ERROR"


async def test_one_place_is_one_session_and_it_is_free_when_the_client_has_left():
    with running(load("counter"), limits=Limits(1, wait_seconds=0), environment_surfaces=SURFACES) as gateway:
        async with line(gateway, "counter", None) as trainer, line(gateway, "counter", None) as late:
            await trainer.observed("reset")
            # The episode before gives its place to the next.
            await trainer.observed("reset")
            kind, full = await late.ask("reset")
            assert (kind, full["code"]) == ("error", "CAPACITY_REACHED")
            assert (full["active_sessions"], full["max_sessions"]) == (1, 1)
        await _none_live(gateway)


async def test_a_client_that_leaves_ends_its_episode_also_while_a_call_is_running():
    Gate.rearm()
    with running(EnvironmentDefinition("gate", Gate), environment_surfaces=SURFACES) as gateway:
        async with line(gateway, "gate", None) as trainer:
            handle = (await trainer.observed("reset"))["metadata"]["episode_id"]
            await trainer.socket.send(json.dumps({"type": "step", "data": {"type": "call_tool", "tool_name": "wait"}}))
            await asyncio.to_thread(Gate.entered.acquire)
        async with AsyncClient(gateway.url) as control, asyncio.timeout(patient(20)):
            while (await control.episode(handle)).status == "running":
                pass
            Gate.opened.set()
            assert (await control.episode(handle)).status == "closed"
        await _none_live(gateway)


async def test_an_episode_lasts_as_long_as_its_connection():
    # The gateway's clock is moved by hand; the interval in which the connection renews it is real, and short.
    clock, limits = ManualClock(), Limits(idle_seconds=0.6)
    with running(load("counter"), limits=limits, clock=clock, environment_surfaces=SURFACES) as gateway:
        async with line(gateway, "counter", None) as trainer:
            handle = (await trainer.observed("reset"))["metadata"]["episode_id"]
            async with AsyncClient(gateway.url) as control, asyncio.timeout(patient(20)):
                for _ in range(4):
                    await asyncio.to_thread(gateway.run, lambda: clock.advance(0.4))
                    while (await control.episode(handle)).expires_in != pytest.approx(0.6):
                        pass
            assert (await trainer.call("count"))["observation"]["text"] == "1"


async def _none_live(gateway: RunningGateway) -> None:
    async with AsyncClient(gateway.url) as control, asyncio.timeout(patient(20)):
        while any(info.status == "running" for info in await control.episodes()):
            pass


def test_http_plays_an_episode_that_its_id_names(guarded: RunningGateway):
    base, headers = f"{guarded.url}/environments/catch/openenv", bearer(TRAINER)
    assert httpx2.get(f"{base}/health", headers=headers).json() == {"status": "healthy"}
    assert httpx2.get(f"{base}/metadata", headers=headers).json()["name"] == "catch"
    schema = httpx2.get(f"{base}/schema", headers=headers).json()
    assert schema["action"]["anyOf"][0]["properties"]["arguments"] == load("catch").listing[0]["inputSchema"]
    opened = httpx2.post(f"{base}/reset", headers=headers, json={"seed": 3}).json()
    handle = opened["metadata"]["episode_id"]
    step = {"action": {"direction": "left"}, "episode_id": handle}
    told = httpx2.post(f"{base}/step", headers=headers, json=step).json()
    assert (told["reward"], told["done"]) == (0.0, False)
    state = httpx2.get(f"{base}/state", headers=headers, params={"episode_id": handle}).json()
    assert state == {"episode_id": handle, "step_count": 1}
    nameless = httpx2.post(f"{base}/step", headers=headers, json={"action": {"direction": "left"}})
    assert nameless.status_code == 422
    assert "episode_id has to name the episode" in nameless.text
    assert httpx2.post(f"{base}/step", headers=bearer(OTHER), json=step).status_code == 404
    assert httpx2.get(f"{guarded.url}/environments/nothing/openenv/schema", headers=headers).status_code == 404
    with Client(guarded.url, token=TRAINER) as control:
        assert control.close_episode(handle).status == "closed"


async def test_tools_may_be_called_over_http_in_the_session_of_a_socket(guarded: RunningGateway):
    url = f"{guarded.url}/environments/counter/openenv/mcp"

    async def ask(method: str, token: str = TRAINER, **params: Any) -> Any:
        async with httpx2.AsyncClient(headers=bearer(token)) as client:
            answer = await client.post(url, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        assert answer.status_code == 200
        told = answer.json()
        return told.get("result") or told["error"]

    session = (await ask("openenv/session/create"))["session_id"]
    assert "reset first" in (await ask("tools/call", session_id=session, name="count"))["message"]
    async with line(guarded, "counter", query=f"?session_id={session}") as trainer:
        await trainer.observed("reset")
        assert [tool["name"] for tool in (await ask("tools/list", session_id=session))["tools"]] == ["count"]
        assert (await ask("tools/call", session_id=session, name="count"))["data"] == "1"
        assert (await trainer.call("count"))["observation"]["text"] == "2"
        kind, told = await trainer.ask("mcp", {"jsonrpc": "2.0", "id": 7, "method": "tools/call",
                                               "params": {"name": "count"}})  # fmt: skip
        assert (kind, told["id"], told["result"]["data"]) == ("mcp", 7, "3")
        assert (await ask("tools/call", token=OTHER, session_id=session, name="count"))["code"] == -32602
        assert (await ask("tools/call", session_id=session, name="no"))["code"] == -32602
        assert (await ask("initialize", session_id=session))["code"] == -32601
    with pytest.raises(InvalidStatus) as caught:
        async with line(guarded, "counter", query="?session_id=unknown"):
            pass
    assert caught.value.response.status_code == 404
    second = (await ask("openenv/session/create"))["session_id"]
    assert await ask("openenv/session/close", session_id=second) == {"closed": True}
    assert (await ask("tools/list", session_id=second))["code"] == -32602


@pytest.mark.parametrize(("token", "status"), [(PLAYER, 403), ("episode", 403), ("wrong-token-0123456789", 401)])
async def test_it_is_for_trainers_alone(guarded: RunningGateway, token: str, status: int):
    with Client(guarded.url, token=TRAINER) as control:
        opened = control.open("counter", mint_token=True)
        try:
            given = opened.token or "" if token == "episode" else token
            with pytest.raises(InvalidStatus) as caught:
                async with line(guarded, "counter", given):
                    pass
            assert caught.value.response.status_code == status
            url = f"{guarded.url}/environments/counter/openenv/reset"
            assert httpx2.post(url, headers=bearer(given)).status_code == status
        finally:
            control.close_episode(opened.episode_id)


QUICK = frozenset({"echo", "counter", "catch", "maze", "showcase", "sudoku?size=4&blanks=6"})
CALLS = 12


@pytest.mark.parametrize(
    "reference",
    [pytest.param(entry.reference, marks=[] if entry.reference in QUICK else [pytest.mark.slow]) for entry in ENTRIES],
)
async def test_every_environment_of_the_catalogue_gives_what_it_gives_elsewhere(reference: str):
    try:
        definition = load(reference)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    rng = Random(7)
    with running(definition, environment_surfaces=SURFACES) as gateway, Rollouts(reference).open(seed=11) as rollout:
        async with line(gateway, definition.name, None) as trainer:
            first = await trainer.observed("reset", {"seed": 11})
            assert first["observation"]["text"] == rollout.observation.text
            assert first["observation"]["content"] == list(rollout.observation.content)
            told, rewards = first, []
            while not told["done"] and len(rewards) < CALLS:
                chosen = rng.choice(rollout.tools)
                arguments = ArgumentSampler(chosen["inputSchema"]).sample(rng)
                told = await trainer.call(chosen["name"], **arguments)
                reply = rollout.call(chosen["name"], arguments)
                seen = told["observation"]
                assert (seen["content"], seen["result"]["is_error"]) == (list(reply.content), reply.is_error)
                rewards.append(told["reward"])
            assert told["done"] == (rollout.outcome is not None)
            if told["done"]:
                total = rollout.finish()
                given = [reward for reward in rewards if reward is not None]
                assert total == (None if not given else sum(given) if definition.cls.reward == "sum" else given[-1])
