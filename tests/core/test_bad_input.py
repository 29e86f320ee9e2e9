"""Bad arguments: the message names the argument, the problem and what is allowed; the environment is not touched."""

from __future__ import annotations

import contextlib
import datetime
import re
import time
from functools import cache
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patient
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from envport import Environment, Task, ToolDefinition, tool
from envport.errors import InvalidArguments
from envport.tools.schema import ToolSpec, tools_of


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int


class Disc(BaseModel):
    kind: Literal["disc"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    side: float


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("it has to be odd")
    return value


class Picky(Environment):
    """Takes nearly nothing."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def act(
        self,
        direction: Literal["left", "right"] = "left",
        pace: Literal["slow"] = "slow",
        steps: Annotated[int, Field(ge=1, le=9)] = 1,
        weight: Annotated[float, Field(gt=1e-5)] = 1.0,
        name: Annotated[str, Field(pattern="^[a-z]+$", max_length=3)] = "abc",
        flag: bool = True,
        tags: Annotated[list[str], Field(max_length=2)] = [],  # noqa: B006 - never changed
        address: Address | None = None,
        odd: Annotated[int, AfterValidator(_odd)] = 1,
        half: Annotated[float, Field(multiple_of=0.5)] = 0.5,
        either: int | list[float] | Address | None = None,
        prices: dict[str, int] = {},  # noqa: B006 - never changed
        notes: dict[str, Any] = {},  # noqa: B006 - never changed
        pair: tuple[int, str] = (1, "a"),
        closed: Closed | None = None,
        shape: Disc | Square | None = None,
        deep: list[dict[str, list[Address]]] = [],  # noqa: B006 - never changed
        codes: list[Annotated[str, Field(pattern="^[a-z]$")]] = [],  # noqa: B006 - never changed
        days: list[datetime.date] = [],  # noqa: B006 - never changed
        odds: list[Annotated[int, AfterValidator(_odd)]] = [],  # noqa: B006 - never changed
        size: Literal["groß", "größe"] = "groß",
    ) -> str:
        raise AssertionError("the environment was touched")

    @tool
    def needs(self, first: int, second: int) -> str:
        raise AssertionError("the environment was touched")

    @tool
    def nothing(self) -> str:
        raise AssertionError("the environment was touched")


TOOLS = tools_of(Picky())

ROWS = [
    ("wrong type", "act", {"steps": "two"}, ["'steps'", '"two"', "an integer at least 1, at most 9"]),
    ("a number as text", "act", {"steps": "2"}, ["'steps'", '"2"', "an integer"]),
    ("a boolean as number", "act", {"steps": True}, ["'steps'", "true", "an integer"]),
    ("a number as boolean", "act", {"flag": 1}, ["'flag'", "1", "a boolean"]),
    ("a fraction", "act", {"steps": 1.5}, ["'steps'", "1.5", "an integer"]),
    ("null", "act", {"steps": None}, ["'steps'", "null", "an integer"]),
    ("below the range", "act", {"steps": 0}, ["'steps'", "is 0", "at least 1"]),
    ("above the range", "act", {"steps": 10}, ["'steps'", "is 10", "at most 9"]),
    ("at an open bound", "act", {"weight": 1e-5}, ["'weight'", "1e-05", "above 1e-05"]),
    ("NaN", "act", {"weight": float("nan")}, ["cannot be checked"]),
    ("infinity", "act", {"weight": float("inf")}, ["cannot be checked"]),
    ("outside an enum", "act", {"direction": "up"}, ["'direction'", '"up"', 'one of "left", "right"']),
    ("another case", "act", {"direction": "Left"}, ["'direction'", '"Left"', 'one of "left", "right"']),
    ("the only value", "act", {"pace": "fast"}, ["'pace'", '"fast"', 'it has to be exactly "slow".']),
    ("a pattern", "act", {"name": "A"}, ["'name'", '"A"', "matching ^[a-z]+$"]),
    ("too long", "act", {"name": "abcd"}, ["'name'", '"abcd"', "at most 3 characters"]),
    ("too many items", "act", {"tags": ["a", "b", "c"]}, ["'tags'", "with at most 2 items"]),
    ("inside a list", "act", {"tags": ["a", 2]}, ["'tags' at 1 is 2; it has to be a string."]),
    (
        "inside a model",
        "act",
        {"address": {"street": "x", "number": 0}},
        ["'address' at number is 0; it has to be an integer at least 1."],
    ),
    (
        "missing inside",
        "act",
        {"address": {"number": 1}},
        ["'address' at street is missing; it has to be a string."],
    ),
    ("no branch of a union", "act", {"either": "x"}, ["'either' is \"x\"", "an integer or an array", "or null"]),
    (
        "within a branch",
        "act",
        {"either": {"street": "x", "number": 0}},
        ["'either' at number is 0; it has to be an integer at least 1."],
    ),
    ("inside a mapping", "act", {"prices": {"tea": "dear"}}, ["'prices' at tea is \"dear\"; it has to be an integer."]),
    ("no mapping", "act", {"prices": 1}, ["'prices' is 1; it has to be an object whose values are each an integer."]),
    ("no mapping of anything", "act", {"notes": 1}, ["'notes' is 1; it has to be an object."]),
    ("a short tuple", "act", {"pair": [1]}, ["'pair' is [1]", "in this order, an integer, a string"]),
    ("an unknown key inside", "act", {"closed": {"side": 1, "x": 2}}, ["'closed' at x is unknown", "there are: side"]),
    (
        "one of two kinds",
        "act",
        {"shape": {"kind": "disc", "radius": "1"}},
        ["'shape' at radius is \"1\"", "a number."],
    ),
    ("neither kind", "act", {"shape": {"kind": "line"}}, ["'shape' at kind is \"line\"", 'exactly "disc"', '"square"']),
    (
        "deep",
        "act",
        {"deep": [{"a": [{"street": "x", "number": None}]}]},
        ["'deep' at 0.a.0.number is null", "an integer"],
    ),
    (
        "a pattern inside",
        "act",
        {"codes": ["a", "B"]},
        ["'codes' at 1 is \"B\"; it has to be a string matching ^[a-z]$."],
    ),
    (
        "a date inside",
        "act",
        {"days": ["2026-13-01"]},
        ["'days' at 0 is \"2026-13-01\"; it has to be", "the format date"],
    ),
    ("its own check inside", "act", {"odds": [1, 2]}, ["'odds' at 1 is 2", "it has to be odd", "an integer."]),
    ("not ASCII", "act", {"size": "größer 日本"}, ["'size' is \"größer 日本\"", 'one of "groß", "größe"']),
    ("not a multiple", "act", {"half": 0.7}, ["'half'", "0.7", "a multiple of 0.5"]),
    ("the author's own check", "act", {"odd": 2}, ["'odd'", "is 2", "it has to be odd"]),
    ("missing", "needs", {"first": 1}, ["'second' is missing", "an integer"]),
    ("missing, both", "needs", {}, ["'first' is missing", "'second' is missing"]),
    ("unknown", "needs", {"first": 1, "second": 2, "third": 3}, ["'third' is unknown", "first, second"]),
    ("unknown to a tool without any", "nothing", {"x": 1}, ["'x' is unknown", "none"]),
    ("several at once", "act", {"steps": 0, "flag": 0, "up": 1}, ["'steps'", "'flag'", "'up' is unknown"]),
    ("a lone surrogate", "act", {"name": "\ud800"}, ["not valid JSON text"]),
    ("a huge number", "needs", {"first": 10**5000, "second": "x"}, ["'second'"]),
]


@pytest.mark.parametrize(
    ("tool_name", "arguments", "fragments"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_the_message_names_the_argument_the_problem_and_what_is_allowed(
    tool_name: str, arguments: dict[str, Any], fragments: list[str]
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        TOOLS[tool_name].bind(arguments)
    message = str(caught.value)
    assert [fragment for fragment in fragments if fragment not in message] == []
    assert "pydantic" not in message
    assert "field_" not in message
    # Nor are the names that pydantic gives to the branches of a union.
    assert not re.search(r" at \S*(int|list|Address|\[key\])", message)


def test_one_line_for_each_argument_and_none_too_long() -> None:
    with pytest.raises(InvalidArguments) as caught:
        TOOLS["act"].bind({"name": "x" * 100_000, "tags": [1] * 10_000, "steps": 0})
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) < 400


@pytest.mark.parametrize(
    "arguments",
    [
        {"x" * 100_000: 1},
        {f"unknown_{number}": 1 for number in range(10_000)},
        {"prices": {"x" * 100_000: "dear"}},
        {"tags": ["x" * 100_000, 1]},
    ],
    ids=["a long name", "many names", "a long key", "a long text"],
)
def test_messages_stay_short_whatever_is_sent(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        TOOLS["act"].bind(arguments)
    assert len(str(caught.value)) < 5_000


NESTED: Any = "core"
for _ in range(100_000):
    NESTED = [NESTED]


class Lenient(Environment):
    def reset(self, *, seed: int, task: Task | None) -> None: ...

    @tool
    def anything(self, value: Any = None) -> None: ...

    @tool
    def texts(self, value: list[str]) -> None: ...

    def foreign(self, name: str, arguments: Any) -> None: ...

    def tool_definitions(self) -> list[ToolDefinition]:
        tree = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
        multiple = {"properties": {"value": {"multipleOf": 0.1}}}
        return [
            ToolDefinition("tree", {"properties": {"value": tree}, "$defs": {"tree": tree}}, "foreign"),
            ToolDefinition("multiple", multiple, "foreign"),
        ]


@pytest.mark.parametrize("name", ["anything", "texts", "tree"])
def test_bottomless_arguments_are_refused_and_not_a_fault_of_the_environment(name: str) -> None:
    with pytest.raises(InvalidArguments):
        tools_of(Lenient())[name].bind({"value": NESTED})


@pytest.mark.parametrize(
    ("name", "value"),
    [("anything", 10**5000), ("anything", float("nan")), ("tree", float("inf"))],
    ids=["too many digits", "NaN", "infinity"],
)
def test_numbers_that_cannot_be_checked_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidArguments):
        tools_of(Lenient())[name].bind({"value": value})


@settings(max_examples=40)
@given(
    st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.text() | st.floats() | st.integers(), st.lists))
)
def test_whatever_is_sent_is_taken_or_refused_in_words(arguments: dict[str, Any]) -> None:
    for spec in TOOLS.values():
        with contextlib.suppress(InvalidArguments):
            spec.bind(arguments)


WORDS = [f"wort-{number}-größe" for number in range(2_000)]


class Wordy(Environment):
    def reset(self, *, seed: int, task: Task | None) -> None: ...

    @tool
    def guess(self, word: Literal[*WORDS], more: list[Literal[*WORDS]] = []) -> None: ...  # type: ignore[valid-type]  # noqa: B006

    def foreign(self, name: str, arguments: Any) -> None: ...

    def tool_definitions(self) -> list[ToolDefinition]:
        either = {"anyOf": [{"const": word} for word in WORDS]}
        keys = {"type": "object", "properties": {word: {"type": "string"} for word in WORDS}}
        schema = {"properties": {"word": {"enum": WORDS}, "either": either, "keys": keys}}
        return [ToolDefinition("foreign", schema, "foreign")]


@cache
def wordy() -> dict[str, ToolSpec]:
    return tools_of(Wordy())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("guess", {"word": "x"}),
        ("guess", {"word": WORDS[0], "more": ["x"]}),
        ("foreign", {"word": "x" * 10_000}),
        ("foreign", {"either": "x"}),
        ("foreign", {"keys": 1}),
    ],
)
def test_messages_stay_short_however_much_is_allowed(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        wordy()[name].bind(arguments)
    message = str(caught.value)
    assert len(message) < 1_500
    assert "wort-1-größe" in message
    assert re.search(r" and \d,\d{3} more", message)


def test_explaining_does_not_run_a_pattern_that_a_player_can_make_slow() -> None:
    class Slow(Environment):
        def reset(self, *, seed: int, task: Task | None) -> None: ...

        @tool
        def name(self, name: Annotated[str, Field(pattern="^(a+)+$")], count: int = 1) -> None: ...

    began = time.perf_counter()
    with pytest.raises(InvalidArguments, match="'count'"):
        tools_of(Slow())["name"].bind({"name": "a" * 200 + "!", "count": "x"})
    assert time.perf_counter() - began < patient(5)


def test_foreign_schemas_get_the_same_words() -> None:
    class Foreign(Lenient):
        def tool_definitions(self) -> list[ToolDefinition]:
            return [ToolDefinition("foreign", TOOLS["act"].input_schema, "foreign")]

    bind = tools_of(Foreign())["foreign"].bind
    compared = 0
    for name, tool_name, arguments, _ in ROWS:
        # Only pydantic knows these.
        own = {"the author's own check", "its own check inside", "a date inside", "NaN", "infinity", "a lone surrogate"}
        if tool_name == "act" and name not in own:
            with pytest.raises(InvalidArguments) as here:
                TOOLS["act"].bind(arguments)
            with pytest.raises(InvalidArguments) as there:
                bind(arguments)
            assert str(here.value) == str(there.value)
            compared += 1
    assert compared > 25
