"""Examples of everything: each kind of observation, each schema feature, each way in which an episode can continue.

It is a catalogue of what the authoring API can express. Clients and bridges are tested against it.
"""

from __future__ import annotations

import base64
import io
import math
import platform
import struct
import wave
import zlib
from collections.abc import Mapping
from datetime import date, time
from enum import Enum
from typing import Annotated, Any, Literal

from anyio.lowlevel import checkpoint
from mcp_types import AudioContent, EmbeddedResource, ResourceLink, TextResourceContents
from pydantic import BaseModel, Field

from envport import Environment, Progress, Step, Task, TaskSource, ToolError, tool

__all__ = ["Colour", "Note", "Notes", "ShowcaseEnvironment", "Stop", "Tree", "Trip"]


class Colour(Enum):
    """A colour of the traffic lights."""

    RED = "red"
    AMBER = "amber"
    GREEN = "green"


class Stop(BaseModel):
    """A stop of a trip: a model within a model."""

    place: str = Field(min_length=1, description="Where to stop.")
    nights: int = Field(default=1, ge=0, le=30)
    arrival: time | None = None


class Trip(BaseModel):
    """A trip, which holds models, lists, dates, pairs and mappings."""

    start: date
    stops: list[Stop] = Field(min_length=1, max_length=10)
    budget: tuple[float, Literal["EUR", "USD"]] | None = None
    tickets: dict[str, int] = Field(default_factory=dict)


class Tree(BaseModel):
    """A tree: a model that holds itself."""

    value: int
    children: list[Tree] = Field(default_factory=list["Tree"])


class Note(BaseModel):
    """A note and when it was taken."""

    step: int
    text: str


class Notes(BaseModel):
    """What `list_notes` returns: structured content with an output schema."""

    notes: list[Note]
    total: int


