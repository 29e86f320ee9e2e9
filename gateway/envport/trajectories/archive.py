"""Looking up recorded episodes: those of this gateway, of earlier ones, and of others on the same store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from envport.types import EpisodeInfo, FaultOwner, Observation, Reason, Status, StepRecord

__all__ = ["UNKNOWN_PROVENANCE", "Archive", "EpisodeFilter", "EpisodePage", "Period", "Provenance", "StoredEpisode"]


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """Which episodes to find. An attribute that is `None` (or empty) filters nothing.

    Attributes:
        principal: Name of the principal that owns the episode.
        environment: Name of the environment.
        status: The episode's status.
        reason: Why it ended.
        fault: Who owns the fault that cut it short.
        lost: Whether it was lost to a fault that is not the player's.
        live: Whether it has not ended.
        min_reward: Lowest reward. Episodes without a reward are left out if this or `max_reward` is given.
        max_reward: Highest reward.
        since: Earliest `created_at`, as Unix time in seconds.
        until: `created_at` is before this, as Unix time in seconds.
        labels: The labels that an episode has to have, with their values.
    """

    principal: str | None = None
    environment: str | None = None
    status: Status | None = None
    reason: Reason | None = None
    fault: FaultOwner | None = None
    lost: bool | None = None
    live: bool | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    since: float | None = None
    until: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Provenance:
    """What an episode was made of, for whoever is to make it again.

    Attributes:
        source: SHA-256 of the source of the environment; `None` if it is not known.
        options: SHA-256 of the environment's options and limits; `None` if it is not known.
        with_secrets: Whether it was opened with secrets of its own, which are not stored.
    """

    source: str | None = None
    options: str | None = None
    with_secrets: bool = False


UNKNOWN_PROVENANCE = Provenance()


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode as it is stored.

    Attributes:
        info: Its state. `rewards` is empty here: they are in the steps. `expires_in` is not known.
        principal: Name of the principal that owns it.
        environment_version: Version of the environment.
        prompt: What the player was told to do.
        first_observation: What the player saw first.
        updated_at: When something was last recorded of it, as Unix time in seconds.
        forked_from: Handle of the episode that it is a copy of; `None` if it was opened as usual.
        forked_at: How many calls of that episode it begins with.
        reward_in_meta: Whether the player may be shown the reward.
        origin: What it was made of.
    """

    info: EpisodeInfo
    principal: str
    environment_version: str
    prompt: str
    first_observation: Observation
    updated_at: float
    forked_from: str | None = None
    forked_at: int | None = None
    reward_in_meta: bool = False
    origin: Provenance = UNKNOWN_PROVENANCE


@dataclass(frozen=True, slots=True)
class EpisodePage:
    """A page of episodes, the newest first.

    Attributes:
        episodes: The episodes. `first_observation` is left empty, because it may be large.
        next: Pass it as `after` to get the next page; `None` on the last one.
    """

    episodes: Sequence[StoredEpisode]
    next: str | None


@dataclass(frozen=True, slots=True)
class Period:
    """What happened in a period of time, for plots.

    Attributes:
        start: Its start, as Unix time in seconds.
        episodes: How many episodes were opened in it.
        reward: Mean reward of those that have one; `None` if none has.
        steps: Mean number of steps of those that ended.
        seconds: Mean time from opening to end of those that ended.
        outcomes: How many ended for which reason.
    """

    start: float
    episodes: int
    reward: float | None
    steps: float | None
    seconds: float | None
    outcomes: Mapping[str, int]


class Archive(Protocol):
    """The recorded episodes.

    Methods that take a handle raise `UnknownEpisode` if the store has no such episode, or if `principal` is given and
    another one owns it. Every method raises `StoreUnavailable` if the store cannot be read now.
    """

    async def find(self, wanted: EpisodeFilter, limit: int = 100, after: str | None = None) -> EpisodePage:
        """The episodes that a filter lets through, the newest first.

        Args:
            wanted: The filter.
            limit: The most episodes of a page.
            after: `next` of the page before.
        """
        ...

    async def count(self, wanted: EpisodeFilter) -> int:
        """How many episodes a filter lets through."""
        ...

    async def episode(self, handle: str, principal: str | None = None) -> StoredEpisode:
        """One episode, in its latest run."""
        ...

    async def steps(
        self, handle: str, principal: str | None = None, after: int = 0, limit: int | None = None
    ) -> list[StepRecord]:
        """Calls of an episode's latest run, oldest first.

        Args:
            handle: The episode.
            principal: Who has to own it.
            after: Index of the last call that is not wanted; 0 for all.
            limit: The most calls to return.
        """
        ...

    async def tools(self, fingerprint: str) -> list[dict[str, Any]] | None:
        """A tool listing by its fingerprint, as MCP lists tools; `None` if no episode with it is stored."""
        ...

    async def periods(self, wanted: EpisodeFilter, seconds: float) -> list[Period]:
        """The episodes that a filter lets through by periods of time, the oldest first. Empty periods are left out.

        Args:
            wanted: The filter.
            seconds: Length of a period.
        """
        ...

    async def label_values(self, name: str, principal: str | None = None, limit: int = 100) -> list[str]:
        """The values of a label, that of the newest episode first."""
        ...

    async def attach(self, handle: str, kind: str, data: Mapping[str, Any], principal: str | None = None) -> None:
        """Store data with an episode, such as the token ids and logprobs of its rollout.

        Args:
            handle: The episode.
            kind: Name of the data. Data of the same kind is replaced.
            data: JSON.
            principal: Who has to own it.
        """
        ...

    async def attached(self, handle: str, kind: str, principal: str | None = None) -> dict[str, Any] | None:
        """Data that was stored with an episode; `None` if there is none of this kind."""
        ...

    def changes(self) -> AbstractAsyncContextManager[AsyncIterator[frozenset[str]]]:
        """Watch for changes: yields the handles of episodes of which something was recorded since the last time.

        A change in this process is told at once, and one of another gateway on the same store within a second.
        """
        ...
