"""Queries on the tables of a trajectory store."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, cast

from pydantic import ValidationError
from sqlalchemy import BigInteger, ColumnElement, Connection, Row, and_, func, select
from sqlalchemy import cast as cast_sql

from envport.errors import StoreUnavailable, UnknownEpisode
from envport.tools.content import text_observation
from envport.trajectories.archive import EpisodeFilter, EpisodePage, Period, Provenance, StoredEpisode
from envport.trajectories.rows import BLOB
from envport.trajectories.schema import blobs, episodes, labels, listings, openings, resume_points, steps
from envport.trajectories.store import ResumePoint
from envport.types import EpisodeInfo, Observation, Outcome, StepRecord, Task

__all__ = [
    "conditions",
    "count_episodes",
    "find_episodes",
    "live_of",
    "read_episode",
    "read_label_values",
    "read_left",
    "read_listing",
    "read_periods",
    "read_point",
    "read_steps",
    "run_of",
]

logger = logging.getLogger(__name__)

_Means = tuple[int, int, float | None, Any, float | None]

_COLUMNS = [*episodes.c, openings.c.body, openings.c.outcome]


def conditions(wanted: EpisodeFilter) -> list[ColumnElement[bool]]:
    """A filter as conditions on `episodes`."""
    it = episodes.c
    equal = {
        it.principal: wanted.principal,
        it.environment: wanted.environment,
        it.status: wanted.status,
        it.reason: wanted.reason,
        it.fault: wanted.fault,
        it.lost: wanted.lost,
    }
    found: list[ColumnElement[bool]] = [
        it.latest,
        *(column == value for column, value in equal.items() if value is not None),
    ]
    if wanted.live is not None:
        found.append(it.ended_at.is_(None) if wanted.live else it.ended_at.is_not(None))
    if wanted.min_reward is not None:
        found.append(it.reward >= wanted.min_reward)
    if wanted.max_reward is not None:
        found.append(it.reward <= wanted.max_reward)
    if wanted.since is not None:
        found.append(it.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(it.created_at < wanted.until)
    for name, value in wanted.labels.items():
        # The subquery runs once, with the index. `exists` would run once for each episode.
        found.append(it.id.in_(select(labels.c.episode).where(labels.c.name == name, labels.c.value == value)))
    return found


def find_episodes(connection: Connection, wanted: EpisodeFilter, limit: int, after: str | None) -> EpisodePage:
    """The episodes that a filter lets through, the newest first."""
    query = select(*_COLUMNS).outerjoin(openings, openings.c.episode == episodes.c.id).where(*conditions(wanted))
    if after is not None:
        query = query.where(episodes.c.id < int(after))
    rows = connection.execute(query.order_by(episodes.c.id.desc()).limit(limit + 1)).all()
    page = [stored for row in rows[:limit] if (stored := _listed(row)) is not None]
    return EpisodePage(page, str(rows[limit - 1].id) if len(rows) > limit else None)


def count_episodes(connection: Connection, wanted: EpisodeFilter) -> int:
    """How many episodes a filter lets through."""
    return connection.execute(select(func.count()).select_from(episodes).where(*conditions(wanted))).scalar_one()


def run_of(connection: Connection, handle: str, principal: str | None) -> int:
    """Key of the latest run of an episode.

    Raises:
        UnknownEpisode: There is none, or another principal owns it.
    """
    query = select(episodes.c.id).where(episodes.c.handle == handle, episodes.c.latest)
    if principal is not None:
        query = query.where(episodes.c.principal == principal)
    key = connection.execute(query).scalar()
    if key is None:
        raise UnknownEpisode
    return key


def read_episode(connection: Connection, handle: str, principal: str | None) -> StoredEpisode:
    """One episode, in its latest run."""
    key = run_of(connection, handle, principal)
    query = select(*_COLUMNS).outerjoin(openings, openings.c.episode == episodes.c.id)
    row = connection.execute(query.where(episodes.c.id == key)).one()
    try:
        return _stored(row, _first_observation(connection, row.body))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreUnavailable(f"The episode {handle} cannot be read from the trajectory store: {error}") from None


def read_steps(
    connection: Connection, handle: str, principal: str | None, after: int, limit: int | None
) -> list[StepRecord]:
    """Calls of an episode's latest run, oldest first."""
    key = run_of(connection, handle, principal)
    query = select(steps.c.index, steps.c.body).where(steps.c.episode == key, steps.c.index > after)
    rows = connection.execute(query.order_by(steps.c.index).limit(limit)).all()
    return [_step(connection, handle, index, body) for index, body in rows]


def read_left(connection: Connection, gateway: str) -> dict[int, StoredEpisode]:
    """The live episodes of a gateway by the keys of their runs, without their first observations."""
    query = select(*_COLUMNS).outerjoin(openings, openings.c.episode == episodes.c.id)
    rows = connection.execute(query.where(live_of(gateway), episodes.c.latest).order_by(episodes.c.id)).all()
    return {row.id: stored for row in rows if (stored := _listed(row)) is not None}


def read_point(connection: Connection, key: int) -> ResumePoint | None:
    """The resume point of a run."""
    row = connection.execute(select(resume_points).where(resume_points.c.episode == key)).one_or_none()
    if row is None:
        return None
    snapshot = bytes(row.snapshot) if row.snapshot is not None else None
    return ResumePoint(row[1], row.call_id, snapshot, row.snapshot_index)


