"""JSON, ids and server-sent events, as the APIs of models write them."""

from __future__ import annotations

import json
import secrets
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

__all__ = ["decoded", "encoded", "encoded_text", "random_id", "server_sent"]


def decoded(data: bytes) -> Any:
    """Read JSON.

    Half of a surrogate pair becomes a question mark: programs cut texts in the middle of a pair, and no tokenizer takes
    what is left.

    Raises:
        ValueError: It is no JSON, is not UTF-8, or is nested too deeply.
    """
    try:
        return from_json(data)
    except ValueError:
        try:
            whole = json.dumps(json.loads(data.decode("utf-8")), ensure_ascii=False)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return from_json(whole.encode("utf-8", "replace"))


def encoded(value: Any) -> bytes:
    """Write JSON. What is no number in JSON, such as infinity, becomes `null`."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        # Half of a surrogate pair, which a model may write in the arguments of a call.
        return json.dumps(value).encode()


def encoded_text(value: Any) -> str:
    """Write JSON as text, as the arguments of tool calls are."""
    return encoded(value).decode()


def random_id(prefix: str) -> str:
    """An id that nobody has seen. Agents merge or drop messages and calls whose ids they know."""
    return f"{prefix}_{secrets.token_hex(12)}"


def server_sent(data: Any, event: str | None = None) -> str:
    """A server-sent event.

    Args:
        data: What is sent as JSON.
        event: Its name, where the API names its events.
    """
    name = f"event: {event}\n" if event is not None else ""
    return f"{name}data: {encoded_text(data)}\n\n"
