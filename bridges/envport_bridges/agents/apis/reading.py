"""Reading the bodies of requests: each helper refuses what is of another form, and says where it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from envport_bridges.agents.apis.requests import RequestRefused
from envport_bridges.agents.apis.wire import decoded

__all__ = [
    "arguments_of",
    "count_of",
    "flag_of",
    "function_tool",
    "hosted_tool",
    "ignored_settings",
    "invalid",
    "list_of",
    "model_of",
    "object_of",
    "refuse_settings",
    "stops_of",
    "text_of",
    "text_of_parts",
    "unsupported",
]

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
# Anthropic's have the date of their version.
_VERSION = re.compile(r"_[0-9]{8}$")
# Names of other tools are not repeated: they are told in a header and in the log.
_HOSTED = frozenset((
    "apply_patch", "bash", "code_execution", "code_interpreter", "computer", "computer_use_preview", "custom",
    "file_search", "image_generation", "local_shell", "mcp", "memory", "namespace", "shell", "text_editor",
    "tool_search", "web_fetch", "web_search", "web_search_preview",
))  # fmt: skip


def invalid(message: str) -> RequestRefused:
    """The refusal of what is of another form than the API's."""
    return RequestRefused(400, "invalid_request_error", message)


def unsupported(message: str) -> RequestRefused:
    """The refusal of what is valid, and cannot be given here."""
    return RequestRefused(400, "unsupported_value", message)


def object_of(value: Any, where: str) -> dict[str, Any]:
    """The value, which has to be an object."""
    if not isinstance(value, dict):
        raise invalid(f"{where} has to be an object, not {_kind(value)}")
    return cast("dict[str, Any]", value)


def list_of(value: Any, where: str) -> list[Any]:
    """The value, which has to be a list."""
    if not isinstance(value, list):
        raise invalid(f"{where} has to be a list, not {_kind(value)}")
    return cast("list[Any]", value)


def text_of(value: Any, where: str) -> str:
    """The value, which has to be text."""
    if not isinstance(value, str):
        raise invalid(f"{where} has to be text, not {_kind(value)}")
    return value


def flag_of(body: Mapping[str, Any], name: str) -> bool:
    """A setting that is on or off; off if it is not set."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f"{name} has to be true or false, not {_kind(value)}")
    return bool(value)


def count_of(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of these settings that is set, each of which is a whole number of at least 1."""
    counts = [_count(body[name], name) for name in names if body.get(name) is not None]
    return counts[0] if counts else None


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise invalid(f"{where} has to be a whole number of at least 1")
    return value


def model_of(body: Mapping[str, Any]) -> str:
    """The name of the model. Any is answered, as there is one model."""
    value = body.get("model")
    return "policy" if value is None else text_of(value, "model")


def stops_of(value: Any, where: str) -> tuple[str, ...]:
    """Texts that end a turn: one, or a list of them."""
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else list_of(value, where)
    texts = tuple(text_of(stop, f"{where}[{index}]") for index, stop in enumerate(stops))
    if not all(texts):
        raise invalid(f"{where} has an empty text, which would end every turn before it begins")
    return texts


def text_of_parts(content: Any, where: str, types: Sequence[str]) -> str:
    """The text of a message: as it is, or in parts, which become one text with line breaks between them.

    Args:
        content: The content. `None` is no text.
        where: What it is called when it is refused.
        types: The types of parts that are text. Others, such as images, are refused: the policy reads text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for index, part in enumerate(list_of(content, where)):
        place = f"{where}[{index}]"
        part = object_of({"type": "text", "text": part} if isinstance(part, str) else part, place)
        kind = part.get("type")
        if kind not in types:
            raise unsupported(f"{place} is of type {_shown(kind)}: the policy reads text only ({', '.join(types)})")
        key = "refusal" if kind == "refusal" else "text"
        texts.append(text_of(part.get(key), f"{place}.{key}"))
    return "\n".join(texts)


def arguments_of(text: str) -> dict[str, Any] | str:
    """The arguments of a call as an object, or the text itself if that is none."""
    try:
        value = decoded(text.encode("utf-8", "replace"))
    except ValueError:
        return text
    return cast("dict[str, Any]", value) if isinstance(value, dict) else text


def function_tool(name: Any, description: Any, parameters: Any, where: str) -> dict[str, Any]:
    """A tool as chat templates take it."""
    if not text_of(name, f"{where}.name"):
        raise invalid(f"{where}.name is empty")
    schema = _NO_PARAMETERS if parameters is None else object_of(parameters, f"{where}: its parameters")
    told = "" if description is None else text_of(description, f"{where}.description")
    return {"type": "function", "function": {"name": name, "description": told, "parameters": schema}}


def hosted_tool(kind: Any) -> str:
    """What stands in `ModelRequest.ignored` for a tool that the API's own server would run."""
    name = _VERSION.sub("", kind) if isinstance(kind, str) else None
    return f"tools.{name}" if name in _HOSTED else "tools.other"


def ignored_settings(body: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Which of these settings the request has."""
    return [name for name in names if body.get(name) is not None]


def refuse_settings(body: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Refuse settings without which the agent would be misled.

    Args:
        body: The body.
        reasons: What to say, by the names of the settings. They may be `null`, false, or empty.
    """
    for name, reason in reasons.items():
        if body.get(name):
            raise unsupported(f"{name} is not supported: {reason}")


def _shown(kind: Any) -> str:
    return repr(kind[:40]) if isinstance(kind, str) else _kind(kind)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names: Sequence[tuple[type, str]] = ((bool, "true or false"), (str, "text"), (list, "a list"), (dict, "an object"))
    return next((name for kind, name in names if isinstance(value, kind)), "a number")