def read_listing(connection: Connection, fingerprint: str) -> list[dict[str, Any]] | None:
    """A tool listing by its fingerprint."""
    found = connection.execute(select(listings.c.tools).where(listings.c.fingerprint == fingerprint)).scalar()
    return json.loads(found) if found is not None else None


def read_periods(connection: Connection, wanted: EpisodeFilter, seconds: float) -> list[Period]:
    """The episodes that a filter lets through by periods of time."""
    it = episodes.c
    number = it.created_at / seconds
    if connection.dialect.name == "postgresql":
        # Its cast rounds; that of SQLite cuts off.
        number = func.floor(number)
    number = cast_sql(number, BigInteger)
    period = number.label("period")
    where = conditions(wanted)
    means = (
        select(
            period,
            func.count(),
            func.avg(it.reward),
            func.avg(it.steps).filter(it.ended_at.is_not(None)),
            func.avg(it.ended_at - it.created_at),
        )
        .where(*where)
        .group_by(period)
        .order_by(period)
    )
    reasons = select(period, it.reason, func.count()).where(*where, it.reason.is_not(None)).group_by(period, it.reason)
    outcomes: dict[int, dict[str, int]] = {}
    for at, reason, count in cast("list[tuple[int, str, int]]", connection.execute(reasons).all()):
        outcomes.setdefault(int(at), {})[reason] = count
    return [
        Period(
            at * seconds, count, reward, float(mean) if mean is not None else None, lasted, outcomes.get(int(at), {})
        )
        for at, count, reward, mean, lasted in cast("list[_Means]", connection.execute(means).all())
    ]


def read_label_values(connection: Connection, name: str, principal: str | None, limit: int) -> list[str]:
    """The values of a label, that of the newest episode first."""
    newest = func.max(labels.c.episode)
    query = select(labels.c.value).where(labels.c.name == name)
    if principal is not None:
        query = query.join(episodes, episodes.c.id == labels.c.episode).where(episodes.c.principal == principal)
    return list(connection.execute(query.group_by(labels.c.value).order_by(newest.desc()).limit(limit)).scalars())


def _listed(row: Row[Any]) -> StoredEpisode | None:
    try:
        return _stored(row, Observation())
    except (ValueError, KeyError, TypeError) as error:
        logger.error("the episode %s cannot be read from the trajectory store: %s", row.handle, error)
        return None


def _stored(row: Row[Any], first_observation: Observation) -> StoredEpisode:
    body = json.loads(row.body)
    outcome = Outcome.model_validate_json(row.outcome) if row.outcome and row.outcome != "null" else None
    info = EpisodeInfo(
        episode_id=row.handle,
        environment=row.environment,
        split=row.split,
        task=Task.model_validate(body["task"]) if body["task"] is not None else None,
        task_index=row.task_index,
        seed=row.seed,
        status=row.status,
        outcome=outcome,
        steps=row.steps,
        errors=row.errors,
        reward=row.reward,
        score=row.score,
        created_at=row.created_at,
        ended_at=row.ended_at,
        environment_seconds=row.environment_seconds,
        resets=row.resets,
        fingerprint=row.fingerprint,
        labels=body["labels"],
    )
    return StoredEpisode(
        info,
        row.principal,
        row.environment_version,
        body["prompt"],
        first_observation,
        row.updated_at,
        row.forked_from,
        row.forked_at,
        body["reward_in_meta"],
        Provenance(**body.get("origin", {})),
    )


def _first_observation(connection: Connection, body: str) -> Observation:
    said = json.loads(body)["first_observation"]
    return Observation.model_validate(_with_blobs(connection, said) if BLOB in body else said)


def _step(connection: Connection, handle: str, index: int, body: str) -> StepRecord:
    try:
        if BLOB not in body:
            return StepRecord.model_validate_json(body)
        call = json.loads(body)
        call["observation"] = _with_blobs(connection, call["observation"])
        return StepRecord.model_validate(call)
    except (ValueError, KeyError, TypeError) as error:
        why = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)
        logger.error("call %d of the episode %s cannot be read from the trajectory store: %s", index, handle, why)
        unread = text_observation("This call cannot be read from the trajectory store.")
        return StepRecord(index=index, tool="", arguments={}, observation=unread, error="unreadable")


def _with_blobs(connection: Connection, observation: dict[str, Any]) -> dict[str, Any]:
    """An observation with its images put back."""
    content = cast("Sequence[dict[str, Any]]", observation["content"])
    wanted = {block[BLOB] for block in content if BLOB in block and "data" not in block}
    found = dict(connection.execute(select(blobs.c.digest, blobs.c.data).where(blobs.c.digest.in_(wanted))).all())
    filled: list[dict[str, Any]] = []
    for block in content:
        if (digest := block.get(BLOB)) in wanted:
            block = {**block, "data": bytes(found.get(digest, b"")).decode()}
            del block[BLOB]
        filled.append(block)
    return {**observation, "content": filled}


def live_of(gateway: str) -> ColumnElement[bool]:
    """The condition that a run is live and belongs to a gateway."""
    return and_(episodes.c.gateway == gateway, episodes.c.ended_at.is_(None))