class ShowcaseEnvironment(Environment):
    """Shows every kind of observation and every kind of argument. Try the tools one by one; finish ends it.

    Args:
        faults: Whether the tool `crash` really crashes the environment.
    """

    deterministic = True
    max_steps = 200
    stalling = "its rewards only show that a reward may be below 0"

    def __init__(self, faults: bool = False):
        self._faults = faults

    def splits(self) -> Mapping[str, TaskSource]:
        """A short tour. Tasks may be `Task` objects or mappings, whose further keys become metadata."""
        return {
            "tour": [
                {"id": "look", "prompt": "Look at everything that can be shown, then finish.", "minutes": 2},
                {"id": "notes", "prompt": "Add two notes, list them, then finish.", "minutes": 1},
                Task(id="free", prompt="Do what you like, then finish."),
            ]
        }

    async def reset(self, *, seed: int, task: Task | None) -> Any:
        """Start with no notes, and a die of one's own."""
        self._notes: list[Note] = []
        self._calls = 0
        return ["Welcome to the showcase.", {"notes": 0, "lucky_number": self.rng.randint(1, 6)}]

    # Kinds of observations.

    @tool(read_only=True, open_world=False)
    def show_text(self) -> str:
        """Zeigt Text mit Umlauten, 漢字 und 🎉. The description is not ASCII, and neither is the text."""
        return "Grüße, 世界, ‘quotes’, a tab\there, and 🎉."

    @tool(read_only=True, open_world=False)
    def show_image(self, colour: Colour = Colour.RED) -> bytes:
        """Show an image of one colour: PNG bytes become an image block.

        Args:
            colour: The colour.
        """
        return _png({"red": (220, 40, 40), "amber": (240, 180, 40), "green": (40, 180, 80)}[colour.value])

    @tool(read_only=True, open_world=False)
    def show_audio(self) -> AudioContent:
        """Play a short tone: a content block of the MCP SDK is passed on as it is."""
        return AudioContent(type="audio", data=base64.b64encode(_wav()).decode(), mime_type="audio/wav")

    @tool(read_only=True, open_world=False)
    def show_link(self) -> ResourceLink:
        """Show a link to a resource."""
        return ResourceLink(
            type="resource_link",
            uri="https://example.org/",
            name="example",
            description="A page.",
            mime_type="text/html",
        )

    @tool(read_only=True, open_world=False)
    def show_resource(self) -> EmbeddedResource:
        """Show a resource that is embedded in the result."""
        contents = TextResourceContents(uri="note://1", mime_type="text/markdown", text="# A note\n")
        return EmbeddedResource(type="resource", resource=contents)

    @tool(read_only=True, open_world=False)
    def show_mixed(self) -> Any:
        """Show text, an image and data in one result."""
        return ["First a text, ", _png((40, 40, 220)), {"then": "data", "numbers": [1, 2.5, None, True]}]

    @tool(read_only=True, open_world=False)
    def show_nothing(self) -> None:
        """Show nothing at all."""

    # Kinds of arguments.

    @tool(read_only=True, open_world=False)
    def choose(
        self,
        size: Literal["small", "medium", "large"],
        level: Literal[1, 2, 3] = 2,
        colours: Annotated[list[Colour], Field(max_length=3)] = [],  # noqa: B006 - a default in the schema
    ) -> dict[str, Any]:
        """Choose among values that are listed.

        Args:
            size: One of three words.
            level: One of three numbers.
            colours: Up to three colours.
        """
        return {"size": size, "level": level, "colours": colours}

    @tool(read_only=True, open_world=False)
    def measure(
        self,
        amount: Annotated[float, Field(gt=0, le=1e-5)],
        times: Annotated[int, Field(ge=0, multiple_of=5)] = 10,
        code: Annotated[str, Field(pattern=r"^[A-Z]{2}-\d{3}$")] = "AB-123",
        comment: Annotated[str | None, Field(max_length=20)] = None,
    ) -> str:
        """Take values with bounds.

        Args:
            amount: A small number.
            times: A multiple of five.
            code: Two letters and three digits.
            comment: Nothing, or something short.
        """
        return f"{code}: {amount * times:.3e}{f' ({comment})' if comment is not None else ''}"

    @tool(read_only=True, open_world=False)
    def plan(self, trip: Trip, *, urgent: bool = False) -> str:
        """Take a nested model.

        Args:
            trip: The trip.
            urgent: Whether it is urgent.
        """
        nights = sum(stop.nights for stop in trip.stops)
        return f"{'Now: ' if urgent else ''}{nights} nights from {trip.start:%d %B %Y}, {len(trip.tickets)} tickets."

    @tool(read_only=True, open_world=False)
    def either(self, value: int | str | list[float] | None) -> str:
        """Take a value of one of several types.

        Args:
            value: A whole number, a text, a list of numbers, or null.
        """
        return type(value).__name__

    @tool(read_only=True, open_world=False)
    def count_nodes(self, tree: Tree) -> int:
        """Take a model that holds itself, and count its nodes.

        Args:
            tree: The tree.
        """
        return 1 + sum(self.count_nodes(child) for child in tree.children)

    @tool(name="from", title="Name of its own", read_only=True, open_world=False)
    def named_like_a_keyword(self, value: int = 0) -> int:
        """Has a name that is a keyword of Python, and a title.

        Args:
            value: Comes back as it is.
        """
        return value

    # Kinds of behaviour.

    @tool(destructive=False, idempotent=False, open_world=False)
    def add_note(self, text: str) -> str:
        """Add a note.

        Args:
            text: What to note.
        """
        self._notes.append(Note(step=len(self._notes) + 1, text=text))
        return f"Noted; {len(self._notes)} in all."

    @tool(read_only=True, idempotent=True, open_world=False)
    def list_notes(self) -> Notes:
        """List the notes: the annotated result has an output schema."""
        return Notes(notes=self._notes, total=len(self._notes))

    @tool(destructive=True, idempotent=True, open_world=False)
    def clear_notes(self) -> str:
        """Throw all notes away."""
        self._notes.clear()
        return "There are no notes."

    @tool(read_only=True, open_world=True)
    def python_version(self) -> str:
        """Tell the version of the Python that runs this: something of the world outside."""
        return platform.python_version()

    @tool(destructive=False, idempotent=False, open_world=False)
    def roll(self) -> int:
        """Roll a die: chance comes from the episode's seed."""
        return self.rng.randint(1, 6)

    @tool(read_only=True, open_world=False)
    async def count_down(self, start: Annotated[int, Field(ge=1, le=20)], progress: Progress) -> str:
        """Count down, asynchronously, and report progress.

        Args:
            start: Where to start.
        """
        for number in range(start):
            progress(number + 1, start, f"{start - number}")
            await checkpoint()
        return "Lift-off!"

    @tool(read_only=True, open_world=False)
    def refuse(self, reason: str = "I would rather not.") -> str:
        """Answer with an error that is meant for the player; the episode goes on.

        Args:
            reason: What the error says.
        """
        raise ToolError(reason)

    @tool(destructive=True, open_world=False)
    def crash(self) -> str:
        """Break, if the environment is served as `showcase?faults=true`; the episode then ends as failed."""
        if not self._faults:
            raise ToolError("Crashing is switched off; serve showcase?faults=true to have it.")
        raise RuntimeError("the showcase was told to break (inside-detail)")

    @tool(name="score", destructive=False, idempotent=False, open_world=False)
    def earn(self, points: Annotated[float, Field(ge=-1, le=1)]) -> Step:
        """Earn a reward; the episode goes on.

        Args:
            points: The reward.
        """
        return Step("Scored.", reward=points, info={"points": points})

    @tool(destructive=True, open_world=False)
    def finish(self, reward: Annotated[float, Field(ge=0, le=1)] = 1.0) -> Step:
        """End the episode as terminated.

        Args:
            reward: The reward for it.
        """
        return Step("Done.", reward=reward, terminated=True)

    @tool(destructive=True, open_world=False)
    def cut_off(self) -> Step:
        """End the episode as truncated, without a reward."""
        return Step("Cut off.", truncated=True)


def _png(colour: tuple[int, int, int], side: int = 8) -> bytes:
    """A square PNG of one colour, without any library for images."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(colour) * side) * side
    pixels = zlib.compress(rows, 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _wav(seconds: float = 0.05, rate: int = 8000, pitch: float = 440.0) -> bytes:
    """A short tone as 16-bit mono WAV."""
    samples = (int(12000 * math.sin(2 * math.pi * pitch * n / rate)) for n in range(int(seconds * rate)))
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", "not compressed"))
        file.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return buffer.getvalue()
