"""What a method's signature becomes: the listing, and the arguments that get through to the method."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from random import Random
from typing import Annotated, Any, Literal, Optional, Union

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import ImageContent
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from envport import Environment, Observation, Progress, Step, ToolDefinition, tool
from envport.errors import InvalidArguments, InvalidEnvironment
from envport.tools.sampling import ArgumentSampler
from envport.tools.schema import ToolSpec, fingerprint, tools_of


class Suit(Enum):
    HEARTS = "hearts"
    SPADES = "spades"


class Rank(IntEnum):
    ACE = 1
    KING = 13


class Card(BaseModel):
    """A playing card."""

    suit: Suit
    rank: int = Field(ge=1, le=13)
    marks: list[str] = Field(default_factory=list, max_length=2)


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Options(TypedDict):
    fast: bool
    depth: int


@dataclass
class Unsayable:
    what: Iterator


@dataclass
class Result:
    total: int
    names: list[str]


def spec_of(function: Callable[..., Any]) -> ToolSpec:
    cls = type("Made", (Environment,), {"act": tool(function)})
    return tools_of(cls())["act"]


def spec_for(annotation: Any, default: Any = ...) -> ToolSpec:
    """A tool with one argument `x` of that type."""

    def act(self: Any, x: Any) -> str:
        return ""

    act.__annotations__ = {"x": annotation, "return": str}
    act.__defaults__ = None if default is ... else (default,)
    return spec_of(act)


SHAPES = [
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (str, {"type": "string"}),
    (bool, {"type": "boolean"}),
    (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
    (Literal["a"], {"const": "a", "type": "string"}),
    (Literal[1, "a", None], {"enum": [1, "a", None]}),
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (
        Optional[str],  # noqa: UP045 - the old spelling is a hint like any other
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
    ),
    (
        Union[int, str],  # noqa: UP007
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    ),
    (list[int], {"items": {"type": "integer"}, "type": "array"}),
    (dict[str, float], {"additionalProperties": {"type": "number"}, "type": "object"}),
    (Annotated[int, Field(ge=1, lt=9)], {"exclusiveMaximum": 9, "minimum": 1, "type": "integer"}),
    (Annotated[float, Field(gt=1e-5, le=2.5)], {"exclusiveMinimum": 1e-5, "maximum": 2.5, "type": "number"}),
    (Annotated[int, Field(multiple_of=3)], {"multipleOf": 3, "type": "integer"}),
    (Annotated[str, Field(pattern="^a+$", max_length=4)], {"maxLength": 4, "pattern": "^a+$", "type": "string"}),
    (Annotated[list[int], Field(min_length=1)], {"items": {"type": "integer"}, "minItems": 1, "type": "array"}),
    (
        tuple[int, str],
        {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}], "type": "array"},
    ),
    (date, {"format": "date", "type": "string"}),
    (Suit, {"$ref": "#/$defs/Suit"}),
    (Card, {"$ref": "#/$defs/Card"}),
    (Node, {"$ref": "#/$defs/Node"}),
    (Any, {}),
]


@pytest.mark.parametrize(("annotation", "shape"), SHAPES)
def test_the_published_schema_says_what_the_type_hint_says(annotation: Any, shape: dict[str, Any]) -> None:
    schema = spec_for(annotation).input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["x"]
    assert schema["properties"]["x"] == shape


@pytest.mark.parametrize(("annotation", "shape"), SHAPES)
def test_a_default_makes_an_argument_optional_and_is_published(annotation: Any, shape: dict[str, Any]) -> None:
    spec = spec_for(annotation, None)
    assert "required" not in spec.input_schema
    assert spec.input_schema["properties"]["x"] == {**shape, "default": None}
    # The method's own default is used: nothing is passed for it.
    assert spec.bind({}) == {}


def test_names_of_models_are_kept_and_titles_are_not_made_up() -> None:
    definitions = spec_for(list[Card]).input_schema["$defs"]
    assert list(definitions) == ["Card", "Suit"]
    assert definitions["Card"]["description"] == "A playing card."
    assert "title" not in json.dumps(definitions)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer())
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
    | st.sampled_from(["a", "b", "hearts", "aaa", "2024-02-29"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["suit", "rank", "value", "children", "k"]), inner, max_size=3)
    ),
    max_leaves=6,
)

# Formats are annotations to JSON Schema; `test_stated_exceptions` has the others.
AGREEING = [(annotation, shape) for annotation, shape in SHAPES if annotation is not date]


@pytest.mark.parametrize(("annotation", "shape"), AGREEING)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_what_the_schema_accepts_gets_through_and_nothing_else(annotation: Any, shape: Any, data: Any) -> None:
    spec = spec_for(annotation)
    sampler = ArgumentSampler(spec.input_schema)
    drawn = st.integers(0, 2**32).map(lambda seed: sampler.sample(Random(seed))["x"])
    value = data.draw(st.one_of(JSON_VALUES, drawn))
    if annotation == Literal[1, "a", None] and isinstance(value, bool):
        return
    try:
        spec.bind({"x": value})
        accepted = True
    except InvalidArguments:
        accepted = False
    assert accepted == sampler.accepts({"x": value}), value


def test_stated_exceptions() -> None:
    """Where a call is judged otherwise than by the letter of the published schema."""
    # JSON Schema counts 1.0 among the integers; here a number with a fraction part is not coerced.
    with pytest.raises(InvalidArguments):
        spec_for(int).bind({"x": 1.0})
    # A format is only an annotation to JSON Schema; here it is checked.
    with pytest.raises(InvalidArguments):
        spec_for(date).bind({"x": "tomorrow"})
    # JSON object keys are texts; a mapping by number takes only those that are numbers.
    assert spec_for(dict[int, str]).bind({"x": {"1": "one"}}) == {"x": {1: "one"}}
    with pytest.raises(InvalidArguments):
        spec_for(dict[int, str]).bind({"x": {"one": "one"}})
    # Python's True equals 1, and pydantic takes it for a literal 1; the method gets the literal.
    assert spec_for(Literal[1, 2]).bind({"x": True}) == {"x": 1}
    # A model that does not forbid unknown keys drops them, and its schema allows them.
    card = spec_for(Card).bind({"x": {"suit": "hearts", "rank": 3, "smell": "none"}})["x"]
    assert card == Card(suit=Suit.HEARTS, rank=3)


@pytest.mark.parametrize(
    ("annotation", "sent", "bound"),
    [
        (Suit, "hearts", Suit.HEARTS),
        (Rank, 13, Rank.KING),
        (list[Suit], ["spades"], [Suit.SPADES]),
        (date, "2024-02-29", date(2024, 2, 29)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Card, {"suit": "hearts", "rank": 3}, Card(suit=Suit.HEARTS, rank=3)),
        (Node, {"value": 1, "children": [{"value": 2}]}, Node(value=1, children=[Node(value=2)])),
        (Options, {"fast": True, "depth": 2}, {"fast": True, "depth": 2}),
        (float, 3, 3.0),
        (Any, {"k": [1, None]}, {"k": [1, None]}),
    ],
)
def test_the_method_gets_values_of_the_hinted_type(annotation: Any, sent: Any, bound: Any) -> None:
    assert spec_for(annotation).bind({"x": sent}) == {"x": bound}


def test_a_field_as_default_gives_its_default() -> None:
    def act(self: Any, x: int = Field(5, ge=1, description="Five, if you like.")) -> str:
        return ""

    spec = spec_of(act)
    assert spec.input_schema["properties"]["x"]["default"] == 5
    assert spec.bind({}) == {"x": 5}
    assert spec.bind({"x": 6}) == {"x": 6}


def test_docstrings_become_descriptions() -> None:
    def act(self: Any, x: int, y: Annotated[int, Field(description="Said here.")] = 0) -> str:
        """Do it.

        More about it.

        Args:
            x: The first,
                over two lines.
            y: Said there.

        Returns:
            Nothing of interest to the player.
        """
        return ""

    spec = spec_of(act)
    assert spec.description == "Do it.\n\nMore about it."
    assert spec.input_schema["properties"]["x"]["description"] == "The first, over two lines."
    assert spec.input_schema["properties"]["y"]["description"] == "Said here."


def test_nothing_is_logged_about_how_a_docstring_is_written(caplog: pytest.LogCaptureFixture) -> None:
    def act(self: Any, x: int) -> str:
        """Do it.

        Args:
            x: The first.
            something else

        Returns:
            Nothing of interest.
        """
        return ""

    with caplog.at_level("DEBUG"):
        assert spec_of(act).description == "Do it."
    assert caplog.messages == []


def test_parameters_may_be_called_like_things_of_pydantics() -> None:
    def act(self: Any, model_config: int, schema: int, copy: int = 1, field_0: int = 2, _hidden: int = 3) -> str:
        return ""

    spec = spec_of(act)
    assert list(spec.input_schema["properties"]) == ["model_config", "schema", "copy", "field_0", "_hidden"]
    assert spec.bind({"model_config": 1, "schema": 2, "_hidden": 4}) == {"model_config": 1, "schema": 2, "_hidden": 4}


def test_progress_is_filled_in_and_not_published() -> None:
    def one(self: Any, x: int, progress: Progress) -> str:
        return ""

    def two(self: Any, x: int, progress: Progress | None = None) -> str:
        return ""

    for function in (one, two):
        spec = spec_of(function)
        assert spec.progress == "progress"
        assert list(spec.input_schema["properties"]) == ["x"]
        with pytest.raises(InvalidArguments, match="unknown"):
            spec.bind({"x": 1, "progress": 1})


@pytest.mark.parametrize(
    ("annotation", "properties"),
    [
        (Card, ["suit", "rank", "marks"]),
        (Result, ["total", "names"]),
        (Options, ["fast", "depth"]),
        (Step[Card], ["suit", "rank", "marks"]),
        (str, None),
        (Step, None),
        (dict[str, int], None),
        (Observation, None),
        (ImageContent, None),
        (Node, None),
        (None, None),
    ],
)
def test_only_structured_results_have_an_output_schema(annotation: Any, properties: list[str] | None) -> None:
    def act(self: Any) -> Any: ...

    act.__annotations__ = {"return": annotation}
    schema = spec_of(act).output_schema
    assert (list(schema["properties"]) if schema else None) == properties


# What an author may get wrong.


def nameless(self: Any, *args: int) -> str: ...
def keyworded(self: Any, **kwargs: int) -> str: ...
def positional(self: Any, x: int, /) -> str: ...
def untyped(self: Any, x) -> str: ...  # type: ignore[no-untyped-def]
def unknown(self: Any, x: Missing) -> str: ...  # type: ignore[name-defined]  # noqa: F821
def no_schema(self: Any, x: Iterator) -> str: ...
def callback(self: Any, x: Callable[[], None]) -> str: ...
def no_result_schema(self: Any) -> Unsayable: ...


@pytest.mark.parametrize(
    "function", [nameless, keyworded, positional, untyped, unknown, no_schema, callback, no_result_schema]
)
def test_a_signature_without_a_schema_is_refused_when_serving_starts(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidEnvironment, match=function.__name__):
        spec_of(function)


def test_an_environment_needs_a_tool_and_names_are_unique() -> None:
    class Idle(Environment):
        pass

    class Twice(Environment):
        @tool
        def a(self) -> str: ...
        @tool(name="a")
        def b(self) -> str: ...

    with pytest.raises(InvalidEnvironment, match="has no tools"):
        tools_of(Idle())
    with pytest.raises(InvalidEnvironment, match="two tools named 'a'"):
        tools_of(Twice())


def test_a_tool_without_a_name_is_refused() -> None:
    class Nameless(Environment):
        def tool_definitions(self) -> list[ToolDefinition]:
            return [ToolDefinition("", {}, "act")]

        def act(self, name: str, arguments: Any) -> str: ...

    with pytest.raises(InvalidEnvironment, match="Nameless has a tool without a name"):
        tools_of(Nameless())


def test_only_plain_methods_are_tools() -> None:
    class Static(Environment):
        @staticmethod
        @tool
        def act(x: int) -> str: ...

    with pytest.raises(InvalidEnvironment, match="plain method"):
        tools_of(Static())


class Base(Environment):
    @tool(read_only=True)
    def first(self, x: int) -> str:
        """Do the first thing."""
        return "base"

    @tool
    def dropped(self) -> str: ...


class Derived(Base):
    dropped = None  # type: ignore[assignment]

    @tool
    def second(self) -> str: ...

    def first(self, x: int, y: int = 0) -> str:
        return "derived"


def test_inherited_tools_come_first_and_an_override_stays_a_tool() -> None:
    tools = tools_of(Derived())
    assert list(tools) == ["first", "second"]
    assert list(tools["first"].input_schema["properties"]) == ["x", "y"]
    assert tools["first"].listing["annotations"] == {"readOnlyHint": True}
    assert tools["first"].description == "Do the first thing."


def test_hints_and_title_are_listed_only_where_they_were_said() -> None:
    class Hinted(Environment):
        @tool
        def bare(self) -> str: ...
        @tool(name="full", title="Full", read_only=True, destructive=False, idempotent=True, open_world=False)
        def full_of_hints(self) -> str: ...

    tools = tools_of(Hinted())
    assert "annotations" not in tools["bare"].listing
    assert "title" not in tools["bare"].listing
    assert tools["full"].listing["title"] == "Full"
    assert tools["full"].listing["annotations"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }


# Tools that are known only when the environment is made.


class Foreign(Environment):
    def __init__(self, schema: Mapping[str, Any]):
        self._schema = schema

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any: ...

    def tool_definitions(self) -> Sequence[ToolDefinition]:
        return [ToolDefinition("foreign", self._schema, "call")]


def test_a_foreign_schema_is_shown_as_it_is_and_checked() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "x-own": 1}},
        "required": ["n"],
        "$comment": "kept",
    }
    spec = tools_of(Foreign(schema))["foreign"]
    assert spec.listing["inputSchema"] == schema
    assert spec.bind({"n": 1, "more": 2}) == {"n": 1, "more": 2}
    with pytest.raises(InvalidArguments, match="Argument 'n' is \"x\"; it has to be an integer"):
        spec.bind({"n": "x"})
    with pytest.raises(InvalidArguments, match="Argument 'n' is missing; it has to be an integer"):
        spec.bind({})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"properties": {"n": {"type": "nonsense"}}},
        {"properties": {"n": {"$ref": "#/$defs/nowhere"}}},
        {"properties": {"n": {"$ref": "http://127.0.0.1:1/schema.json"}}},
    ],
)
def test_a_foreign_schema_that_cannot_be_used_is_refused_and_never_fetched(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidEnvironment, match="foreign"):
        tools_of(Foreign(schema))


def test_references_within_a_foreign_schema_are_followed() -> None:
    schema = {"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    spec = tools_of(Foreign(schema))["foreign"]
    assert spec.bind({"n": 1}) == {"n": 1}
    with pytest.raises(InvalidArguments):
        spec.bind({"n": "x"})


# The listing is the same everywhere.

_PRINT = """
import json
from enum import Enum
from envport import Environment, tool
from envport.registry import EnvironmentDefinition, load

class Unordered(Environment):
    @tool
    def act(self, x: set[str] = {"a", "b", "c", "d"}, y: frozenset[Enum("E", "k l m")] = frozenset()) -> str:
        return ""

print(EnvironmentDefinition("unordered", Unordered).listing)
for name in ("echo", "counter", "catch", "showcase"):
    spec = load(name)
    print(json.dumps(spec.listing), spec.fingerprint, list(spec.splits))
"""


def test_the_listing_does_not_depend_on_the_hash_seed() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PRINT], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(printed) == 1
    assert printed.pop().count("\n") == 5


def test_the_fingerprint_ignores_the_order_of_keys_and_nothing_else() -> None:
    assert fingerprint([{"a": 1, "b": "ü"}]) == fingerprint([{"b": "ü", "a": 1}])
    assert fingerprint([{"a": 1}]) != fingerprint([{"a": 2}])
    assert fingerprint([{"a": 1}, {"b": 1}]) != fingerprint([{"b": 1}, {"a": 1}])
