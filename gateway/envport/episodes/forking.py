"""Copying an episode at one of its calls."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from envport.definition import EnvironmentDefinition
from envport.episodes.again import past_of, require_same, start_of
from envport.episodes.lasting import LastingEpisode
from envport.episodes.past import NotPutBack, Past, why_not_again
from envport.episodes.requests import EpisodeStart, OpenRequest
from envport.errors import EpisodeOver, InvalidRequest, UnknownEpisode
from envport.trajectories import Archive, ResumePoint, StoredEpisode

__all__ = ["Branch", "find_branch"]


@dataclass(frozen=True)
class Branch:
    """What a copy of an episode begins with.

    Attributes:
        spec: The environment.
        start: Task, seed and tools.
        past: The calls.
        labels: The labels of the episode.
        secrets: The secrets of the environment.
        reward_in_meta: Whether the player may be shown the reward.
    """

    spec: EnvironmentDefinition
    start: EpisodeStart
    past: Past
    labels: Mapping[str, str]
    secrets: Mapping[str, str]
    reward_in_meta: bool

    def request(self, principal: str, labels: Mapping[str, str] | None) -> OpenRequest:
        """The request for a copy.

        Args:
            principal: Name of the principal that will own it.
            labels: Its labels; those of the episode if not given.
        """
        return OpenRequest(
            self.spec.name,
            principal,
            reward_in_meta=self.reward_in_meta,
            labels=self.labels if labels is None else labels,
            secrets=self.secrets,
        )


async def find_branch(
    episode: LastingEpisode | None,
    archive: Archive | None,
    environments: Mapping[str, EnvironmentDefinition],
    handle: str,
    principal: str,
    step: int | None,
) -> Branch:
    """The branch of an episode, which may be live, have ended, or have been played by another gateway.

    Args:
        episode: The episode, if the table remembers it.
        archive: The stored episodes, if there are any.
        environments: The environments that are served, by name.
        handle: Handle of the episode.
        principal: Name of the principal, which has to own it.
        step: How many of its calls the branch begins with; `None` for all.

    Raises:
        UnknownEpisode: There is no such episode, or another principal owns it.
        InvalidRequest: It cannot be copied there.
        EpisodeFailed: The environment broke.
        StoreUnavailable: Its calls cannot be read now.
    """
    if episode is not None and episode.principal != principal:
        raise UnknownEpisode
    if episode is not None and episode.status == "running":
        # It may end in the meantime.
        with suppress(EpisodeOver):
            return await _branch_of(episode, step)
    if archive is None:
        if episode is None:
            raise UnknownEpisode
        raise InvalidRequest("Only live episodes can be copied here, because trajectories are kept in memory.")
    secrets = episode.secrets if episode is not None else None
    return await _branch_of_stored(archive, environments, await archive.episode(handle, principal), step, secrets)


async def _branch_of(episode: LastingEpisode, step: int | None) -> Branch:
    snapshot, whole = await episode.branch(step)
    past = _cut(whole, step, episode.handle, snapshot)
    return _checked(
        Branch(episode.spec, episode.start, past, episode.subject.labels, episode.secrets, episode.reward_in_meta)
    )


async def _branch_of_stored(
    archive: Archive,
    environments: Mapping[str, EnvironmentDefinition],
    stored: StoredEpisode,
    step: int | None,
    secrets: Mapping[str, str] | None,
) -> Branch:
    spec = environments.get(stored.info.environment)
    if spec is None:
        raise InvalidRequest(f"The environment {stored.info.environment!r} of this episode is not served here.")
    if secrets is None and stored.origin.with_secrets:
        raise InvalidRequest("This episode was opened with secrets, which are not stored, so it cannot be copied.")
    past = _cut(await past_of(archive, stored), step, stored.info.episode_id, None)
    try:
        require_same(spec, stored)
        start = await start_of(spec, stored)
    except NotPutBack as why:
        raise InvalidRequest(f"This episode cannot be copied: {why}.") from None
    given = spec.secrets if secrets is None else secrets
    return _checked(Branch(spec, start, past, stored.info.labels, given, stored.reward_in_meta))


def _cut(whole: Past, step: int | None, handle: str, snapshot: bytes | None) -> Past:
    calls = len(whole.steps)
    if step is not None and not 0 <= step <= calls:
        raise InvalidRequest(f"step is {step}; the episode has {calls} calls, so it has to be from 0 to {calls}")
    at = calls if step is None else step
    point = ResumePoint(at, None, snapshot, at) if snapshot is not None else None
    past = replace(whole, steps=whole.steps[:at], point=point, seconds=0.0, resets=0, forked_from=handle)
    if past.ended:
        raise InvalidRequest(f"Call {at} ended the episode, so a copy would have ended too: choose a step below {at}")
    return past


def _checked(branch: Branch) -> Branch:
    if branch.past.snapshot is None and not branch.spec.deterministic:
        raise InvalidRequest(
            f"This episode cannot be copied at call {len(branch.past.steps)}: {_why_not(branch.spec)}."
        )
    return branch


def _why_not(spec: EnvironmentDefinition) -> str:
    if not spec.has_snapshots:
        return why_not_again(spec)
    return (
        f"its environment {spec.name!r} does not declare deterministic = True, so only a live episode can be copied, "
        "and only as it is now"
    )
