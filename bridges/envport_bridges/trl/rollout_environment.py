"""What TRL holds as an environment: a class with nothing public but what TRL and reward functions need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envport.types import Outcome, StepRecord
from envport_bridges.trl.observations import Shown
from envport_bridges.trl.play import Play
from envport_bridges.trl.rows import metadata_of

__all__ = ["RolloutEnvironment", "ScoredEnvironment", "finish_all", "play_of"]


class RolloutEnvironment:
    """One environment instance of a trainer.

    A class made from this one has the environment's tools as its only other members: every public function of an
    environment class is a tool of the model to TRL, so whatever is for reward functions is a property.

    Args:
        player: Plays the episodes.
    """

    def __init__(self, player: Play):
        self._player = player

    def reset(self, /, **row: Any) -> Shown:
        """Open the episode of a dataset row and return its first observation.

        Args:
            **row: The row: `split`, `task_index` and `seed`, as `EnvironmentSpec.train_dataset` has them.
        """
        return self._player.start(row)

    @property
    def reward(self) -> float | None:
        """The episode's reward so far: sum or last of `rewards`, as the environment says; `None` after a fault.

        Waits for the score of the final state, if the episode has ended and is scored.
        """
        self._player.finish_ended()
        return self._player.record.total(self._player.info.reward)

    @property
    def rewards(self) -> list[float | None]:
        """The reward of each step, `None` where it had none. The score of the final state is the last one."""
        self._player.finish_ended()
        return list(self._player.record.rewards)

    @property
    def score(self) -> float | None:
        """What the default reward function gives: `reward`, 0 if no step had one, `None` after a fault."""
        reward, record = self.reward, self._player.record
        if record.lost:
            return None
        return reward or 0.0

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the task."""
        return metadata_of(self._player.record.row)

    @property
    def finished(self) -> bool:
        """Whether the episode came to an end, other than because its player stopped."""
        outcome = self._player.record.outcome
        return outcome is not None and outcome.reason != "finished"

    @property
    def outcome(self) -> Outcome | None:
        """How the episode ended; `None` while it runs. After a fault, `outcome.fault` is its owner."""
        return self._player.record.outcome

    @property
    def last_output(self) -> Shown:
        """What the environment showed last: the first observation, or a tool's result."""
        return self._player.record.observation

    @property
    def trajectory(self) -> list[StepRecord]:
        """The calls of the episode in order: tool, arguments, observation, reward, and the error of a refused one."""
        return self._player.record.trajectory

    @property
    def steps(self) -> int:
        """Tool calls that reached the environment."""
        return self._player.record.steps

    @property
    def errors(self) -> int:
        """Tool calls that were refused, or that the environment answered with an error."""
        return self._player.record.errors

    @property
    def episode_id(self) -> str | None:
        """The episode's handle."""
        episode = self._player.record.episode
        return episode.episode_id if episode is not None else None

    @property
    def waited(self) -> float:
        """Seconds for which the trainer waited for this episode's environment."""
        return self._player.record.waited

    def __repr__(self) -> str:
        return f"<{type(self).__name__} episode {self.episode_id}>"


def play_of(environment: RolloutEnvironment) -> Play:
    """What plays the episodes of an instance; the instance itself has no room for it but a private attribute."""
    return vars(environment)["_player"]


def finish_all(environments: Sequence[Any]) -> None:
    """End the episodes of all environments side by side, and wait for their rewards.

    Args:
        environments: The instances of a batch, whose players have stopped.
    """
    plays = [play_of(one) for one in environments if isinstance(one, RolloutEnvironment)]
    for play, finishing in [(play, play.finish()) for play in plays]:
        if finishing is not None:
            play.wait(finishing)


class ScoredEnvironment(RolloutEnvironment):
    """The same, owning its reward: for trainers that call `get_reward` instead of a reward function."""

    def get_reward(self) -> float | None:
        """The episode's reward; `None` after a fault. The player has stopped: it ends the episode."""
        finish_all([self])
        return self.score
