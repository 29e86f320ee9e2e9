"""The owner of a fault reaches the trainer, which leaves out what is not the player's and nothing else."""

import os
import signal

import pytest
from harness import RunningGateway, running
from runtime_environments import Faulty

from envport.episodes import OpenRequest
from envport.errors import EpisodeFailed
from envport.registry import EnvironmentDefinition
from envport_bridges.rollouts import Rollouts
from envport_bridges.rollouts.connection import _connections
from envport_bridges.trl import EnvironmentSpec

FAULTY = EnvironmentDefinition("faulty", Faulty)


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
