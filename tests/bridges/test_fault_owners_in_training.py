"""The owner of a fault reaches the trainer, which leaves out what is not the player's and nothing else."""

import os
import signal
from collections.abc import Iterator

import pytest
from bubblewrap import needs_bubblewrap
from harness import RunningGateway, running
from player_environments import Hasty
from runtime_environments import Faulty
from slow import slow

from envport.episodes import OpenRequest
from envport.errors import EpisodeFailed, EpisodeOver, ToolError
from envport.registry import EnvironmentDefinition
from envport_bridges.rollouts import Rollouts
from envport_bridges.rollouts.connection import _connections
from envport_bridges.trl import EnvironmentSpec
from envport_bridges.trl.lost import lost_flags
from envport_bridges.trl.rewards import episode_reward

FAULTY = EnvironmentDefinition("faulty", Faulty)
HASTY = EnvironmentDefinition("hasty", Hasty)
# The environment gives its player's code more time than a call may take.
ENDLESS = {"code": "import time; time.sleep(1000)", "timeout": 1000.0}


def kill_between_calls(gateway: RunningGateway, pid: str, episode_id: str) -> None:
    """Kill an episode's process, and return once the gateway knows."""

    async def noticed() -> None:
        table = gateway.gateway.table
        while (await table.info(episode_id, "local")).status == "running":
            await table.close((await table.open(OpenRequest("faulty", "local"))).handle, "local")

    os.kill(int(pid), signal.SIGKILL)
    gateway.run(noticed)


def test_a_rollout_that_was_lost_between_two_calls_is_lost():
    with running(FAULTY) as gateway:
        rollout = Rollouts(f"{gateway.url}/environments/faulty").open()
        rollout.call("count", {})
        kill_between_calls(gateway, rollout.observation.text, rollout._player.episode.episode_id)
        with pytest.raises(EpisodeFailed, match="lost"):
            rollout.call("count", {})
        assert rollout.outcome is not None
        assert (rollout.lost, rollout.outcome.fault, rollout.reward) == (True, "environment", None)
        _connections.popitem()[1].stop()


def test_an_episode_of_a_trainer_that_was_lost_between_two_calls_is_lost():
    with running(FAULTY) as gateway:
        spec = EnvironmentSpec(f"{gateway.url}/environments/faulty", num_tasks=1)
        environment = spec.environment_factory()
        pid = environment.reset(**spec.train_dataset[0])
        environment.count()
        kill_between_calls(gateway, str(pid), environment.episode_id)
        with pytest.raises(EpisodeFailed):
            environment.count()
        assert (environment.score, environment.outcome.fault) == (None, "environment")
        with pytest.raises(EpisodeFailed, match="over and takes no more calls"):
            environment.count()
        _connections.popitem()[1].stop()


@pytest.fixture(params=[*slow(["here"]), "at a gateway"])
def hasty(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the environment is."""
    if request.param == "here":
        yield "player_environments:Hasty"
    else:
        with running(HASTY) as gateway:
            yield f"{gateway.url}/environments/hasty"
    _connections.popitem()[1].stop()


@needs_bubblewrap
@pytest.mark.parametrize("earned", [None, 1.5])
def test_a_rollout_that_its_player_broke_counts_as_failed(hasty: str, earned: float | None):
    rollout = Rollouts(hasty).open()
    if earned is not None:
        rollout.call("earn", {})
    reply = rollout.call("run", ENDLESS)
    assert (reply.is_error, reply.outcome) == (True, rollout.outcome)
    assert rollout.outcome is not None
    assert (rollout.outcome.status, rollout.outcome.fault) == ("failed", "player")
    assert (rollout.lost, rollout.reward) == (False, earned)
    with pytest.raises(EpisodeOver):
        rollout.call("run", ENDLESS)


@needs_bubblewrap
def test_an_episode_that_its_player_broke_is_trained_on_as_zero(hasty: str):
    spec = EnvironmentSpec(hasty, num_tasks=1)
    environment = spec.environment_factory()
    environment.reset(**spec.train_dataset[0])
    with pytest.raises(ToolError, match="The code that you had run was the cause"):
        environment.run(**ENDLESS)
    assert (environment.reward, environment.score, environment.outcome.fault) == (None, 0.0, "player")
    assert episode_reward(environments=[environment]) == [0.0]
    assert lost_flags([environment], {}) == [False]
