"""The quick yes to arguments is never wrong, and is given to what is usual."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envport.registry import load
from envport.tools.dialects import check_schema, validator_of
from envport.tools.plain import plain_check

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([2**63, -(2**63), 10**5000, True]))
VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=2), st.lists(st.integers(), max_size=1))
PARTS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", ["string"]])},
        optional={
            "enum": st.lists(st.one_of(st.sampled_from(["x", "y"]), VALUES), max_size=3),
            "minimum": st.integers(-3, 3),
            "maximum": st.one_of(st.integers(-3, 3), st.just(2.5)),
            "exclusiveMinimum": st.integers(-3, 3),
            "minLength": st.integers(0, 2),
            "pattern": st.just("^x"),
            "not": st.just({}),
            "const": st.just("x"),
            "description": st.just("Something."),
        },
    ),
    st.sampled_from([True, False, {}, {"$ref": "#"}, {"anyOf": [{"type": "string"}]}]),
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, PARTS)},
    optional={
        "required": st.lists(NAMES, unique=True),
        "additionalProperties": st.sampled_from([True, False, {"type": "string"}]),
        "$schema": st.sampled_from(
            ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-04/schema#"]
        ),
        "minProperties": st.integers(0, 2),
        "not": st.just({}),
    },
)
USUAL = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "Some text."},
        "side": {"enum": ["left", "right"], "type": "string"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "share": {"type": "number", "maximum": 0.5},
        "sure": {"type": "boolean"},
    },
    "required": ["text"],
    "additionalProperties": False,
}
RIGHT = {"text": "\ud800", "side": "left", "count": 9, "share": -1, "sure": True}


@given(schema=SCHEMAS, arguments=st.dictionaries(NAMES, st.one_of(st.sampled_from(["x", "y", 1, 2.5]), VALUES)))
def test_what_it_allows_every_validator_allows(schema: dict[str, Any], arguments: dict[str, Any]):
    check = plain_check(schema)
    if check is not None and check(arguments):
        check_schema(schema)
        assert validator_of(schema).is_valid(arguments)
        json.dumps(arguments, allow_nan=False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"side": "middle"},
        {"count": 0},
        {"count": 10},
        {"count": 1.5},
        {"count": True},
        {"share": 0.6},
        {"share": float("nan")},
        {"sure": 1},
        {"text": 1},
        {"more": 1},
    ],
)
def test_what_is_wrong_gets_no_yes(wrong: dict[str, Any]):
    check = plain_check(USUAL)
    assert check is not None
    assert check(RIGHT)
    assert check({"text": ""})
    assert not check(RIGHT | wrong)
    assert not check({"side": "left"})


def test_usual_tools_get_it():
    for reference, arguments in (("catch", {"direction": "left"}), ("echo", {"message": "a"}), ("counter", {})):
        (schema, *_) = (tool["inputSchema"] for tool in load(reference).listing)
        check = plain_check(schema)
        assert check is not None
        assert check(arguments)
