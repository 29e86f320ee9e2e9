"""One recorded episode with all that a reader needs: its trajectory, its tools, and what its player was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envport.trajectories.archive import Archive, StoredEpisode
from envport.types import StepRecord, Trajectory

__all__ = ["RecordedEpisode", "read_recorded"]

# Calls that did not reach the environment, or were lost with it.
_UNPLAYED = frozenset({"invalid_arguments", "episode_failed", "unreadable"})


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """A recorded episode.

    Attributes:
        trajectory: Its recording.
        prompt: What the player was told to do.
        tools: Its tools, as MCP lists them.
        principal: Name of the principal that owns it; empty if it is not known.
    """

    trajectory: Trajectory
    prompt: str
    tools: Sequence[Mapping[str, Any]]
    principal: str = ""


async def read_recorded(archive: Archive, handle: str, principal: str | None = None) -> RecordedEpisode:
    """Read an episode of a store.

    Args:
        archive: The store.
        handle: The episode.
        principal: Who has to own it.

    Raises:
        UnknownEpisode: The store has no such episode, or it is somebody else's.
        StoreUnavailable: The store cannot be read now.
    """
    stored = await archive.episode(handle, principal)
    steps = await archive.steps(handle, principal)
    trajectory = Trajectory(
        episode=stored.info.model_copy(update={"rewards": _rewards(stored, steps)}),
        environment_version=stored.environment_version,
        fingerprint=stored.info.fingerprint,
        first_observation=stored.first_observation,
        steps=steps,
        dropped_steps=steps[0].index - 1 if steps else 0,
    )
    tools = await archive.tools(stored.info.fingerprint)
    return RecordedEpisode(trajectory, stored.prompt, tools or [], stored.principal)


def _rewards(episode: StoredEpisode, steps: list[StepRecord]) -> list[float | None]:
    """The reward of each call that reached the environment, and the score as the last."""
    played = [step.reward for step in steps if step.error not in _UNPLAYED]
    return [*played, episode.info.score] if episode.info.score is not None else played
