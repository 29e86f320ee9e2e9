"""Episodes that a trainer opens and somebody else plays: each has a token of its own, and shows no reward."""

from __future__ import annotations

import hashlib

import pytest
from harness import running

from envport.access import Access, Principal
from envport.client import Client
from envport.errors import ConfigurationError, PermissionDenied, UnknownEpisode
from envport.registry import load
from envport.types import Choice
from envport_bridges.agents.programs.seat import Seat
from envport_bridges.rollouts.backend import RolloutTarget
from envport_bridges.rollouts.connection import Connection, connect

CONTROL = "a-control-token-of-the-tests"


@pytest.mark.parametrize("channel", [True, False])
def test_an_episode_is_played_with_its_token_and_ended_by_the_trainer(channel: bool):
    access = Access([(hashlib.sha256(CONTROL.encode()).digest(), Principal("trainer", frozenset({"control", "play"})))])
    with running(load("catch?rows=3"), access=access) as gateway:
        where = f"{gateway.url}/environments/catch"
        connection = Connection(RolloutTarget(where, token=CONTROL, channel=channel, mint_tokens=True))
        run, source = connection.loop.run, connection.source
        episode, other = run(connection.open(Choice(seed=1))), run(connection.open(Choice(seed=1)))
        assert episode.token
        assert episode.token != other.token
        assert episode.token not in repr(episode)

        async def played() -> list[object]:
            async with Seat.at(episode.address, episode.token) as seat:
                refused = await seat.call("move", {"direction": "up"})
                replies = [await seat._client.call_tool("move", {"direction": "stay"}) for _ in range(2)]
            return [refused.is_error, *(reply.meta for reply in replies)]

        run(source.keep_alive(episode))
        refused, first, last = run(played())
        assert refused is True
        assert "envport/reward" not in {**first, **last}  # type: ignore[dict-item]
        info = run(source.finish(episode))
        assert (len(info.rewards), info.steps, info.errors) == (2, 2, 1)
        assert info.outcome is not None
        assert info.outcome.status == "terminated"
        assert info.reward in (1.0, -1.0)
        # Its token ends nothing, and plays nobody else's.
        with Client(gateway.url, token=episode.token) as agent, pytest.raises(PermissionDenied):
            agent.finish(other.episode_id)
        assert run(source.finish(other)).outcome is not None
        connection.stop()


def test_a_finished_episode_that_was_not_played_has_no_reward():
    with running(load("catch")) as gateway:
        connection = Connection(RolloutTarget(f"{gateway.url}/environments/catch", mint_tokens=True))
        episode = connection.loop.run(connection.open(Choice()))
        info = connection.loop.run(connection.source.finish(episode))
        assert (info.reward, info.rewards, info.steps) == (None, [], 0)
        connection.loop.run(connection.source.close(episode))
        with pytest.raises(UnknownEpisode):
            connection.loop.run(connection.source.finish(type(episode)(**{**vars(episode), "episode_id": "ep_none"})))
        connection.stop()


def test_episodes_of_this_process_have_no_tokens():
    with pytest.raises(ConfigurationError, match="tokens need a gateway"):
        connect(RolloutTarget("catch", mint_tokens=True))
