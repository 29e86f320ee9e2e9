"""The rollout channel: a trainer opens and plays any number of episodes on one WebSocket."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from command_line import Served
from environments import Gate
from harness import RunningGateway, running
from patience import patient
from scored_environments import Judged
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from envport import AsyncClient, Environment, Task, tool
from envport.access import Access, Principal, Scope
from envport.episodes import Limits
from envport.registry import EnvironmentDefinition, load

TRAINER, OTHER, WATCHER, PLAYER = (f"{name}-0123456789abcdef" for name in ("trainer", "other", "watcher", "player"))
SCOPES: dict[str, frozenset[Scope]] = {
    TRAINER: frozenset({"control", "play"}),
    OTHER: frozenset({"control", "play"}),
    WATCHER: frozenset({"control"}),
    PLAYER: frozenset({"play"}),
}
GATE = EnvironmentDefinition("gate", Gate)


class Long(Environment):
    """Computes in the gateway's event loop; one tool until the test has heard of the other."""

    heard: ClassVar[threading.Event] = threading.Event()

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def work(self) -> str:
        """Compute for a while."""
        return str(sum(range(200_000)))

    @tool
    def work_until_heard(self) -> str:
        """Compute until the test says so."""
        return str(self.heard.wait(patient(20)))


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningGateway]:
    tokens = [
        (hashlib.sha256(token.encode()).digest(), Principal(token[:5], scopes)) for token, scopes in SCOPES.items()
    ]
    with running(load("counter"), load("catch"), load("showcase"), access=Access(tokens)) as gateway:
        yield gateway


class Line:
    """The client's end of a channel, without a library of ours."""

    def __init__(self, socket: ClientConnection):
        self.socket = socket
        self._number = 0

    async def send(self, method: str, params: Any, *, text: bool = True) -> int:
        self._number += 1
        message = json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        await self.socket.send(message if text else message.encode())
        return self._number

    async def receive(self) -> Any:
        async with asyncio.timeout(patient(20)):
            return json.loads(await self.socket.recv())

    async def ask(self, method: str, params: Any) -> Any:
        number = await self.send(method, params)
        answer = await self.receive()
        assert answer["id"] == number
        return answer.get("result") or answer["error"]

    async def open(self, environment: str, **fields: Any) -> str:
        opened = await self.ask("episodes/open", {"environment": environment, "name": uuid4().hex, **fields})
        return opened["episode_id"]

    async def call(self, handle: str, tool: str, arguments: Any = None, **meta: Any) -> Any:
        return await self.ask("tools/call", calling(handle, tool, arguments, **meta))


def calling(handle: str, tool: str, arguments: Any = None, **meta: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments or {}, "_meta": {"envport/episode_id": handle, **meta}}


@asynccontextmanager
async def line(gateway: RunningGateway, token: str | None = TRAINER, *subprotocols: str) -> AsyncIterator[Line]:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    url = f"ws://127.0.0.1:{gateway.port}/rollouts"
    protocols = [Subprotocol(name) for name in subprotocols] or None
    async with connect(url, additional_headers=headers, subprotocols=protocols, open_timeout=patient(20)) as socket:
        yield Line(socket)


async def test_an_episode_is_opened_played_and_closed(guarded: RunningGateway):
    async with line(guarded) as trainer:
        opened = await trainer.ask("episodes/open", {"environment": "catch", "name": "one", "seed": 3})
        handle = opened["episode_id"]
        assert opened["seed"] == 3
        assert opened["observation"]["content"][0]["text"]
        listed = await trainer.ask("tools/list", {"_meta": {"envport/episode_id": handle}})
        assert json.dumps(listed["tools"]) == json.dumps(load("catch").listing)
        moved = await trainer.call(handle, "move", {"direction": "stay"})
        assert (moved["isError"], moved["_meta"]["envport/step"]) == (False, 1)
        assert (await trainer.ask("episodes/keep_alive", {"episode_id": handle}))["steps"] == 1
        assert (await trainer.ask("episodes/legal_calls", {"episode_id": handle}))["calls"] is None
        while not moved["_meta"]["envport/terminated"]:
            moved = await trainer.call(handle, "move", {"direction": "stay"})
        assert moved["_meta"]["envport/reward"] in (1.0, -1.0)
        finished = await trainer.ask("episodes/finish", {"episode_id": handle})
        assert finished["reward"] == moved["_meta"]["envport/reward"]
        assert (await trainer.ask("episodes/close", {"episode_id": handle}))["status"] == "closed"
        assert (await trainer.ask("episodes/state", {"episode_id": handle}))["outcome"]["reason"] == "terminated"


