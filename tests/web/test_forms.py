"""What is typed into forms becomes arguments, or a message that says what is allowed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envport.errors import InvalidArguments
from envport.web.forms import LeftEmpty, fields_of, problems_of, read_field

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "part": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": 1.5, "description": "A part."},
        "sure": {"type": "boolean"},
        "size": {"$ref": "#/$defs/Size"},
        "level": {"enum": [1, None, "x"]},
        "list": {"type": "array", "items": {"type": "integer"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "loop": {"$ref": "#/$defs/Loop"},
    },
    "required": ["text", "count", "list"],
    "$defs": {"Size": {"enum": ["small", "large"]}, "Loop": {"$ref": "#/$defs/Loop"}},
}


def read(name: str, typed: Any) -> Any:
    return read_field(next(field for field in fields_of(SCHEMA) if field.name == name), typed)


def test_each_kind_of_schema_has_its_kind_of_field():
    kinds = {field.name: (field.kind, field.required) for field in fields_of(SCHEMA)}
    assert kinds == {
        "text": ("string", True),
        "count": ("integer", True),
        "part": ("number", False),
        "sure": ("boolean", False),
        "size": ("choice", False),
        "level": ("choice", False),
        "list": ("json", True),
        "either": ("json", False),
        "loop": ("json", False),
    }
    part = next(field for field in fields_of(SCHEMA) if field.name == "part")
    assert (part.label, part.hint) == ("part (optional)", "A part. 1.5 if left empty.")


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("text", "", ""),
        ("text", " 7 ", " 7 "),
        ("count", " 12 ", 12),
        ("count", str(2**80), 2**80),
        ("part", "2", 2),
        ("part", "-0.5e3", -500.0),
        ("sure", "false", False),
        ("size", "1", "large"),
        ("level", "1", None),
        ("list", "[1, 2]", [1, 2]),
        ("either", '"x"', "x"),
    ],
)
def test_what_is_typed_becomes_a_value(name: str, typed: str, value: Any):
    found = read(name, typed)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("count", "", "It is missing; it has to be an integer."),
        ("count", "1.5", "'1.5' is not allowed; it has to be an integer."),
        ("part", "true", "'true' is not allowed; it has to be"),
        ("part", "a lot", "'a lot' is not allowed; it has to be"),
        ("list", "[1,", "This is not JSON at line 1, column 4. It has to be"),
        ("list", "[" * 100_000, "This is nested too deeply."),
    ],
)
def test_what_cannot_be_read_is_told(name: str, typed: str, said: str):
    with pytest.raises(InvalidArguments) as error:
        read(name, typed)
    assert str(error.value).startswith(said)


def test_what_may_be_left_empty_is_left_out():
    for name in ("part", "sure", "size", "either"):
        with pytest.raises(LeftEmpty):
            read(name, "" if name != "size" else None)


def test_the_schema_has_the_last_word():
    assert problems_of(SCHEMA, {"text": "", "count": 1, "list": [1]}) is None
    assert "'list' at 0" in (problems_of(SCHEMA, {"text": "", "count": 1, "list": ["a"]}) or "")


@given(st.text())
def test_any_text_is_read_or_told(typed: str):
    for field in fields_of(SCHEMA):
        if field.kind != "choice":
            with suppress(InvalidArguments, LeftEmpty):
                read_field(field, typed)
