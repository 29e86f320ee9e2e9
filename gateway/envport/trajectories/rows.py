"""Lines of a journal as rows of the database."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_core import from_json, to_json
from sqlalchemy import ColumnElement, Connection, Double, Table, bindparam, case, delete, func, update
from sqlalchemy import cast as cast_sql
from sqlalchemy.dialects import postgresql, sqlite

from envport.trajectories.journal import RESUMING
from envport.trajectories.lines import parse_call, parse_point
from envport.trajectories.schema import (
    blobs,
    episode_blobs,
    episodes,
    gateways,
    labels,
    listings,
    openings,
    resume_points,
    steps,
)
from envport.trajectories.store import Totals

__all__ = ["BLOB", "Batch", "insert_new", "mark_seen", "outcome_fields"]

logger = logging.getLogger(__name__)

BLOB = "envport/blob"
"""Key of a content block in the database: digest of the data that is in `blobs`."""

# PostgreSQL has to be told the type of a parameter in a CASE.
_TOTAL_REWARD: ColumnElement[Any] = cast_sql(bindparam("total_reward"), Double)
_TOTALS = (
    update(episodes)
    .where(episodes.c.id == bindparam("key"))
    .values(
        steps=bindparam("total_steps"),
        errors=bindparam("total_errors"),
        # A call may be recorded after its episode was lost.
        reward=case((episodes.c.lost, None), else_=_TOTAL_REWARD),
        environment_seconds=bindparam("total_seconds"),
        updated_at=bindparam("at"),
        bytes=episodes.c.bytes + bindparam("more_bytes"),
    )
)
# What `outcome_fields` has.
_AT_ITS_END = (
    *("status", "reason", "fault", "lost", "steps", "errors"),
    *("reward", "score", "environment_seconds", "ended_at", "updated_at"),
)
_ENDED = (
    update(episodes)
    .where(episodes.c.id == bindparam("key"))
    .values({name: bindparam(f"new_{name}") for name in _AT_ITS_END})
)
_OUTCOME = update(openings).where(openings.c.episode == bindparam("key")).values(outcome=bindparam("new_outcome"))
_NOT_RESUMED = delete(resume_points).where(resume_points.c.episode == bindparam("key"))
_EARLIER_RUN = (
    update(episodes).where(episodes.c.handle == bindparam("of"), episodes.c.id < bindparam("key")).values(latest=False)
)

_Row = dict[str, Any]


@dataclass
class Batch:
    """Lines of a journal that are written in one transaction. Writing lines again changes nothing.

    Args:
        gateway: Name of the journal.

    Attributes:
        touched: Keys of the runs that the lines are about.
        opened: The handles of the runs that begin, by key.
        ended: Keys of the runs that have ended.
    """

    gateway: str
    touched: set[int] = field(default_factory=set[int])
    opened: dict[int, str] = field(default_factory=dict[int, str])
    ended: set[int] = field(default_factory=set[int])
    _rows: dict[Table, list[_Row]] = field(default_factory=dict[Table, list[_Row]])
    # Of the runs that begin: the rows of `episodes` and `openings`.
    _begun: dict[int, tuple[_Row, _Row]] = field(default_factory=dict[int, tuple[_Row, _Row]])
    _totals: dict[int, Totals] = field(default_factory=dict[int, Totals])
    _bytes: Counter[int] = field(default_factory=Counter[int])
    # Of the runs that end: the columns that change, and the outcome as JSON.
    _ends: dict[int, tuple[_Row, str]] = field(default_factory=dict[int, tuple[_Row, str]])
    _earlier: list[_Row] = field(default_factory=list[_Row])
    _points: dict[int, _Row] = field(default_factory=dict[int, _Row])

    def add(self, lines: Sequence[bytes]) -> None:
        """Add lines. One that cannot be read is logged and left out."""
        for line in lines:
            try:
                self._add(line)
            except (ValueError, KeyError, TypeError) as error:
                logger.error("a line of the journal %s cannot be read and is left out: %r", self.gateway, error)

    def _add(self, line: bytes) -> None:
        kind = line[:2]
        if kind == b"s\t":
            call = parse_call(line)
            body = self._without_blobs(call.key, call.body) if call.has_blobs else call.body
            self._insert(steps, {"episode": call.key, "index": call.number, "body": body})
            self._totals[call.key] = call.totals
            self._bytes[call.key] += len(body)
            self.touched.add(call.key)
        elif kind == b"o\t":
            self._open(line)
        elif kind == b"r\t":
            self._resume_from(line)
        elif kind == b"e\t":
            self._end(line)
        else:
            raise ValueError(f"it begins with {kind!r}")

    def write(self, connection: Connection) -> None:
        """Write the rows."""
        whole = self._begun.keys() & self._ends.keys()
        self._write_begun(connection, whole)
        for table, rows in self._rows.items():
            if rows:
                connection.execute(insert_new(connection, table), rows)
        if self._earlier:
            connection.execute(_EARLIER_RUN, self._earlier)
        if totals := [self._total(key, total) for key, total in self._totals.items() if key not in whole]:
            connection.execute(_TOTALS, totals)
        if points := [row for key, row in self._points.items() if key not in whole]:
            connection.execute(_latest_points(connection), points)
        if self._ends and self.gateway.startswith(RESUMING):
            connection.execute(_NOT_RESUMED, [{"key": key} for key in self._ends])
        if ends := {key: end for key, end in self._ends.items() if key not in whole}:
            connection.execute(
                _ENDED,
                [{"key": key} | {f"new_{name}": it for name, it in row.items()} for key, (row, _) in ends.items()],
            )
            connection.execute(_OUTCOME, [{"key": key, "new_outcome": outcome} for key, (_, outcome) in ends.items()])

    def _write_begun(self, connection: Connection, whole: Set[int]) -> None:
        """Write the runs that begin; those of `whole` with their ends, so that these take no update."""
        new = [rows for key, rows in self._begun.items() if key not in whole]
        if new:
            connection.execute(insert_new(connection, episodes), [episode for episode, _ in new])
            connection.execute(insert_new(connection, openings), [opening for _, opening in new])
        if whole:
            ended = [self._begun[key][0] | self._ends[key][0] | {"bytes": self._size(key)} for key in sorted(whole)]
            connection.execute(_put(connection, episodes, "id", (*_AT_ITS_END, "bytes")), ended)
            outcomes = [self._begun[key][1] | {"outcome": self._ends[key][1]} for key in sorted(whole)]
            connection.execute(_put(connection, openings, "episode", ("outcome",)), outcomes)

    def _size(self, key: int) -> int:
        return self._begun[key][0]["bytes"] + self._bytes[key]

    def _total(self, key: int, total: Totals) -> _Row:
        return {
            "key": key,
            "total_steps": total.steps,
            "total_errors": total.errors,
            "total_reward": total.reward,
            "total_seconds": total.environment_seconds,
            "at": time.time(),
            "more_bytes": self._bytes[key],
        }

    def _open(self, line: bytes) -> None:
        key, said = _parsed(line)
        info = said["info"]
        self.touched.add(key)
        self.opened[key] = info["episode_id"]
        body = self._body(key, said)
        episode = {
            "id": key,
            "handle": info["episode_id"],
            "resets": info["resets"],
            "latest": True,
            "gateway": self.gateway,
            "principal": said["principal"],
            "environment": info["environment"],
            "environment_version": said["environment_version"],
            "split": info["split"],
            "task_id": _plain(info["task"]["id"]) if info["task"] is not None else None,
            "task_index": info["task_index"],
            "seed": info["seed"],
            "fingerprint": info["fingerprint"],
            "created_at": info["created_at"],
            "forked_from": said["forked_from"],
            "forked_at": said["forked_at"],
            "bytes": len(body),
            **outcome_fields(info),
        }
        if info["resets"]:
            self._earlier.append({"of": info["episode_id"], "key": key})
        for name, value in info["labels"].items():
            self._insert(labels, {"episode": key, "name": name, "value": value})
        if said["tools"]:
            self._insert(listings, {"fingerprint": info["fingerprint"], "tools": to_json(said["tools"]).decode()})
        self._begun[key] = episode, {"episode": key, "body": body}

    def _resume_from(self, line: bytes) -> None:
        key, point = parse_point(line)
        row = self._points.setdefault(key, {"episode": key, "snapshot": None, "snapshot_index": None})
        row |= {"index": point.index, "call_id": point.call_id}
        if point.snapshot is not None:
            row |= {"snapshot": point.snapshot, "snapshot_index": point.snapshot_index}

    def _end(self, line: bytes) -> None:
        key, said = _parsed(line)
        self.touched.add(key)
        self.ended.add(key)
        self._ends[key] = outcome_fields(said["info"]), to_json(said["info"]["outcome"]).decode()

    def _insert(self, table: Table, row: _Row) -> None:
        self._rows.setdefault(table, []).append(row)

    def _body(self, key: int, said: dict[str, Any]) -> str:
        kept = {name: said["info"][name] for name in ("task", "labels")}
        kept |= {name: said[name] for name in ("prompt", "first_observation", "reward_in_meta", "origin")}
        self._take_blobs(key, kept["first_observation"])
        return to_json(kept).decode()

    def _without_blobs(self, key: int, body: str) -> str:
        call = from_json(body)
        self._take_blobs(key, call["observation"])
        return to_json(call).decode()

    def _take_blobs(self, key: int, observation: dict[str, Any]) -> None:
        """Take the images of an observation out, and put their digests in."""
        for block in observation["content"]:
            if block.get("type") in ("image", "audio") and isinstance(block.get("data"), str):
                data = cast("str", block.pop("data")).encode()
                digest = hashlib.sha256(data).hexdigest()
                block[BLOB] = digest
                self._insert(blobs, {"digest": digest, "data": data, "bytes": len(data)})
                self._insert(episode_blobs, {"episode": key, "digest": digest})


def insert_new(connection: Connection, table: Table) -> Any:
    """A statement that inserts rows, except those that are there."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing()


