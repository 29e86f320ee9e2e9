"""What an environment returns, as MCP carries it."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import AudioContent, ContentBlock, EmbeddedResource, ResourceLink, TextContent, TextResourceContents
from pydantic import BaseModel, Field, RootModel, TypeAdapter, field_serializer

from envport import Observation
from envport.blocks import text_block
from envport.tools.content import observe
from envport_envs.showcase import ShowcaseEnvironment

PNG = ShowcaseEnvironment().show_image()


class Mood(str, Enum):  # noqa: UP042 - the older way of writing it, which prints differently
    GOOD = "good"


def _named(value: object) -> str:
    """A name that is the same in every process: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


class Array:
    """Looks like an array of NumPy's."""

    def tolist(self) -> list[int]:
        return [1, 2]


class Point(BaseModel):
    x: int
    why: str = Field(default="", alias="because")


@dataclass
class Pair:
    left: int
    right: Point


class Room(BaseModel):
    doors: set[str] = Field(serialization_alias="ways")
    exits: frozenset[int] = frozenset({10, 9, 2})
    ranked: set[str] = {"low", "high", "mid"}
    counted: set[str] = {"a", "b"}
    open: bool = False

    @field_serializer("open", when_used="json")
    def _in_words(self, value: bool) -> str:
        return "yes" if value else "no"

    @field_serializer("ranked")
    def _by_rank(self, value: set[str]) -> list[str]:
        return [name for name in ("low", "mid", "high") if name in value]

    @field_serializer("counted", when_used="json")
    def _in_number(self, value: set[str]) -> int:
        return len(value)


@dataclass
class House:
    rooms: list[Room]
    pairs: set[frozenset[str]]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("value", "content", "structured"),
    [
        ("hello", [text("hello")], None),
        ("", [text("")], None),
        (Mood.GOOD, [text("good")], None),
        (None, [], None),
        ([], [], None),
        (3, [text("3")], None),
        (0.5, [text("0.5")], None),
        (True, [text("true")], None),
        ({"a": 1, "b": None}, [text('{"a": 1, "b": null}')], {"a": 1, "b": None}),
        (MappingProxyType({"a": 1}), [text('{"a": 1}')], {"a": 1}),
        ({"a": [Array()]}, [text('{"a": [[1, 2]]}')], {"a": [[1, 2]]}),
        ({1: "one"}, [text('{"1": "one"}')], {"1": "one"}),
        ({"ü": "漢"}, [text('{"ü": "漢"}')], {"ü": "漢"}),
        (Point(x=1, because="y"), [text('{"x": 1, "because": "y"}')], {"x": 1, "because": "y"}),
        (
            Pair(1, Point(x=2)),
            [text('{"left": 1, "right": {"x": 2, "because": ""}}')],
            {"left": 1, "right": {"x": 2, "because": ""}},
        ),
        (RootModel[list[int]]([1, 2]), [text("[1, 2]")], None),
        (["a", None, ["b", 1]], [text("a"), text("b"), text("1")], None),
        # Beside other content, a client that shows the data alone would hide the rest.
        (["a", {"b": 1}], [text("a"), text('{"b": 1}')], None),
        ([None, {"b": 1}], [text('{"b": 1}')], {"b": 1}),
        ([{"a": 1}, {"b": 1}], [text('{"a": 1}'), text('{"b": 1}')], None),
        (TextContent(type="text", text="own"), [text("own")], None),
    ],
    ids=_named,
)
def test_what_becomes_of_what_is_returned(value: Any, content: list[Any], structured: Any) -> None:
    observation = observe(value)
    assert list(observation.content) == content
    assert observation.structured_content == structured


def test_an_observation_is_passed_on_as_it_is() -> None:
    observation = Observation(content=(text("a"),), structured_content={"a": 1})
    assert observe(observation) is observation


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (bytearray(PNG), "image/png"),
        (memoryview(PNG), "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89arest", "image/gif"),
        (b"RIFF1234WEBPrest", "image/webp"),
    ],
)
def test_bytes_of_an_image_become_an_image_block(data: Any, mime_type: str) -> None:
    (block,) = observe(data).content
    assert block == {"type": "image", "data": base64.b64encode(bytes(data)).decode(), "mimeType": mime_type}


def test_a_pil_image_becomes_a_png() -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (2, 2), (1, 2, 3))
    (block,) = observe(image).content
    assert block["mimeType"] == "image/png"
    assert base64.b64decode(block["data"]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "block",
    [
        AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
        ResourceLink(type="resource_link", uri="https://example.org/", name="n"),
        EmbeddedResource(type="resource", resource=TextResourceContents(uri="a://b", text="t")),
    ],
)
def test_blocks_of_the_sdk_come_back_from_the_wire(block: Any) -> None:
    (made,) = observe(block).content
    assert TypeAdapter[Any](ContentBlock).validate_python(json.loads(json.dumps(made))) == block


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (object(), "cannot be a object"),
        ({1, 2}, "cannot be a set"),
        (b"not an image", "not PNG, JPEG, GIF or WebP"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ({"a": [float("nan")]}, "NaN or infinity"),
        ({"a": object()}, "JSON cannot represent"),
        ({"\ud800": 1}, "JSON cannot represent"),
        (Pair, "cannot be a type"),
    ],
    ids=_named,
)
def test_what_cannot_be_an_observation_is_said_plainly(value: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        observe(value)


@given(st.text(st.characters()))
def test_any_text_can_be_sent(value: str) -> None:
    sent = text_block(value)["text"]
    sent.encode("utf-8")
    assert len(sent) <= len(value)
    if not any("\ud800" <= letter <= "\udfff" for letter in value):
        assert sent == value


@given(st.dictionaries(st.text(max_size=3), st.text(st.characters(), max_size=3), max_size=3))
def test_any_data_can_be_sent(value: dict[str, str]) -> None:
    observation = observe(value)
    json.dumps(observation.model_dump(), ensure_ascii=False).encode("utf-8")
    observation.model_dump_json()
    assert json.loads(observation.text) == observation.structured_content


def test_the_text_of_an_observation_is_its_text_blocks() -> None:
    assert observe(["a", PNG, "b"]).text == "a\nb"


SETS = """
import sys
sys.path.insert(0, sys.argv[1])
from test_content import House, Room
from envport.tools.content import observe
house = House([Room(doors={"east", "north", "west", "south"})], {frozenset({"a", "b"}), frozenset({"c", "aa"})})
print(observe({"house": house, "mixed": ({1, "a", None, (2, 1), 0.5},), "n": 1}).content[0]["text"])
"""


def test_sets_have_the_same_order_in_every_process() -> None:
    shown = {
        subprocess.run(
            [sys.executable, "-c", SETS, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (one,) = shown
    assert json.loads(one) == {
        "house": {
            "rooms": [
                {
                    "ways": ["east", "north", "south", "west"],
                    "exits": [2, 9, 10],
                    "ranked": ["low", "mid", "high"],
                    "counted": 2,
                    "open": "no",
                }
            ],
            "pairs": [["a", "b"], ["aa", "c"]],
        },
        "mixed": [[0.5, 1, "a", [2, 1], None]],
        "n": 1,
    }


def test_a_set_alone_is_no_observation() -> None:
    with pytest.raises(TypeError, match="an observation cannot be a set; allowed: text"):
        observe({"a", "b"})
