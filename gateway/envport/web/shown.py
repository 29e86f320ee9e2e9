"""Showing what environments and players say: text as text, images as images, and nothing that a browser would run."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from envport.blocks import ContentBlock, text_of, whole_text
from envport.types import Observation

__all__ = [
    "TextLine",
    "code",
    "copied",
    "environment_link",
    "heading",
    "image_source",
    "link",
    "moment",
    "no_archive",
    "note",
    "number",
    "show_blocks",
    "show_facts",
    "show_observation",
    "show_text",
    "text",
    "written",
]

# Formats without scripts, by their first bytes. SVG is not one.
_IMAGES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_SHOWN_CHARACTERS = 20_000
# A view may hold as many as fifty of them.
_MOST_CHARACTERS = 1_000_000
_MOST_IMAGE = 12 * 2**20


class TextLine(TextElement):
    """An element that holds text and nothing else."""


def text(said: str, tag: str = "div", classes: str = "") -> TextLine:
    """An element that holds text and nothing else."""
    return TextLine(tag=tag, text=whole_text(said)).classes(classes)


def heading(said: str, level: int = 2) -> TextLine:
    """A heading."""
    return text(said, f"h{level}", f"ev-h{level}")


def note(said: str) -> TextLine:
    """A line of less importance."""
    return text(said, "p", "ev-note")


def code(said: str, label: str | None = None) -> TextLine:
    """Text with its line breaks and spaces, in a fixed width."""
    made = text(said, "pre", "ev-pre")
    if label is not None:
        # Scrolls sideways, so that the keyboard has to reach it.
        made._props.update({"tabindex": "0", "role": "region", "aria-label": label})  # pyright: ignore[reportPrivateUsage]
    return made


def link(said: str, target: str) -> ui.element:
    """A link, if the target is a path of the page, or an address of the web. Otherwise text."""
    if target.startswith("/") and not target.startswith("//"):
        return ui.link(whole_text(said), target)
    try:
        web = urlsplit(target).scheme in ("http", "https")
    except ValueError:
        web = False
    if not web:
        return text(said, "span")
    return ui.link(whole_text(said), whole_text(target), new_tab=True).props("rel='noopener noreferrer nofollow'")


def written(value: Any) -> str:
    """A value as indented JSON."""
    try:
        return whole_text(json.dumps(value, indent=2, ensure_ascii=False, default=repr))
    except (RecursionError, ValueError):
        return "(this value cannot be written as JSON)"


def number(value: float | None) -> str:
    """A number, or a dash if there is none."""
    return "–" if value is None else f"{value:.4g}"


def moment(seconds: float | None) -> str:
    """A time, in UTC as everything here."""
    return "–" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def copied(said: str, what: str) -> None:
    """A command or address to copy.

    Args:
        said: What is copied. It is the gateway's own text, never an environment's.
        what: What it is, for a screen reader.
    """
    with ui.element("div").classes("ev-copy"):
        code(said, what)
        button = ui.button(icon="content_copy").props("flat dense round").props(f"aria-label='Copy: {what}'")
        button.on(
            "click",
            lambda event: ui.notify(
                "Copied" if event.args else "Your browser does not let pages copy: select the text"
            ),
            js_handler=f"() => Quasar.copyToClipboard({_in_script(said)}).then(() => emit(true), () => emit(false))",
        )


def _in_script(said: str) -> str:
    return json.dumps(said).replace("<", "\\u003c")


def show_observation(observation: Observation) -> None:
    """What a player saw."""
    if observation.content:
        show_blocks(observation.content)
    elif observation.structured_content is not None:
        show_text(written(observation.structured_content))
    else:
        note("Nothing.")


def show_blocks(blocks: Iterable[ContentBlock]) -> None:
    """MCP content blocks."""
    for block in blocks:
        source = image_source(block)
        if source is not None:
            image = ui.element("img").classes("ev-image")
            image._props.update({"src": source, "alt": "Image of the observation"})  # pyright: ignore[reportPrivateUsage]
        elif block.get("type") == "resource_link" and isinstance(block.get("uri"), str):
            link(text_of(block), block["uri"])
        else:
            show_text(text_of(block))


def show_text(said: str) -> None:
    """Text of any length: the rest of a long one is shown on demand."""
    if len(said) <= _SHOWN_CHARACTERS:
        code(said)
        return
    whole = len(said) <= _MOST_CHARACTERS
    offer = f"Show all {len(said):,} characters"
    if not whole:
        offer = f"Show the first {_MOST_CHARACTERS:,} of {len(said):,} characters"
    holder = ui.element("div")
    with holder:
        code(f"{said[:_SHOWN_CHARACTERS]}…")
        ui.button(offer, on_click=_replacing(holder, said[:_MOST_CHARACTERS])).props("flat dense no-caps")


def _replacing(holder: ui.element, said: str) -> Callable[[], None]:
    def replace() -> None:
        holder.clear()
        with holder:
            code(said)

    return replace


def image_source(block: ContentBlock) -> str | None:
    """The address of an image block with its data; `None` if the block is no image of a format that is shown."""
    kind, data = block.get("mimeType"), block.get("data")
    if block.get("type") != "image" or not isinstance(kind, str) or not isinstance(data, str):
        return None
    if len(data) > _MOST_IMAGE:
        return None
    kind = kind.lower()
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not raw.startswith(_IMAGES.get(kind, ())):
        return None
    return f"data:{kind};base64,{base64.b64encode(raw).decode('ascii')}"


def environment_link(name: str, view: str = "environments") -> str:
    """The path of an environment's view."""
    return f"/ui/{view}/{quote(name, safe='')}"


def show_facts(facts: dict[str, Any]) -> None:
    """A list of names with values. Values that are `None` are left out."""
    with ui.element("dl").classes("ev-facts"):
        for name, value in facts.items():
            if value is not None:
                text(name, "dt")
                text(str(value), "dd")


def no_archive() -> None:
    """Say that the gateway keeps no record."""
    text("This gateway keeps no record of episodes, so there is nothing to look at here.", "p", "ev-p")
