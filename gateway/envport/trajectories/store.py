"""The interface by which episodes are recorded."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from envport.trajectories.archive import UNKNOWN_PROVENANCE, Archive, Provenance, StoredEpisode
from envport.types import EpisodeInfo, Observation, Outcome, Status, StepRecord, Task

__all__ = ["EpisodeSnapshot", "EpisodeState", "ResumePoint", "Totals", "TrajectoryStore"]


class Totals(NamedTuple):
    """The totals of an episode after a call.

    Attributes:
        steps: Tool calls that reached the environment.
        errors: Tool calls that were refused, or that the environment answered with a `ToolError`.
        reward: The reward so far; `None` if no step had one.
        environment_seconds: Time spent inside the environment.
    """

    steps: int = 0
    errors: int = 0
    reward: float | None = None
    environment_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What is recorded beside a call, so that the episode can go on after a restart.

    Attributes:
        index: Index of the call; 0 before the first one.
        call_id: The id that the client gave the call, if it gave one.
        snapshot: The state of the environment after the call; `None` if it was not copied after this one.
        snapshot_index: Index of the call that the snapshot comes after.
    """

    index: int
    call_id: str | None = None
    snapshot: bytes | None = None
    snapshot_index: int | None = None


class EpisodeState(NamedTuple):
    """How far an episode has come, or how it ended. The fields are those of `EpisodeInfo`."""

    status: Status
    outcome: Outcome | None
    steps: int
    errors: int
    reward: float | None
    score: float | None
    environment_seconds: float
    created_at: float
    ended_at: float | None

    @classmethod
    def of(cls, info: EpisodeInfo) -> Self:
        """The state that an `EpisodeInfo` tells of."""
        return cls(*(getattr(info, name) for name in cls._fields))


class EpisodeSnapshot(NamedTuple):
    """What is recorded of an episode beside its calls, as it is now.

    Attributes:
        state: How far it has come.
        episode_id: Its handle.
        environment: Name of its environment.
        split: The split of its task.
        task: Its task.
        task_index: Index of the task in its split.
        seed: Its seed.
        resets: How often it was reset.
        labels: Its labels, by name.
        fingerprint: SHA-256 of its tool listing.
        principal: Name of the principal that owns it.
        environment_version: Version of the environment.
        prompt: What the player is told to do.
        first_observation: What the player saw first.
        tools: Its tool listing, as MCP lists tools.
        reward_in_meta: Whether the player may be shown the reward.
        origin: What it was made of.
        forked_from: Handle of the episode that it is a copy of; `None` if it was opened as usual.
        forked_at: How many calls of that episode it begins with.
    """

    state: EpisodeState
    episode_id: str
    environment: str
    split: str | None
    task: Task | None
    task_index: int | None
    seed: int | None
    resets: int
    labels: Mapping[str, str]
    fingerprint: str
    principal: str
    environment_version: str
    prompt: str
    first_observation: Observation
    tools: Sequence[dict[str, Any]]
    reward_in_meta: bool = False
    origin: Provenance = UNKNOWN_PROVENANCE
    forked_from: str | None = None
    forked_at: int | None = None


class TrajectoryStore(Protocol):
    """Records episodes. After `append` returns, the call is stored as durably as the store allows.

    Attributes:
        at_once: Whether `begin` and `append` wait for nothing, so that no cancellation can reach them.
        resumes: Whether resume points are recorded.
    """

    at_once: bool
    resumes: bool

    @property
    def where(self) -> str | None:
        """Where episodes are kept, for people to read. It contains no password. `None` for memory."""
        ...

    @property
    def archive(self) -> Archive | None:
        """Looks up what was recorded, by this gateway and by others; `None` if the table's memory is all there is."""
        ...

    def run(self) -> AbstractAsyncContextManager[None]:
        """Do what is done in the background, and store the rest at the end."""
        ...

    def check(self) -> None:
        """Check that a call could be recorded now.

        Raises:
            StoreUnavailable: It could not.
        """
        ...

    async def begin(
        self,
        episode_id: str,
        first_observation: Observation,
        snapshot: Callable[[], EpisodeSnapshot],
        point: ResumePoint | None = None,
    ) -> None:
        """Start the recording of an episode, or of another run of it after a reset.

        Args:
            episode_id: Handle of the episode.
            first_observation: What the player sees first.
            snapshot: Returns the episode as it is now.
            point: What is recorded to resume it.

        Raises:
            StoreUnavailable: It cannot be recorded.
        """
        ...

    async def append(
        self, episode_id: str, record: StepRecord, totals: Totals, point: ResumePoint | None = None
    ) -> None:
        """Record a call.

        Args:
            episode_id: Handle of the episode.
            record: The call.
            totals: What the episode has come to after it.
            point: What is recorded to resume the episode.

        Raises:
            StoreUnavailable: It cannot be recorded.
        """
        ...

    def end(self, episode_id: str, state: EpisodeState, snapshot: Callable[[], EpisodeSnapshot]) -> None:
        """Record how an episode ended. Also for one that could not begin.

        Args:
            episode_id: Handle of the episode.
            state: How it ended.
            snapshot: Returns the episode as it is now.
        """
        ...

    async def left(self) -> Sequence[StoredEpisode]:
        """The episodes that gateways which are gone have left live, and that are to be resumed here.

        Raises:
            StoreUnavailable: The store cannot be read now.
        """
        ...

    async def resume_point(self, episode_id: str) -> ResumePoint | None:
        """The latest resume point of an episode, with its latest snapshot; `None` if there is none.

        Raises:
            StoreUnavailable: The store cannot be read now.
        """
        ...

    def leave(self) -> None:
        """Leave the episodes that have not ended to the next gateway."""
        ...

    async def read(self, episode_id: str) -> tuple[Observation, Sequence[StepRecord], int]:
        """The first observation, the calls that are kept (oldest first), and how many older calls were dropped.

        Raises:
            StoreUnavailable: The store cannot be read now.
        """
        ...

    def forget(self, episode_id: str) -> None:
        """Free the memory that is held for an episode, which is played no more."""
        ...