def _put(connection: Connection, table: Table, key: str, changed: Sequence[str]) -> Any:
    """A statement that inserts rows, and changes these columns of those that are there.

    The lines of an abandoned journal may be written again, when only the first of them have been written.
    """
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    return statement.on_conflict_do_update(
        index_elements=[table.c[key]], set_={name: statement.excluded[name] for name in changed}
    )


def _latest_points(connection: Connection) -> Any:
    """A statement that inserts resume points or replaces earlier ones. Without a new snapshot, the earlier stays."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(resume_points)
    new, before = statement.excluded, resume_points.c
    return statement.on_conflict_do_update(
        index_elements=[before.episode],
        set_={
            "index": new.index,
            "call_id": new.call_id,
            "snapshot": func.coalesce(new.snapshot, before.snapshot),
            "snapshot_index": func.coalesce(new.snapshot_index, before.snapshot_index),
        },
        # The lines of an abandoned journal may be written twice.
        where=new.index >= before.index,
    )


def mark_seen(connection: Connection, gateway: str) -> None:
    """Note that a gateway runs."""
    now = time.time()
    connection.execute(insert_new(connection, gateways), {"name": gateway, "seen_at": now})
    connection.execute(update(gateways).where(gateways.c.name == gateway).values(seen_at=now))


def outcome_fields(info: dict[str, Any]) -> _Row:
    """The columns that change when an episode ends.

    Args:
        info: `EpisodeInfo` as JSON.
    """
    outcome: dict[str, Any] = info["outcome"] or {}
    return {
        "status": outcome.get("status", info["status"]),
        "reason": outcome.get("reason"),
        "fault": outcome.get("fault"),
        "lost": outcome.get("infrastructure", False),
        "steps": info["steps"],
        "errors": info["errors"],
        "reward": info["reward"],
        "score": info["score"],
        "environment_seconds": info["environment_seconds"],
        "ended_at": info["ended_at"],
        "updated_at": info["ended_at"] or info["created_at"],
    }


def _parsed(line: bytes) -> tuple[int, dict[str, Any]]:
    _, key, said = line.split(b"\t", 2)
    return int(key), from_json(said)


def _plain(text: str) -> str:
    # PostgreSQL's text has no NUL.
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
