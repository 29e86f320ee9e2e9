"""Random arguments: valid, reproducible, and spread over what a schema allows."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from envport.registry import load
from envport.tools.sampling import ArgumentSampler, matching

TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}

SCHEMAS: dict[str, dict[str, Any]] = {
    "integer": {"type": "integer"},
    "bounded": {"type": "integer", "minimum": 3, "exclusiveMaximum": 6},
    "multiple": {"type": "integer", "minimum": 1, "multipleOf": 7},
    "decimal multiple": {"type": "number", "minimum": 0, "maximum": 2, "multipleOf": 0.1},
    "negative": {"type": "integer", "maximum": -5},
    "number": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e-5},
    "text": {"type": "string", "minLength": 2, "maxLength": 3},
    "pattern": {"type": "string", "pattern": r"^[A-Z]{2}-\d{1,3}$"},
    "date": {"type": "string", "format": "date"},
    "enum": {"enum": ["a", 1, None]},
    "const": {"const": {"a": 1}},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
    "types": {"type": ["integer", "null"]},
    "all": {"allOf": [{"type": "integer"}, {"minimum": 1}, {"maximum": 2}]},
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    "unique": {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True},
    "tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 2, "maxItems": 2},
    "object": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "mapping": {"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {"pattern": "^k"}},
    "tree": {"$ref": "#/$defs/tree"},
    "anything": {},
}


def tool_schema(part: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"x": part},
        "required": ["x"],
        "additionalProperties": False,
        "$defs": {"tree": TREE},
    }


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_drawn_is_accepted_and_the_same_state_draws_the_same(name: str) -> None:
    sampler = ArgumentSampler(tool_schema(SCHEMAS[name]))
    drawn = [sampler.sample(Random(seed)) for seed in range(200)]
    assert all(sampler.accepts(arguments) for arguments in drawn)
    assert drawn == [sampler.sample(Random(seed)) for seed in range(200)]


@pytest.mark.parametrize(
    ("name", "values"),
    [("bounded", {3, 4, 5}), ("enum", {"a", 1, None}), ("all", {1, 2})],
)
def test_every_allowed_value_comes_up(name: str, values: set[Any]) -> None:
    sampler = ArgumentSampler(tool_schema(SCHEMAS[name]))
    assert {sampler.sample(Random(seed))["x"] for seed in range(100)} == values


def test_items_of_which_nothing_is_said_are_of_every_kind() -> None:
    sampler = ArgumentSampler(tool_schema({"type": "array"}))
    items = [item for seed in range(100) for item in sampler.sample(Random(seed))["x"]]
    assert {type(item) for item in items} == {type(None), bool, int, float, str, list, dict}


def test_optional_arguments_come_and_go() -> None:
    sampler = ArgumentSampler({"type": "object", "properties": {"x": {"type": "integer"}}})
    assert {len(sampler.sample(Random(seed))) for seed in range(50)} == {0, 1}


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z]{5}$",
        r"^\d{3}-\w+$",
        r"^(foo|ba[rz])?x*$",
        r"[^a-z]",
        r"[\d\-\]^]{2}",
        r"^[äöü]+\s\S$",
        r"a.c",
        r"^$",
        "n+?",
    ],
)
def test_patterns_are_matched(pattern: str) -> None:
    assert all(re.search(pattern, matching(pattern, Random(seed))) for seed in range(50))


def test_a_character_that_a_pattern_does_not_name_is_printable() -> None:
    assert all(matching(r"[^a-z]", Random(seed)).isprintable() for seed in range(500))


@pytest.mark.parametrize(
    "part",
    [
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "string", "pattern": r"(a)\1"},
        {"type": "string", "pattern": "^[🎉]$", "maxLength": 0},
        {"type": "string", "pattern": r"^\p{L}$"},
    ],
)
def test_what_cannot_be_drawn_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no |empty range"):
        ArgumentSampler(tool_schema(part)).sample(Random(0))


@pytest.mark.parametrize("name", ["echo", "counter", "catch", "showcase"])
def test_arguments_can_be_drawn_for_the_built_in_tools(name: str) -> None:
    for tool in load(name).tools.values():
        sampler = ArgumentSampler(tool.input_schema)
        for seed in range(50):
            tool.bind(sampler.sample(Random(seed)))


@pytest.mark.timeout(20)
def test_a_reference_that_leads_back_to_itself_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}
    with pytest.raises(ValueError, match="leads back to itself"):
        ArgumentSampler({**schema, "$defs": {"A": {"$ref": "#/$defs/A"}}}).sample(Random(0))


def test_the_exclusive_bounds_of_draft_4_are_kept() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#"} | tool_schema(
        {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 2}
    )
    sampler = ArgumentSampler(schema)
    assert {sampler.sample(Random(seed))["x"] for seed in range(50)} == {1, 2}
