"""Rollouts over the gateway's channel: one connection, and nothing is played twice when it drops."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from typing import Any

import pytest
from cutting_proxy import cutting
from environments import Gate
from frame_cutter import frame_cutter
from harness import running
from patience import patient
from places import gateway
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from envport import Client
from envport.access import Access
from envport.client.channel import Channel
from envport.errors import ConfigurationError, GatewayUnreachable, InvalidArguments, UnknownEnvironment
from envport.registry import EnvironmentDefinition, load
from envport.types import CHANNEL_LINES
from envport_bridges.rollouts import AsyncRollout, AsyncRollouts, Rollouts, RolloutTarget
from envport_bridges.rollouts.over_channel import OverChannel
from envport_bridges.rollouts.over_http import OverHttp


def way_of(rollouts: Any) -> Any:
    return rollouts._connection.source._way


def text(reply: Any) -> str:
    return "".join(block["text"] for block in reply.content)


async def play(url: str, episodes: int, calls: int) -> tuple[list[list[str]], list[float | None], list[str]]:
    """What the calls of some episodes answered, their rewards, and their handles."""
    rollouts = await AsyncRollouts.connect(RolloutTarget(url, patience=patient(30.0)))

    async def one(seed: int) -> tuple[AsyncRollout, list[str]]:
        rollout = await rollouts.open(seed=seed)
        return rollout, [text(await rollout.call("count", {})) for _ in range(calls)]

    played = await asyncio.gather(*map(one, range(episodes)))
    rewards = [await rollout.finish() for rollout, _ in played]
    return [said for _, said in played], rewards, [rollout._player.episode.episode_id for rollout, _ in played]


# In lines, the calls of all episodes are one frame. Without, each episode needs about 2 * (calls + 2). There are many
# more frames than cuts, because a call that is cut ten times in a row is given up.
@pytest.mark.parametrize(("lines", "episodes", "calls"), [(True, 5, 400), (False, 20, 100)])
async def test_a_socket_that_is_cut_at_a_hundred_frames_plays_what_an_uncut_one_does(
    lines: bool, episodes: int, calls: int
):
    spec = load("counter")
    draw = random.Random(4)
    most = 2 * calls if lines else 2 * calls * episodes
    cuts = {frame: draw.random() < 0.5 for frame in draw.sample(range(5, most), 100)}
    with running(spec) as served:
        uncut, rewards, _ = await play(f"{served.url}/environments/counter", episodes, calls)
        with frame_cutter(served.port, cuts, lines=lines) as proxy:
            played, rewards_then, handles = await play(f"{proxy.url}/environments/counter", episodes, calls)
            assert proxy.cut > 90
        assert played == uncut == [[str(number + 1) for number in range(calls)]] * episodes
        assert rewards_then == rewards
        with Client(served.url) as control:
            assert [control.episode(handle).steps for handle in handles] == [calls] * episodes
        # The ones that were opened again, under the same name, are not there twice.
        async with asyncio.timeout(patient(20)):
            # A finished episode frees its place a moment after its reward is known.
            while served.gateway.table.live:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def test_a_thousand_episodes_are_one_connection_and_no_thread_of_their_own():
    with running(load("counter")) as served:
        rollouts = Rollouts(f"{served.url}/environments/counter")
        with rollouts.open() as first:
            assert text(first.call("count", {})) == "1"
        threads = threading.active_count()
        opened = [rollouts.open() for _ in range(100)]
        assert [text(rollout.call("count", {})) for rollout in opened] == ["1"] * 100
        assert threading.active_count() == threads
        assert isinstance(way_of(rollouts), OverChannel)
        for rollout in opened:
            rollout.close()


def test_where_no_websocket_goes_through_it_plays_over_http(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    with running(load("counter")) as served, cutting(served.url, set()) as proxy:
        rollouts = Rollouts(f"{proxy.url}/environments/counter")
        with rollouts.open() as rollout:
            assert text(rollout.call("count", {})) == "1"
        assert isinstance(way_of(rollouts), OverHttp)
        assert "is played over HTTP, which costs more: no WebSocket" in caplog.text


def test_http_can_be_chosen():
    with running(load("counter")) as served:
        rollouts = Rollouts(RolloutTarget(f"{served.url}/environments/counter", channel=False))
        with rollouts.open() as rollout:
            assert text(rollout.call("count", {})) == "1"
        assert isinstance(way_of(rollouts), OverHttp)


def test_a_gateway_that_comes_back_is_played_on_the_channel_again():
    with gateway() as served:
        rollouts = Rollouts(RolloutTarget(f"{served.url}/environments/guess", patience=patient(20.0)))
        with rollouts.open(task=3) as rollout:
            assert rollout.call("guess", {"number": 9}).reward == -0.25
        port = served.port
    with gateway(port):
        with rollouts.open(task=3) as rollout:
            assert rollout.call("guess", {"number": 9}).reward == -0.25
        assert isinstance(way_of(rollouts), OverChannel)


def test_arguments_that_no_message_can_carry_are_refused_and_the_others_play_on():
    with gateway() as served:
        rollouts = Rollouts(RolloutTarget(f"{served.url}/environments/guess", patience=0.0))
        with rollouts.open(task=3) as rollout, rollouts.open(task=3) as other:
            with pytest.raises(InvalidArguments, match=r"4,193,280 bytes at most"):
                rollout.call("guess", {"number": "9" * 5_000_000})
            for one in (rollout, other):
                assert one.call("guess", {"number": 9}).reward == -0.25


def test_a_call_that_hangs_lets_the_others_through():
    Gate.rearm()
    with running(EnvironmentDefinition("gate", Gate), load("counter")) as served:
        waiting = Rollouts(RolloutTarget(f"{served.url}/environments/gate", call_seconds=patient(0.5), patience=0.0))
        rollout = waiting.open()
        with pytest.raises(Exception, match="within"):
            rollout.call("wait", {})
        assert rollout.lost
        with Rollouts(f"{served.url}/environments/counter").open() as other:
            assert text(other.call("count", {})) == "1"
        Gate.opened.set()


@pytest.mark.parametrize(
    ("where", "error"),
    [("http://127.0.0.1:1/environments/x", GatewayUnreachable), ("http://127.0.0.1:1/x", ConfigurationError)],
)
def test_what_is_wrong_with_the_address_is_said(where: str, error: type[Exception]):
    with pytest.raises(error):
        Rollouts(RolloutTarget(where, patience=0.0))


def test_an_unknown_environment_is_said():
    with running(load("counter"), access=Access()) as served, pytest.raises(UnknownEnvironment):
        Rollouts(RolloutTarget(f"{served.url}/environments/nothing", patience=0.0))


async def test_a_request_to_a_gateway_that_hangs_ends_in_time_although_the_channel_is_closed():
    async def answer_the_handshake_and_one_ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerProtocol(subprotocols=[Subprotocol(CHANNEL_LINES)])
        pinged = False
        while not pinged:
            protocol.receive_data(await reader.read(4096))
            for event in protocol.events_received():
                if isinstance(event, Request):
                    protocol.send_response(protocol.accept(event))
                pinged = pinged or isinstance(event, Frame)
            writer.write(b"".join(protocol.data_to_send()))
        await seen.wait()
        writer.close()

    seen = asyncio.Event()
    listening = await asyncio.start_server(answer_the_handshake_and_one_ping, "127.0.0.1", 0)
    async with asyncio.timeout(patient(8)), listening:
        channel = Channel(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", {})
        await channel.connect()
        asking = asyncio.create_task(channel.request("episodes/open", b"{}", 0.05))
        await asyncio.sleep(0)
        closing = asyncio.create_task(channel.close())
        await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(GatewayUnreachable, match=r"within 0\.05 s"):
            await asking
        seen.set()
        await closing
