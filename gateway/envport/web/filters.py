"""The filters of the list of episodes, as a browser's address carries them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast, get_args
from urllib.parse import urlencode

from envport.errors import InvalidRequest
from envport.trajectories.archive import EpisodeFilter
from envport.types import Reason, Status

__all__ = ["AGES", "NAMES", "Asked", "choices_of", "read_labels"]

NAMES = (
    "environment",
    "status",
    "reason",
    "live",
    "min_reward",
    "max_reward",
    "age",
    "since",
    "until",
    "labels",
    "principal",
)
"""The names of the filters."""

AGES = {"": "any time", "600": "last 10 minutes", "3600": "last hour", "86400": "last day", "604800": "last week"}
"""How old episodes may be, in seconds, with what to call it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody looks for.

    Attributes:
        said: What was typed or chosen, by the name of the filter. What is empty filters nothing.
    """

    said: Mapping[str, str]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Asked:
        """The filters in the query of an address. Other names are left out."""
        return cls({name: query[name].strip() for name in NAMES if query.get(name, "").strip()})

    @property
    def address(self) -> str:
        """The path of the list with these filters."""
        query = urlencode({name: value for name, value in self.said.items() if value})
        return f"/ui/episodes?{query}" if query else "/ui/episodes"

    def filter(self, owner: str | None, *, rewards: bool) -> EpisodeFilter:
        """The filter for the archive.

        Args:
            owner: Whose episodes may be seen; `None` for everybody's.
            rewards: Whether rewards and labels may be seen. If not, filters by them are refused: they would tell them.

        Raises:
            InvalidRequest: A filter cannot be read. The message says what is allowed.
        """
        said = self.said
        low, high = _number(said, "min_reward"), _number(said, "max_reward")
        if not rewards and (low is not None or high is not None):
            raise InvalidRequest("your token does not show rewards, so they cannot be filtered by")
        labels = read_labels(said.get("labels", ""))
        if not rewards and labels:
            raise InvalidRequest("your token does not show labels, so they cannot be filtered by")
        age = _number(said, "age")
        since = time.time() - age if age is not None else _moment(said, "since")
        return EpisodeFilter(
            principal=owner if owner is not None else said.get("principal"),
            environment=said.get("environment"),
            status=cast("Status | None", _one_of(said, "status", get_args(Status))),
            reason=cast("Reason | None", _one_of(said, "reason", get_args(Reason))),
            live={"yes": True, "no": False, None: None}[_one_of(said, "live", ("yes", "no"))],
            min_reward=low,
            max_reward=high,
            since=since,
            until=_moment(said, "until"),
            labels=labels,
        )


def read_labels(said: str) -> dict[str, str]:
    """Labels that are written as `run=a, sample=2`.

    Raises:
        InvalidRequest: They are written otherwise.
    """
    labels: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in said.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name or not value:
            raise InvalidRequest(f"{part!r} is no label: write NAME=VALUE, with commas between several")
        labels[name] = value
    return labels


def _one_of(said: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str | None:
    value = said.get(name)
    if value is not None and value not in allowed:
        raise InvalidRequest(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
    return value


def _number(said: Mapping[str, str], name: str) -> float | None:
    value = said.get(name)
    try:
        return None if value is None else float(value)
    except ValueError:
        raise InvalidRequest(f"{name} is {value!r}; it has to be a number") from None


def _moment(said: Mapping[str, str], name: str) -> float | None:
    value = said.get(name)
    try:
        return None if value is None else datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InvalidRequest(f"{name} is {value!r}; it has to be like 2026-01-31T12:00, in UTC") from None


def choices_of(kind: Any) -> dict[str, str]:
    """The values of a literal type as choices, with one that filters nothing."""
    return {"": "any", **{value: value for value in get_args(kind)}}
