"""Surfaces of other packages: their routes and WebSockets play episodes behind the same gate as everything else."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from command_line import Served
from harness import RunningGateway, running
from packages.tiny_surface import tiny
from patience import patient
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from envport import AsyncClient, Client
from envport.access import Access, HostPolicy, Principal, Scope
from envport.app import Gateway
from envport.episodes import Limits
from envport.errors import ConfigurationError
from envport.registry import load

PACKAGES = str(Path(__file__).parents[1] / "support" / "packages")

TRAINER, OTHER, WATCHER, PLAYER = (f"{name}-0123456789abcdef" for name in ("trainer", "other", "watcher", "player"))
SCOPES: dict[str, frozenset[Scope]] = {
    TRAINER: frozenset({"control", "play"}),
    OTHER: frozenset({"control", "play"}),
    WATCHER: frozenset({"control"}),
    PLAYER: frozenset({"play"}),
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningGateway]:
    tokens = [
        (hashlib.sha256(token.encode()).digest(), Principal(token[:5], scopes)) for token, scopes in SCOPES.items()
    ]
    hosts = HostPolicy.for_binding("127.0.0.1", origins=["https://app.example.com"])
    with running(
        load("counter"), load("catch"), access=Access(tokens), hosts=hosts, limits=Limits(1, wait_seconds=0),
        surfaces={"tiny": tiny},
    ) as gateway:  # fmt: skip
        yield gateway


def bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token is not None else {}


@asynccontextmanager
async def socket_of(gateway: RunningGateway, path: str, **headers: str) -> AsyncIterator[ClientConnection]:
    url = f"ws://127.0.0.1:{gateway.port}{path}"
    async with connect(url, additional_headers=headers, open_timeout=patient(20)) as socket:
        yield socket


async def refused(gateway: RunningGateway, path: str = "/tiny/counter/ws", **headers: str) -> int:
    with pytest.raises(InvalidStatus) as caught:
        async with socket_of(gateway, path, **headers):
            pass
    return caught.value.response.status_code


async def test_a_websocket_plays_an_episode_which_is_its_principal_s_and_ends_with_it(guarded: RunningGateway):
    async with socket_of(guarded, "/tiny/catch/ws", **bearer(TRAINER)) as socket:
        opened = json.loads(await socket.recv())
        assert opened["text"]
        mine = httpx2.get(f"{guarded.url}/tiny/episodes/{opened['id']}", headers=bearer(TRAINER))
        assert mine.json() == {"status": "running", "reward": None}
        theirs = httpx2.get(f"{guarded.url}/tiny/episodes/{opened['id']}", headers=bearer(OTHER))
        assert (theirs.status_code, theirs.json()["error"]["code"]) == (404, "unknown_episode")
        for _ in range(9):
            await socket.send(json.dumps({"tool": "move", "arguments": {"direction": "stay"}}))
            answer = json.loads(await socket.recv())
        assert answer["reward"] in (1.0, -1.0)
    async with AsyncClient(guarded.url, token=TRAINER) as control:
        info = await control.episode(opened["id"])
    assert info.outcome is not None
    assert info.outcome.status == "terminated"


async def test_limits_hold_and_a_socket_that_is_closed_frees_its_place(guarded: RunningGateway):
    async with socket_of(guarded, "/tiny/counter/ws", **bearer(TRAINER)) as socket:
        opened = json.loads(await socket.recv())
        full = httpx2.post(f"{guarded.url}/tiny/episodes", headers=bearer(TRAINER), json={"environment": "counter"})
        assert (full.status_code, full.json()["error"]["code"]) == (503, "at_capacity")
        async with socket_of(guarded, "/tiny/counter/ws", **bearer(TRAINER)) as late:
            with pytest.raises(ConnectionClosed, match="at_capacity"):
                await late.recv()
    async with AsyncClient(guarded.url, token=TRAINER) as control, asyncio.timeout(patient(20)):
        while (await control.episode(opened["id"])).status == "running":
            pass
        assert (await control.episode(opened["id"])).status == "closed"


def test_http_routes_play_behind_the_gate(guarded: RunningGateway):
    made = httpx2.post(f"{guarded.url}/tiny/episodes", headers=bearer(TRAINER), json={"environment": "nothing"})
    assert (made.status_code, made.json()["error"]["code"]) == (404, "unknown_environment")
    made = httpx2.post(f"{guarded.url}/tiny/episodes", headers=bearer(TRAINER), json={"environment": "counter"})
    assert made.status_code == 200
    with Client(guarded.url, token=TRAINER) as control:
        assert control.close_episode(made.json()["id"]).status == "closed"
    page = {"Origin": "https://app.example.com"}
    allowed = httpx2.get(f"{guarded.url}/tiny/nothing", headers=bearer(TRAINER) | page)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (404, page["Origin"])


TOKENS = [(None, 401), ("wrong-token-0123456789", 401), (WATCHER, 403), (PLAYER, 403), ("episode", 403)]


@pytest.mark.parametrize(("token", "status"), TOKENS)
async def test_it_is_for_trainers_alone(guarded: RunningGateway, token: str | None, status: int):
    with Client(guarded.url, token=TRAINER) as control:
        opened = control.open("counter", mint_token=True)
        try:
            headers = bearer(opened.token if token == "episode" else token)
            for path in (f"/tiny/episodes/{opened.episode_id}", "/tiny/no/such/route", "/tiny"):
                answer = httpx2.get(f"{guarded.url}{path}", headers=headers)
                assert answer.status_code == status, path
                assert "reward" not in answer.text
            # Not with the handle in a header either.
            named = headers | {"Envport-Episode": opened.episode_id}
            assert httpx2.get(f"{guarded.url}/tiny/episodes/x", headers=named).status_code == status
            assert await refused(guarded, **headers) == status
        finally:
            control.close_episode(opened.episode_id)


async def test_hosts_and_origins_are_checked_before_a_socket_is_accepted(guarded: RunningGateway):
    assert await refused(guarded, **bearer(TRAINER), Origin="https://evil.example.com") == 403
    # `websockets` sends a Host of its own, so a second one is there twice.
    assert await refused(guarded, **bearer(TRAINER), Host="evil.example.com") in (400, 421)
    async with socket_of(guarded, "/tiny/counter/ws", **bearer(TRAINER), Origin="https://app.example.com") as socket:
        assert json.loads(await socket.recv())["id"]


async def test_elsewhere_there_are_no_websockets(guarded: RunningGateway):
    for path in ("/", "/episodes", "/environments/counter/mcp", "/tinyx/counter/ws"):
        assert await refused(guarded, path, **bearer(TRAINER)) == 404
        assert await refused(guarded, path) == 401


async def test_a_message_that_is_too_large_ends_its_socket_alone():
    # As `envport serve` has it, with the surfaces that are installed; the one whose extra is missing is left out.
    with Served("counter", PYTHONPATH=PACKAGES) as served:
        url = f"ws{served.url.removeprefix('http')}/tiny/counter/ws"
        async with connect(url) as socket:
            await socket.recv()
            # The gateway does not wait for the rest, so that the message may not be sent to its end.
            with pytest.raises(ConnectionClosed, match="1009"):
                await asyncio.gather(socket.send("x" * (5 * 2**20)), socket.recv())
        async with connect(url) as socket:
            await socket.recv()
            await socket.send(json.dumps({"tool": "count"}))
            assert json.loads(await socket.recv())["text"] == "1"
        big = httpx2.post(f"{served.url}/tiny/episodes", content=b"x" * (5 * 2**20))
        assert big.status_code == 413
        assert "the surface needy is not served: " in served.log
        served.process.terminate()
        served.process.wait(patient(30))
        assert "Traceback" not in served.log


@pytest.mark.parametrize("name", ["episodes", "metrics", "Tiny", "a/b", ""])
def test_a_surface_cannot_take_the_gateway_s_own_paths(name: str):
    with pytest.raises(ConfigurationError, match="cannot name a surface: use lower-case letters"):
        Gateway([load("counter")], surfaces={name: tiny})
