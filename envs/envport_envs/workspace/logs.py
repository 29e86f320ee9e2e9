"""Logs of web servers, and questions about them, each with its words, its answer and its pipeline of awk and sort."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

__all__ = ["FIELDS", "Filter", "Log", "Query", "Row", "draw_log", "draw_query"]

_HOSTS = ("web-1", "web-2", "web-3", "web-4")
_SERVICES = ("api", "auth", "billing", "search", "static")
_USERS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
_PATHS = ("/", "/cart", "/login", "/orders", "/profile", "/search")
_LEVELS = {"INFO": (200, 201, 204, 301), "WARN": (400, 401, 403, 404, 429), "ERROR": (500, 502, 503, 504)}
_NOISE = (
    "-- log rotated --",
    "Traceback (most recent call last):",
    "  ... 3 more lines",
    "2026-03-04T00:00:00Z web-1 api ERROR connection reset by peer while reading the response",
    "",
)
_NOISE_SHARE = 0.1
_LONGEST = 900

FIELDS = "TIME HOST SERVICE LEVEL STATUS MILLISECONDS USER PATH"
"""The fields of a line, with one blank between them."""


class Row(NamedTuple):
    """A line of a log."""

    time: str
    host: str
    service: str
    level: str
    status: int
    ms: int
    user: str
    path: str


@dataclass(frozen=True, slots=True)
class Log:
    """A log.

    Attributes:
        text: Its lines.
        records: What its lines say, without lines that are no records.
    """

    text: str
    records: tuple[Row, ...]


# The place in a line, for awk.
_KEYS = {"host": "$2", "service": "$3", "status": "$5", "user": "$7", "path": "$8", "hour": "substr($1, 12, 2)"}
_CATEGORIES: dict[str, tuple[str, Sequence[str]]] = {
    "service": ("$3", _SERVICES),
    "level": ("$4", (*_LEVELS,)),
    "host": ("$2", _HOSTS),
    "path": ("$8", _PATHS),
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which lines count.

    Attributes:
        words: What a player is told.
        awk: The condition in awk.
        keeps: Whether a line counts.
    """

    words: str
    awk: str
    keeps: Callable[[Row], bool]


@dataclass(frozen=True, slots=True)
class Query:
    """A question about a log.

    Attributes:
        filters: Which lines count: those that all of them keep.
        key: Field by which lines are grouped, or `hour`; `None` if they are not.
        value: What is told of a group: `count`, `sum`, `max` or `users`.
        by_value: Whether groups are sorted by their value, the largest first, and then by key; else by key only.
        most: How many groups are told; `None` for all.
        noise: Whether there are lines that are no records, and do not count.
    """

    filters: tuple[Filter, ...]
    key: str | None = None
    value: str = "count"
    by_value: bool = False
    most: int | None = None
    noise: bool = False

    def words(self) -> str:
        """What a player is told."""
        noise = "Some lines do not have exactly these 8 fields: skip them. " if self.noise else ""
        lines = f"{noise}Of the lines {' and '.join(it.words for it in self.filters)}, "
        if self.key is None:
            return f"{lines}print how many there are, as one number."
        key = "hour of the day (two digits, as it is written in TIME)" if self.key == "hour" else self.key.upper()
        value = {
            "count": "how many lines it has",
            "sum": "the sum of its MILLISECONDS",
            "max": "the largest of its MILLISECONDS",
            "users": "how many different USERs it has",
        }[self.value]
        order = "by value, the largest first; equal values by KEY" if self.by_value else "by KEY"
        cut = "" if self.most is None else f" Print only the first {self.most} lines of that."
        return (
            f"{lines}print one line for each {key}: KEY VALUE, with one blank between them, where VALUE is {value}. "
            f"Sort {order}, in the order of bytes.{cut}"
        )

    def answer(self, records: Iterable[Row]) -> str:
        """What is to be printed for the records of a log."""
        rows = [row for row in records if all(it.keeps(row) for it in self.filters)]
        if self.key is None:
            return f"{len(rows)}\n"
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(row.time[11:13] if self.key == "hour" else str(getattr(row, self.key)), []).append(row)
        values = {key: self._value(group) for key, group in groups.items()}
        order = sorted(values, key=lambda key: (-values[key] if self.by_value else 0, key))
        return "".join(f"{key} {values[key]}\n" for key in order[: self.most])

    def pipeline(self) -> str:
        """A script that answers it."""
        fields = ["NF == 8"] if self.noise else []
        chosen = " && ".join([*fields, *(it.awk for it in self.filters)])
        if self.key is None:
            return f"awk '{chosen} {{ n += 1 }} END {{ print n + 0 }}'\n"
        update = {
            "count": "n[key] += 1",
            "sum": "n[key] += $6",
            "max": "if ($6 + 0 > n[key] + 0) n[key] = $6; else n[key] += 0",
            "users": "n[key] += !((key, $7) in seen); seen[key, $7] = 1",
        }[self.value]
        awk = f"awk '{chosen} {{ key = {_KEYS[self.key]}; {update} }} END {{ for (key in n) print key, n[key] }}'"
        order = "sort -k2,2nr -k1,1" if self.by_value else "sort -k1,1"
        return f"export LC_ALL=C\n{awk} | {order}{'' if self.most is None else f' | head -n {self.most}'}\n"

    def _value(self, rows: Sequence[Row]) -> int:
        match self.value:
            case "sum":
                return sum(row.ms for row in rows)
            case "max":
                return max(row.ms for row in rows)
            case "users":
                return len({row.user for row in rows})
            case _:
                return len(rows)


