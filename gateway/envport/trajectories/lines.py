"""Recorded episodes and calls as lines of a journal."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from pydantic_core import to_json

from envport.blocks import MOST_NESTED, nested_too_deeply, nesting, whole_text
from envport.trajectories.store import EpisodeSnapshot, EpisodeState, ResumePoint, Totals
from envport.types import Observation, StepRecord

__all__ = [
    "CallLine",
    "call_line",
    "ended_line",
    "json_line",
    "opened_line",
    "parse_call",
    "parse_point",
    "point_line",
    "recorded_form",
]

_WITH_BLOBS = frozenset({"image", "audio"})


def json_line(record: StepRecord) -> bytes:
    """A call as JSON in UTF-8, without line breaks and tabs.

    Arguments and diagnostics that are nested too deeply to be read are left out.
    """
    try:
        line = record.__pydantic_serializer__.to_json(record)
    except ValueError:
        # An argument may contain a lone surrogate, which UTF-8 cannot encode. It becomes U+FFFD.
        try:
            line = whole_text(json.dumps(record.model_dump(), ensure_ascii=False)).encode()
        except RecursionError:
            return _without_what_is_deep(record)
    too_deep = nested_too_deeply([record.arguments, record.info], line)
    return _without_what_is_deep(record) if too_deep else line


def _without_what_is_deep(record: StepRecord) -> bytes:
    data = {"arguments": record.arguments, "info": record.info}
    kept = {name: value if nesting(value) < MOST_NESTED else {} for name, value in data.items()}
    return json_line(record.model_copy(update=kept))


def recorded_form(record: StepRecord) -> StepRecord:
    """A call as it is read back from a store."""
    return StepRecord.model_validate_json(json_line(record))


def opened_line(key: int, snapshot: EpisodeSnapshot, *, with_tools: bool) -> bytes:
    """The line of an episode that begins.

    Args:
        key: Key of its run.
        snapshot: The episode.
        with_tools: Whether the store does not know its tool listing yet.
    """
    info = {
        **snapshot.state._asdict(),
        "episode_id": snapshot.episode_id,
        "environment": snapshot.environment,
        "split": snapshot.split,
        "task": snapshot.task,
        "task_index": snapshot.task_index,
        "seed": snapshot.seed,
        "resets": snapshot.resets,
        "labels": snapshot.labels,
        "fingerprint": snapshot.fingerprint,
    }
    said = {
        "info": info,
        "principal": snapshot.principal,
        "environment_version": snapshot.environment_version,
        "prompt": snapshot.prompt,
        "first_observation": snapshot.first_observation,
        "tools": snapshot.tools if with_tools else None,
        "reward_in_meta": snapshot.reward_in_meta,
        "origin": snapshot.origin,
        "forked_from": snapshot.forked_from,
        "forked_at": snapshot.forked_at,
    }
    return b"o\t%d\t%b\n" % (key, to_json(said))


def call_line(key: int, record: StepRecord, totals: Totals) -> bytes:
    """The line of a call.

    Args:
        key: Key of the run.
        record: The call.
        totals: What the episode has come to after it.
    """
    steps, errors, reward, seconds = totals
    said = "" if reward is None else repr(float(reward))
    blobs = "1" if _has_blobs(record.observation) else "0"
    head = f"s\t{key}\t{record.index}\t{steps}\t{errors}\t{said}\t{seconds:.6f}\t{blobs}\t"
    return head.encode("ascii") + json_line(record) + b"\n"


def point_line(key: int, point: ResumePoint) -> bytes:
    """The line of a resume point.

    Args:
        key: Key of the run.
        point: The point.
    """
    snapshot = base64.b64encode(point.snapshot) if point.snapshot is not None else b"-"
    return b"r\t%d\t%d\t%b\t%b\n" % (key, point.index, snapshot, json.dumps(point.call_id).encode("ascii"))


def parse_point(line: bytes) -> tuple[int, ResumePoint]:
    """Read the line of a resume point: the key of the run, and the point."""
    _, key, index, snapshot, call_id = line.split(b"\t", 4)
    data = base64.b64decode(snapshot, validate=True) if snapshot != b"-" else None
    at = int(index) if data is not None else None
    return int(key), ResumePoint(int(index), json.loads(call_id), data, at)


def ended_line(key: int, state: EpisodeState) -> bytes:
    """The line of an episode that got its outcome.

    Args:
        key: Key of its run.
        state: How it ended.
    """
    return b"e\t%d\t%b\n" % (key, to_json({"info": state._asdict()}))


class CallLine(NamedTuple):
    """A call, as its line says.

    Attributes:
        key: Key of the run.
        number: Index of the call.
        totals: What the episode has come to after it.
        has_blobs: Whether its observation has images or sounds.
        body: The call as JSON.
    """

    key: int
    number: int
    totals: Totals
    has_blobs: bool
    body: str


def parse_call(line: bytes) -> CallLine:
    """Read the line of a call."""
    _, key, index, steps, errors, reward, seconds, has_blobs, body = line.split(b"\t", 8)
    totals = Totals(int(steps), int(errors), float(reward) if reward else None, float(seconds))
    return CallLine(int(key), int(index), totals, has_blobs == b"1", body.decode())


def _has_blobs(observation: Observation) -> bool:
    for block in observation.content:  # noqa: SIM110 - a call has mostly one, and a generator would cost more
        if block["type"] in _WITH_BLOBS:
            return True
    return False
