"""Schemas of foreign servers mean what their specification says, at the gateway and in the training bridge alike."""

from __future__ import annotations

from typing import Any

import pytest

from envport import Environment, Task, ToolDefinition
from envport.errors import ConfigurationError, InvalidArguments, InvalidEnvironment
from envport.tools.schema import ToolSpec, from_definition
from envport_bridges.trl.classes import define_tools
from envport_bridges.trl.rollout_environment import RolloutEnvironment

DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


class Foreign(Environment):
    """Has the tool that a test gives it."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    def act(self, name: str, arguments: dict[str, Any]) -> str:
        return "done"


def of(value: Any, **more: Any) -> dict[str, Any]:
    return {**more, "type": "object", "properties": {"value": value}, "required": ["value"]}


def at_the_gateway(schema: dict[str, Any]) -> ToolSpec:
    return from_definition(ToolDefinition("act", schema, "act"), Foreign())


def in_the_bridge(schema: dict[str, Any]) -> Any:
    return define_tools([{"name": "act", "inputSchema": schema}], RolloutEnvironment)["act"].arguments


def gateway_refuses(schema: dict[str, Any], value: Any) -> str | None:
    try:
        at_the_gateway(schema).bind({"value": value})
    except InvalidArguments as error:
        return str(error)
    return None


TREE = {"Tree": {"type": "object", "properties": {"below": {"$ref": "#/$defs/Tree"}}, "additionalProperties": False}}

TAKEN: dict[str, tuple[dict[str, Any], Any]] = {
    "0.3 is a multiple of 0.1": (of({"multipleOf": 0.1}), 0.3),
    "19.99 is a multiple of 0.01": (of({"multipleOf": 0.01}), 19.99),
    "a large float is a multiple of 0.01": (of({"multipleOf": 0.01}), 1e300),
    "a large integer is a multiple of 3": (of({"multipleOf": 3}), 3 * 10**400),
    "letters of Unicode": (of({"pattern": r"^\p{L}+$"}), "Größe"),
    "a needless escape": (of({"pattern": r"^\d{4}\-\d\d$"}), "2026-11"),
    "a named group": (of({"pattern": r"^(?<a>x)\k<a>$"}), "xx"),
    "a flag that only Python has": (of({"pattern": "(?i)^abc$"}), "ABC"),
    "half of a surrogate pair": (of({"pattern": "^.$"}), "\ud800"),
    "a key that a pattern names": (
        of({"patternProperties": {r"^\p{Lu}$": {"type": "integer"}}, "additionalProperties": False}),
        {"Ä": 1},
    ),
    "draft 4: an inclusive minimum": (
        of({"type": "number", "minimum": 0, "exclusiveMinimum": False}, **DRAFT_4),
        0,
    ),
    "draft 4: definitions": (of({"$ref": "#/definitions/N"}, definitions={"N": {"type": "integer"}}, **DRAFT_4), 1),
    "draft 7: items that are a list": (of({"items": [{"type": "integer"}], "additionalItems": False}, **DRAFT_7), [1]),
    "a tree": (of({"$ref": "#/$defs/Tree"}, **{"$defs": TREE}), {"below": {"below": {}}}),
}

REFUSED = {
    "0.35 is no multiple of 0.1": (of({"multipleOf": 0.1}), 0.35, "0.35; it has to be a value a multiple of 0.1"),
    "a line break after the end": (of({"type": "string", "pattern": "^[a-z]+$"}), "ab\n", "matching ^[a-z]+$"),
    "a digit of another script": (of({"type": "string", "pattern": r"^\d$"}), "٣", r"matching ^\d$"),
    "a key with a line break": (
        of({"patternProperties": {"^x$": {}}, "additionalProperties": False}),
        {"x\n": 1},
        "keys have to match '^x$'",
    ),
    "a wrong value of a key that a pattern names": (
        of({"patternProperties": {r"^\p{Lu}$": {"type": "integer"}}}),
        {"Ä": "1"},
        'at Ä is "1"; it has to be an integer',
    ),
    "a wrong value of another key": (
        of({"patternProperties": {"^x": {}}, "additionalProperties": {"type": "integer"}}),
        {"x1": "any", "y": "1"},
        'at y is "1"; it has to be an integer',
    ),
    "draft 4: an exclusive minimum": (
        of({"type": "number", "minimum": 0, "exclusiveMinimum": True}, **DRAFT_4),
        0,
        "0; it has to be a number above 0",
    ),
    "draft 4: an exclusive maximum": (
        of({"type": "number", "maximum": 1, "exclusiveMaximum": True}, **DRAFT_4),
        1,
        "1; it has to be a number below 1",
    ),
    "draft 4: definitions": (
        of({"$ref": "#/definitions/N"}, definitions={"N": {"type": "integer", "minimum": 1}}, **DRAFT_4),
        0,
        "0; it has to be an integer at least 1",
    ),
    "draft 7: a list of items": (of({"items": [{"type": "integer"}]}, **DRAFT_7), ["1"], 'at 0 is "1"'),
}


@pytest.mark.parametrize(("schema", "value"), TAKEN.values(), ids=TAKEN.keys())
def test_what_the_specification_allows_is_taken(schema: dict[str, Any], value: Any):
    assert in_the_bridge(schema).problems({"value": value}) is None
    assert gateway_refuses(schema, value) is None


@pytest.mark.parametrize(("schema", "value", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_specification_forbids_is_refused_in_the_same_words(schema: dict[str, Any], value: Any, words: str):
    told = in_the_bridge(schema).problems({"value": value})
    assert words in str(told)
    assert gateway_refuses(schema, value) == told


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"below": schema}}
    return schema


ENDLESS = {
    "itself": {"A": {"$ref": "#/$defs/A"}},
    "round about": {"A": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/B"}]}, "B": {"not": {"$ref": "#/$defs/A"}}},
    "beside a condition": {"A": {"if": {"type": "null"}, "else": {"allOf": [{"$ref": "#/$defs/A"}]}}},
}
USELESS = {
    **{
        label: (of({"$ref": "#/$defs/A"}, **{"$defs": found}), "leads back to itself")
        for label, found in ENDLESS.items()
    },
    "200 levels": (of(nested(200)), "is nested too deeply to be checked"),
}


@pytest.mark.parametrize(("schema", "why"), USELESS.values(), ids=USELESS.keys())
def test_a_schema_that_nothing_can_be_checked_against_is_refused(schema: dict[str, Any], why: str):
    with pytest.raises(ConfigurationError, match=f"tool 'act' cannot be called: its schema .*{why}"):
        in_the_bridge(schema)
    with pytest.raises(InvalidEnvironment, match=f"tool 'act' of Foreign: its schema .*{why}"):
        at_the_gateway(schema)


def test_arguments_that_are_nested_too_deeply_are_refused():
    schema = of({"$ref": "#/$defs/Tree"}, **{"$defs": TREE})
    value: dict[str, Any] = {}
    for _ in range(400):
        value = {"below": value}
    told = in_the_bridge(schema).problems({"value": value})
    assert told == gateway_refuses(schema, value) == "The arguments are nested too deeply to be checked."


def test_a_pattern_that_is_none_is_refused_by_the_gateway_and_left_to_it_by_the_bridge():
    schema = of({"type": "string", "pattern": "(["})
    assert in_the_bridge(schema).problems({"value": "a"}) is None
    with pytest.raises(InvalidEnvironment, match=r"its schema is not valid JSON Schema: '\(\[' is not a 'regex'"):
        at_the_gateway(schema)
