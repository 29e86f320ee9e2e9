"""What a player sees of a page: its accessibility tree as text, with the ids of elements, and its picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envport_envs.browsergym.library import image_of, marking_error, observing, playwright, tree_text

__all__ = ["Seen", "look", "picture"]

# A page of this size takes seconds. What is above is told of, and not read.
_MOST_ELEMENTS = 20_000
_MOST_CHARACTERS = 2_000_000
_MOST_FRAMES = 50
_FRAME_MILLISECONDS = 5_000
_SIZE = "() => [document.getElementsByTagName('*').length, document.documentElement?.textContent.length ?? 0]"

# Newer versions of Chromium have lines of text as nodes of their own.
_UNSHOWN_ROLES = ("LineBreak", "InlineTextBox")

_CLICKED = frozenset(("button", "checkbox", "link", "menuitem", "option", "radio", "switch", "tab", "treeitem"))
_FIELDS = frozenset(("textbox", "searchbox", "spinbutton", "combobox"))


@dataclass(frozen=True)
class Seen:
    """What was seen of a page.

    Attributes:
        text: The tree as text.
        clickable: Ids of elements that can be clicked.
        fields: Ids of fields.
        ids: All ids.
    """

    text: str
    clickable: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


def look(page: Any, most: int, coordinates: bool) -> Seen:
    """Look at a page.

    Args:
        page: Playwright's page.
        most: How many characters are shown.
        coordinates: Whether the places of elements are shown.
    """
    if (too_large := _too_large(page)) is not None:
        return Seen(too_large)
    try:
        return _read(page, most, coordinates)
    except RecursionError:
        return Seen("This page cannot be shown: its elements lie too deep in each other.")


def _too_large(page: Any) -> str | None:
    frames = page.frames
    sizes = [page.evaluate(_SIZE), *map(_size, frames[1:_MOST_FRAMES])]
    elements, characters = (sum(size[it] for size in sizes) for it in (0, 1))
    if len(frames) <= _MOST_FRAMES and elements <= _MOST_ELEMENTS and characters <= _MOST_CHARACTERS:
        return None
    return (
        f"This page is too large to be shown: it has {elements:,} elements, {characters:,} characters and "
        f"{len(frames):,} frames; at most {_MOST_ELEMENTS:,}, {_MOST_CHARACTERS:,} and {_MOST_FRAMES:,} can be."
    )


def _size(frame: Any) -> list[int]:
    """The size of an inner frame. One that does not answer, as `file:` frames never do, is removed: all would wait."""
    try:
        return frame.wait_for_function(_SIZE, timeout=_FRAME_MILLISECONDS).json_value()
    except playwright.TimeoutError:
        frame.frame_element().evaluate("element => element.remove()")
        return [0, 0]


def _read(page: Any, most: int, coordinates: bool) -> Seen:
    try:
        # Only a page that has just been changed has frames that cannot be marked.
        observing._pre_extract(page)
    except marking_error:
        observing._pre_extract(page, lenient=True)
    try:
        tree = observing.extract_merged_axtree(page)
        places = None
        if coordinates:
            snapshot = observing.extract_dom_snapshot(page)
            scale = getattr(page, "_bgym_scale_factor", 1.0)
            places = observing.extract_dom_extra_properties(snapshot, scale_factor=scale)
    finally:
        observing._post_extract(page)
    root = tree["nodes"][0]
    # Players are told the page's address anyway.
    root["properties"] = [it for it in root.get("properties", []) if it["name"] != "url"]
    text: str = tree_text(tree, extra_properties=places, with_center_coords=coordinates, ignored_roles=_UNSHOWN_ROLES)
    if len(text) > most:
        text = f"{text[:most]}\n... and {len(text) - most:,} more characters, which are not shown"
    roles = [(str(node.get("browsergym_id")), node["role"]["value"]) for node in tree["nodes"] if _has_id(node)]
    return Seen(
        text,
        tuple(bid for bid, role in roles if role in _CLICKED),
        tuple(bid for bid, role in roles if role in _FIELDS),
        tuple(bid for bid, _ in roles),
    )


def _has_id(node: Any) -> bool:
    return bool(node.get("browsergym_id")) and not node.get("ignored", False)


def picture(page: Any) -> Any:
    """What is seen of a page in its window, as an image."""
    return image_of(observing.extract_screenshot(page))