def draw_query(rng: Random, level: int) -> Query:
    """A question of a level from 1 to 6."""
    filters = [_numeric(rng)]
    categories = rng.sample(sorted(_CATEGORIES), 2 if level > 4 else 1)
    filters += [_category(rng, category) for category in categories]
    if level == 1:
        return Query(tuple(filters))
    return Query(
        tuple(filters),
        key=rng.choice([key for key in _KEYS if key not in categories]),
        value="count" if level <= 3 else rng.choice(("sum", "max", "users")),
        by_value=level > 2,
        most=rng.randint(2, 3) if level > 3 else None,
        noise=level > 5,
    )


def draw_log(rng: Random, query: Query, lines: int) -> Log:
    """A log of so many lines, with noise if the question says so."""
    drawn: list[str | Row] = []
    second = rng.randrange(3600)
    for _ in range(lines):
        if query.noise and rng.random() < _NOISE_SHARE:
            drawn.append(rng.choice(_NOISE))
            continue
        second += rng.randint(1, 2 * 80_000 // lines)
        level = rng.choices((*_LEVELS,), (5, 2, 3))[0]
        drawn.append(
            Row(
                f"2026-03-{4 + second // 86400:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}Z",
                rng.choice(_HOSTS),
                rng.choice(_SERVICES),
                level,
                rng.choice(_LEVELS[level]),
                rng.randint(1, _LONGEST),
                rng.choice(_USERS),
                rng.choice(_PATHS),
            )
        )
    written = (line if isinstance(line, str) else " ".join(map(str, line)) for line in drawn)
    records = tuple(line for line in drawn if isinstance(line, Row))
    return Log("".join(f"{line}\n" for line in written), records)


def _numeric(rng: Random) -> Filter:
    n = rng.randint(20, _LONGEST // 2)
    match rng.choice(("above", "below", "hours")):
        case "above":
            return Filter(f"with MILLISECONDS above {n}", f"$6 > {n}", lambda row: row.ms > n)
        case "below":
            most = n + _LONGEST // 2
            return Filter(f"with MILLISECONDS of at most {most}", f"$6 <= {most}", lambda row: row.ms <= most)
        case _:
            first = rng.randint(0, 10)
            last = first + rng.randint(7, 13)
            return Filter(
                f"with an hour of the day from {first:02} to {last:02} (both included)",
                f"substr($1, 12, 2) + 0 >= {first} && substr($1, 12, 2) + 0 <= {last}",
                lambda row: first <= int(row.time[11:13]) <= last,
            )


def _category(rng: Random, category: str) -> Filter:
    place, choices = _CATEGORIES[category]
    chosen = rng.choice(choices)
    return Filter(
        f"with {category.upper()} {chosen}", f'{place} == "{chosen}"', lambda row: getattr(row, category) == chosen
    )
