"""The tools of a player in a browser, and the text of BrowserGym's actions that they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envport import ToolDefinition
from envport.environment import ToolHints
from envport.errors import InvalidOption

__all__ = ["BY_COORDINATES", "BY_ID", "NAVIGATION", "TABS", "action_text", "checked_tools", "definitions"]

_LONGEST_TEXT = 10_000
_MOST_OPTIONS = 100
_LONGEST_WAIT = 10_000
_FAR = 100_000
_MOST_TABS = 100

_KEYS = (
    "A key, such as Enter, Tab, Escape, Backspace, ArrowDown or a, after modifiers if need be: Control+a, Shift+Tab."
)


def _text(description: str, most: int = _LONGEST_TEXT, **more: Any) -> dict[str, Any]:
    return {"type": "string", "maxLength": most, **more, "description": description}


def _pixels(description: str) -> dict[str, Any]:
    return {"type": "number", "minimum": -_FAR, "maximum": _FAR, "description": description}


def _element(description: str = "The element's id, as in [12] or [a12].") -> dict[str, Any]:
    return _text(description, 40, pattern="^[A-Za-z]*[0-9]+$")


_BUTTON: dict[str, Any] = {
    "type": "string",
    "enum": ["left", "middle", "right"],
    "default": "left",
    "description": "The button of the mouse.",
}
_MODIFIERS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "enum": ["Alt", "Control", "Meta", "Shift"]},
    "uniqueItems": True,
    "default": [],
    "description": "Keys that are held down.",
}
_POINT: dict[str, dict[str, Any]] = {
    "x": _pixels("Pixels from the left edge."),
    "y": _pixels("Pixels from the upper edge."),
}


@dataclass(frozen=True)
class _Action:
    """An action of BrowserGym.

    Attributes:
        description: What it does.
        parameters: The schema of each argument, in the order of BrowserGym's function. Those with a default are last.
    """

    description: str
    parameters: Mapping[str, Mapping[str, Any]]


BY_ID: Mapping[str, _Action] = {
    "click": _Action("Click an element.", {"bid": _element(), "button": _BUTTON, "modifiers": _MODIFIERS}),
    "dblclick": _Action("Double-click an element.", {"bid": _element(), "button": _BUTTON, "modifiers": _MODIFIERS}),
    "hover": _Action("Move the mouse over an element.", {"bid": _element()}),
    "fill": _Action(
        "Replace the text of a field.",
        {
            "bid": _element(),
            "value": _text("The text."),
            "enable_autocomplete_menu": {
                "type": "boolean",
                "default": False,
                "description": "Type the last character by keyboard, so that suggestions appear.",
            },
        },
    ),
    "clear": _Action("Empty a field.", {"bid": _element()}),
    "select_option": _Action(
        "Select options of a list.",
        {
            "bid": _element(),
            "options": {
                "type": "array",
                "items": {"type": "string", "maxLength": _LONGEST_TEXT},
                "minItems": 1,
                "maxItems": _MOST_OPTIONS,
                "description": "The options' texts or values.",
            },
        },
    ),
    "press": _Action("Focus an element and press keys.", {"bid": _element(), "key_comb": _text(_KEYS, 100)}),
    "focus": _Action("Focus an element.", {"bid": _element()}),
    "drag_and_drop": _Action(
        "Drag an element to another one.",
        {"from_bid": _element("The id of what is dragged."), "to_bid": _element("The id of where it is dropped.")},
    ),
    "scroll": _Action(
        "Scroll the page.",
        {
            "delta_x": _pixels("Pixels to the right; to the left if negative."),
            "delta_y": _pixels("Pixels down; up if negative."),
        },
    ),
    "keyboard_press": _Action("Press keys, wherever the focus is.", {"key": _text(_KEYS, 100)}),
    "keyboard_type": _Action("Type a text, wherever the focus is.", {"text": _text("The text.", 2_000)}),
    "noop": _Action(
        "Wait.",
        {
            "wait_ms": {
                "type": "number",
                "minimum": 0,
                "maximum": _LONGEST_WAIT,
                "default": 1000,
                "description": "Milliseconds.",
            }
        },
    ),
}
"""Actions on elements, which have ids, and on what has the focus."""

BY_COORDINATES: Mapping[str, _Action] = {
    "mouse_click": _Action("Click at a place.", {**_POINT, "button": _BUTTON}),
    "mouse_dblclick": _Action("Double-click at a place.", {**_POINT, "button": _BUTTON}),
    "mouse_move": _Action("Move the mouse to a place.", _POINT),
    "mouse_down": _Action("Press a button of the mouse at a place, and hold it.", {**_POINT, "button": _BUTTON}),
    "mouse_up": _Action("Release a button of the mouse at a place.", {**_POINT, "button": _BUTTON}),
    "mouse_drag_and_drop": _Action(
        "Drag from a place to another one.",
        {f"{which}_{name}": schema for which in ("from", "to") for name, schema in _POINT.items()},
    ),
}
"""Actions at places of the window."""

NAVIGATION: Mapping[str, _Action] = {
    "goto": _Action("Go to an address.", {"url": _text("The address.", 2_000)}),
    "go_back": _Action("Go to the previous page.", {}),
    "go_forward": _Action("Go to the next page, after going back.", {}),
}
"""Actions that leave the page."""

TABS: Mapping[str, _Action] = {
    "new_tab": _Action("Open a tab, which becomes the present one.", {}),
    "tab_close": _Action("Close the present tab.", {}),
    "tab_focus": _Action(
        "Change to another tab.",
        {
            "index": {
                "type": "integer",
                "minimum": 0,
                "maximum": _MOST_TABS,
                "description": "The tab's number in the list, from 0.",
            }
        },
    ),
}
"""Actions on tabs."""

# BrowserGym's `upload_file` is not among them: it reads files of this machine.
_ALL: Mapping[str, _Action] = {**BY_ID, **BY_COORDINATES, **NAVIGATION, **TABS}


def checked_tools(tools: Sequence[str]) -> tuple[str, ...]:
    """Names of tools, if all are known.

    Raises:
        InvalidOption: One is not, or is named twice, or there is none.
    """
    unknown = [name for name in tools if name not in _ALL]
    if unknown or not tools or len({*tools}) < len(tools):
        what = f"names {unknown[0]!r}" if unknown else "names none" if not tools else "names one twice"
        raise InvalidOption(f"scheme 'browsergym': option 'tools' {what}; the tools are: {', '.join(_ALL)}")
    return tuple(tools)


def definitions(tools: Sequence[str]) -> list[ToolDefinition]:
    """The tools of these names, each implemented by the method `act`.

    Args:
        tools: The names.
    """
    return [_definition(name, _ALL[name]) for name in tools]


def _definition(name: str, action: _Action) -> ToolDefinition:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: dict(value) for key, value in action.parameters.items()},
        "required": [key for key, value in action.parameters.items() if "default" not in value],
        "additionalProperties": False,
    }
    looking = name in ("noop", "hover", "scroll")
    hints = ToolHints(read_only=looking, destructive=False, idempotent=False, open_world=False)
    return ToolDefinition(name, schema, "act", action.description, hints=hints)


def action_text(name: str, arguments: Mapping[str, Any]) -> str:
    """The text of an action for BrowserGym's strict parser.

    It reads what `repr` writes, and nothing else: with quotes of our own or as JSON, some texts would change, and some
    would become other actions.

    Args:
        name: The tool's name.
        arguments: Its arguments, which fit its schema.
    """
    given = (arguments.get(key, schema.get("default")) for key, schema in _ALL[name].parameters.items())
    return f"{name}({', '.join(map(repr, given))})"