async def test_an_answer_has_the_form_of_its_question(guarded: RunningGateway):
    async with line(guarded) as trainer:
        handle = await trainer.open("counter")
        for text in (True, False):
            await trainer.send("tools/call", calling(handle, "count"), text=text)
            assert isinstance(await trainer.socket.recv(), str if text else bytes)


async def test_calls_need_not_wait_for_each_other_and_those_of_an_episode_keep_their_order(guarded: RunningGateway):
    async with line(guarded) as trainer:
        handles = [await trainer.open("counter") for _ in range(20)]
        asked = [await trainer.send("tools/call", calling(handles[number % 20], "count")) for number in range(400)]
        answers = {answer["id"]: answer["result"] for answer in [await trainer.receive() for _ in asked]}
    counted = [answers[number]["content"][0]["text"] for number in asked]
    assert counted == [str(number // 20 + 1) for number in range(400)]


async def test_a_call_waits_for_those_before_it_and_closing_does_not():
    Gate.rearm()
    with running(GATE) as gateway:
        async with line(gateway, None) as trainer:
            handle = await trainer.open("gate")
            calls = [await trainer.send("tools/call", calling(handle, "wait")) for _ in range(2)]
            await asyncio.to_thread(Gate.entered.acquire)
            assert (await trainer.ask("episodes/state", {"episode_id": handle}))["status"] == "running"
            assert (await trainer.ask("episodes/close", {"episode_id": handle}))["status"] == "closed"
            Gate.opened.set()
            first, second = [await trainer.receive() for _ in calls]
            assert [first["id"], second["id"]] == calls
            assert first["result"]["isError"] is False
            assert second["result"]["_meta"]["envport/error"] == "unknown_episode"
            assert Gate.most_inside == 1


async def test_what_is_wrong_with_a_call_is_said_as_over_mcp(guarded: RunningGateway):
    async with line(guarded) as trainer, line(guarded, OTHER) as other:
        handle = await trainer.open("counter")
        refused = await trainer.call(handle, "count", {"by": 2})
        assert refused["isError"]
        assert "'by' is unknown" in refused["content"][0]["text"]
        for nobody_s in [await trainer.call("ep_nothing", "count"), await other.call(handle, "count")]:
            assert nobody_s["_meta"]["envport/error"] == "unknown_episode"
        unknown = await trainer.call(handle, "no_such_tool")
        assert (unknown["code"], unknown["data"]["code"]) == (-32602, "unknown_tool")
        counted = await trainer.call(handle, "count")
        assert counted["content"][0]["text"] == "1"
        half = await trainer.call(handle, "count", {"\ud800": "\ud800"})
        assert half["isError"]


def request(number: int, handle: str, tool: str = "count") -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": calling(handle, tool)})


@pytest.mark.parametrize("text", [True, False])
async def test_in_lines_a_message_holds_any_number_of_requests(guarded: RunningGateway, text: bool):
    async with line(guarded, TRAINER, "other", "envport.lines") as trainer:
        assert trainer.socket.subprotocol == "envport.lines"
        handles = [await trainer.open("counter", seed=seed) for seed in range(3)]
        lines = [request(number, handle) for number, handle in enumerate(handles * 40)]
        # What is wrong with one line says nothing against the others; an empty one is none.
        message = "\n".join(["nonsense", *lines[:60], "", *lines[60:]]) + "\n"
        await trainer.socket.send(message if text else message.encode())
        answers: dict[Any, Any] = {}
        messages = 0
        while len(answers) < 121:
            async with asyncio.timeout(patient(20)):
                received = await trainer.socket.recv()
            assert isinstance(received, str) is text
            answers |= {(answer := json.loads(one))["id"]: answer for one in received.splitlines()}
            messages += 1
        assert messages < 60
    assert answers.pop(None)["error"]["code"] == -32700
    said = [answers[number]["result"]["content"][0]["text"] for number in range(120)]
    assert said == [str(number // 3 + 1) for number in range(120)]


async def test_in_lines_an_answer_does_not_wait_for_a_call_that_hangs():
    Gate.rearm()
    with running(GATE, load("counter")) as gateway:
        async with line(gateway, None, "envport.lines") as trainer:
            gate, counter = await trainer.open("gate"), await trainer.open("counter")
            await trainer.socket.send("\n".join([request(1, counter), request(2, gate, "wait"), request(3, counter)]))
            said: list[int] = []
            while len(said) < 2:
                async with asyncio.timeout(patient(20)):
                    said += [json.loads(one)["id"] for one in str(await trainer.socket.recv()).splitlines()]
            assert said == [1, 3]
            Gate.opened.set()
            assert (await trainer.receive())["id"] == 2


async def test_in_lines_an_answer_does_not_wait_for_what_computes_after_it():
    Long.heard.clear()
    with running(EnvironmentDefinition("long", Long)) as gateway:
        async with line(gateway, None, "envport.lines") as trainer:
            handle = await trainer.open("long")
            await trainer.socket.send(f"{request(1, handle, 'work')}\n{request(2, handle, 'work_until_heard')}")
            assert (await trainer.receive())["id"] == 1
            Long.heard.set()
            assert (await trainer.receive())["result"]["content"][0]["text"] == "True"


async def test_a_call_does_not_overtake_what_was_asked_before_it():
    with running(EnvironmentDefinition("judged", Judged)) as gateway:
        async with line(gateway, None, "envport.lines") as trainer:
            handle = await trainer.open("judged")
            finish = {"jsonrpc": "2.0", "id": 2, "method": "episodes/finish", "params": {"episode_id": handle}}
            await trainer.socket.send(f"{request(1, handle)}\n{json.dumps(finish)}\n{request(3, handle)}")
            answers: dict[int, Any] = {}
            while len(answers) < 3:
                async with asyncio.timeout(patient(20)):
                    lines = (await trainer.socket.recv()).splitlines()
                answers |= {answer["id"]: answer["result"] for answer in map(json.loads, lines)}
            assert answers[2]["score"] == 10
            assert answers[3]["_meta"]["envport/error"] == "episode_over"


async def test_without_lines_a_message_is_one_request(guarded: RunningGateway):
    async with line(guarded) as trainer:
        assert trainer.socket.subprotocol is None
        handle = await trainer.open("counter")
        await trainer.socket.send(f"{request(1, handle)}\n{request(2, handle)}")
        assert (await trainer.receive())["error"]["code"] == -32700


async def test_a_call_that_is_sent_again_is_played_once(guarded: RunningGateway):
    async with line(guarded) as trainer:
        handle = await trainer.open("counter")
        answers = [await trainer.call(handle, "count", **{"envport/call_id": "one"}) for _ in range(3)]
        assert [answer["content"][0]["text"] for answer in answers] == ["1", "1", "1"]
        assert (await trainer.call(handle, "count", **{"envport/call_id": "two"}))["content"][0]["text"] == "2"


async def test_an_opening_that_is_sent_again_opens_one_episode(guarded: RunningGateway):
    asked = {"environment": "counter", "name": "the same"}
    async with line(guarded) as trainer:
        first = await trainer.ask("episodes/open", asked)
    async with line(guarded) as trainer, line(guarded, OTHER) as other:
        assert await trainer.ask("episodes/open", asked) == first
        changed = await trainer.ask("episodes/open", {**asked, "seed": 1})
        assert "was used for another request" in changed["message"]
        theirs = await other.ask("episodes/open", asked)
        assert theirs["episode_id"] != first["episode_id"]
        await trainer.ask("episodes/close", {"episode_id": first["episode_id"]})
        closed = await trainer.ask("episodes/open", asked)
        assert closed["data"]["code"] == "unknown_episode"


async def test_an_opening_that_failed_leaves_its_name_free():
    with running(load("counter"), limits=Limits(1, wait_seconds=0)) as gateway:
        async with line(gateway, None) as trainer:
            handle = await trainer.open("counter")
            asked = {"environment": "counter", "name": "again"}
            full = await trainer.ask("episodes/open", asked)
            assert (full["data"]["code"], full["code"]) == ("at_capacity", -32000)
            assert full["data"]["retry_after"] > 0
            await trainer.ask("episodes/close", {"episode_id": handle})
            assert (await trainer.ask("episodes/open", asked))["episode_id"] != handle


async def test_an_opening_that_waits_for_room_holds_up_nothing_else():
    with running(load("counter"), limits=Limits(1, wait_seconds=patient(20))) as gateway:
        async with line(gateway, None) as trainer:
            handle = await trainer.open("counter")
            waiting = await trainer.send("episodes/open", {"environment": "counter", "name": "later"})
            # The same opening, sent again while it waits: it is answered when the first is.
            again = await trainer.send("episodes/open", {"environment": "counter", "name": "later"})
            assert (await trainer.call(handle, "count"))["isError"] is False
            assert (await trainer.ask("episodes/state", {"episode_id": handle}))["steps"] == 1
            await trainer.send("episodes/close", {"episode_id": handle})
            answers = {answer["id"]: answer["result"] for answer in [await trainer.receive() for _ in range(3)]}
            assert answers[waiting]["episode_id"] == answers[again]["episode_id"] != handle


async def test_an_opening_that_is_sent_twice_and_fails_is_refused_twice():
    with running(load("counter"), limits=Limits(1, wait_seconds=patient(0.5))) as gateway:
        async with line(gateway, None) as trainer:
            handle = await trainer.open("counter")
            asked = {"environment": "counter", "name": "twice"}
            sent = {await trainer.send("episodes/open", asked) for _ in range(2)}
            answers = [await trainer.receive() for _ in range(2)]
            assert {answer["id"] for answer in answers} == sent
            assert {answer["error"]["data"]["code"] for answer in answers} == {"at_capacity"}
            await trainer.ask("episodes/close", {"episode_id": handle})
            assert (await trainer.ask("episodes/open", asked))["episode_id"] != handle


class SlowToBegin(Gate):
    def reset(self, *, seed: int, task: Any) -> str:
        self.wait()
        return super().reset(seed=seed, task=task)


async def test_an_opening_outlives_the_connection_that_asked_for_it():
    Gate.rearm()
    with running(EnvironmentDefinition("slow", SlowToBegin)) as gateway:
        asked = {"environment": "slow", "name": "slow"}
        async with line(gateway, None) as trainer:
            await trainer.send("episodes/open", asked)
            await asyncio.to_thread(SlowToBegin.entered.acquire)
        async with line(gateway, None) as trainer:
            await trainer.send("episodes/open", asked)
            SlowToBegin.opened.set()
            handle = (await trainer.receive())["result"]["episode_id"]
            assert (await trainer.ask("episodes/state", {"episode_id": handle}))["status"] == "running"
            assert gateway.gateway.table.live == 1


MALFORMED: list[tuple[str, int, str]] = [
    ("{", -32700, "not JSON"),
    ("[" * 100_000, -32700, "not JSON"),
    ("[]", -32600, "one JSON-RPC request"),
    ("3", -32600, "one JSON-RPC request"),
    ('{"jsonrpc": "2.0", "id": null, "method": "tools/call"}', -32600, "needs an id"),
    ('{"jsonrpc": "2.0", "id": 1.5, "method": "tools/call"}', -32600, "needs an id"),
    ('{"jsonrpc": "2.0", "id": 1}', -32600, "and a method"),
    ('{"jsonrpc": "1.0", "id": 1, "method": "tools/call"}', -32600, '"jsonrpc": "2.0"'),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}', -32602, "an object"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "episodes/forget"}', -32601, "there are tools/call"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', -32602, "needs name, arguments"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "_meta": 3}}', -32602, "needs name"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "episodes/state"}', -32602, "episode_id"),
    ('{"jsonrpc": "2.0", "id": 1, "method": "episodes/close", "params": {"episode_id": 3}}', -32602, "episode_id"),
    (
        '{"jsonrpc": "2.0", "id": 1, "method": "episodes/close", "params": {"episode_id": "a", "b": 1}}',
        -32602,
        "has to",
    ),
    ('{"jsonrpc": "2.0", "id": 1, "method": "episodes/open"}', -32602, "name"),
    (
        '{"jsonrpc": "2.0", "id": 1, "method": "episodes/open", "params": {"name": "x"}}',
        -32602,
        "environment: Field req",
    ),
    (
        '{"jsonrpc": "2.0", "id": 1, "method": "episodes/open", "params": {"name": "x", "environment": "counter", '
        '"seed": "3", "more": 1}}',
        -32602,
        "seed: Input should be a valid integer; more: Extra",
    ),
]


async def test_a_message_that_is_wrong_is_answered_and_the_channel_goes_on(guarded: RunningGateway):
    async with line(guarded) as trainer:
        for message, code, words in MALFORMED:
            await trainer.socket.send(message)
            error = (await trainer.receive())["error"]
            assert error["code"] == code, message
            assert words in error["message"]
        await trainer.socket.send('{"jsonrpc": "2.0", "method": "notifications/cancelled"}')
        assert await trainer.open("counter")


@pytest.mark.parametrize(
    ("token", "status"), [(None, 401), ("wrong-token-0123456789", 401), (WATCHER, 403), (PLAYER, 403)]
)
async def test_it_needs_both_scopes(guarded: RunningGateway, token: str | None, status: int):
    with pytest.raises(InvalidStatus) as refused:
        async with line(guarded, token):
            pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["error"]["message"]


async def test_a_token_of_one_episode_plays_that_one_and_does_nothing_else(guarded: RunningGateway):
    async with AsyncClient(guarded.url, token=TRAINER) as control:
        mine = await control.open("counter", mint_token=True, reward_in_meta=True)
        another = await control.open("counter")
    async with line(guarded, mine.token) as player:
        assert (await player.call(mine.episode_id, "count"))["content"][0]["text"] == "1"
        assert (await player.ask("tools/list", {"_meta": {"envport/episode_id": mine.episode_id}}))["tools"]
        for refused in [
            await player.call(another.episode_id, "count"),
            await player.ask("tools/list", {"_meta": {"envport/episode_id": another.episode_id}}),
            await player.ask("episodes/open", {"environment": "counter", "name": "x"}),
            *[
                await player.ask(f"episodes/{what}", {"episode_id": mine.episode_id})
                for what in ("state", "finish", "close", "keep_alive", "legal_calls")
            ],
        ]:
            assert refused["data"]["code"] == "permission_denied"


async def until_closed(trainer: Line, handle: str) -> None:
    async with asyncio.timeout(patient(20)):
        while True:
            await trainer.call(handle, "count")


async def test_a_token_that_is_withdrawn_ends_its_channel(tmp_path: Path):
    file = tmp_path / "tokens.toml"
    table = '[[tokens]]\nname = "{}"\ntoken = "{}"\nscopes = ["control", "play"]\n'
    file.write_text(table.format("one", TRAINER))
    with running(load("counter"), access=Access(file=file)) as gateway:
        async with line(gateway) as trainer:
            handle = await trainer.open("counter")
            file.write_text(table.format("two", OTHER))
            with pytest.raises(ConnectionClosed) as closed:
                await until_closed(trainer, handle)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008


async def test_no_log_has_the_token_of_a_handshake():
    with Served("counter", "--log-level", "debug", ENVPORT_TOKEN=TRAINER) as served:
        headers = {"Authorization": f"Bearer {TRAINER}"}
        async with connect(f"ws{served.url.removeprefix('http')}/rollouts", additional_headers=headers) as socket:
            assert await Line(socket).open("counter")
        served.stop()
        assert "counter" in served.log
        assert TRAINER not in served.log
