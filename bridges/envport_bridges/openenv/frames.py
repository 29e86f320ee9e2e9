"""The messages of OpenEnv's WebSocket: what a client sends, and what it is answered.

The protocol is that of `openenv` 0.10 and `openenv-core` 0.3. It has no word for an episode that was lost. So a loss is
an error, which their client raises, and never an observation: that would have a reward, and be trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic_core import from_json, to_json

from envport.episodes import EpisodeTable
from envport.errors import AtCapacity, EnvportError, EpisodeFailed, EpisodeOver, RequestError, UnknownEpisode

__all__ = ["ErrorCode", "OpenEnvError", "Received", "error_data", "frame", "read_frame", "read_object"]

ErrorCode = Literal[
    "INVALID_JSON",
    "UNKNOWN_TYPE",
    "VALIDATION_ERROR",
    "EXECUTION_ERROR",
    "CAPACITY_REACHED",
    "FACTORY_ERROR",
    "SESSION_ERROR",
]
"""OpenEnv's codes of errors."""

Received = tuple[str, dict[str, Any]]
"""The type of a message, and its data."""

_WITH_DATA = frozenset({"reset", "step", "mcp"})
_TYPES = ("reset", "step", "state", "close", "mcp")


class OpenEnvError(EnvportError):
    """A message that OpenEnv has a code for.

    Args:
        code: The code.
        message: What was wrong, and what is allowed.
    """

    code = "openenv_error"

    def __init__(self, code: ErrorCode, message: str):
        super().__init__(message)
        self.named: ErrorCode = code


def read_frame(message: Mapping[str, Any]) -> Received:
    """Read a message of the WebSocket.

    Args:
        message: The ASGI message.

    Raises:
        OpenEnvError: It is none of OpenEnv's.
    """
    text = message.get("text")
    if text is None:
        raise OpenEnvError("INVALID_JSON", "a message has to be text, not binary")
    fields = read_object(text, "a message")
    kind: Any = fields.pop("type", None)
    data: Any = fields.pop("data", None)
    if kind not in _TYPES:
        # It ends as the message of OpenEnv's server does: clients know by it which request is answered.
        raise OpenEnvError("UNKNOWN_TYPE", f"Allowed: {', '.join(_TYPES)}. Unknown message type: {kind}")
    if fields:
        raise OpenEnvError("VALIDATION_ERROR", f"a message has type and data, and not {', '.join(sorted(fields))}")
    if data is None and (kind == "reset" or kind not in _WITH_DATA):
        data = {}
    if type(data) is not dict:
        raise OpenEnvError("VALIDATION_ERROR", f"the data of {kind!r} has to be an object")
    return kind, cast("dict[str, Any]", data)


def read_object(text: str | bytes, what: str) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        text: The JSON.
        what: What it is, for the error.

    Raises:
        OpenEnvError: It is none.
    """
    try:
        read = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise OpenEnvError("INVALID_JSON", f"{what} has to be JSON: {error}") from None
    if type(read) is not dict:
        raise OpenEnvError("VALIDATION_ERROR", f"{what} has to be an object")
    return cast("dict[str, Any]", read)


def frame(kind: str, data: Mapping[str, Any]) -> str:
    """A message for the client."""
    return to_json({"type": kind, "data": data}).decode()


def error_data(error: EnvportError, table: EpisodeTable, *, opening: bool = False) -> dict[str, Any]:
    """The data of an error.

    Args:
        error: The error.
        table: The episodes.
        opening: Whether an episode was to be opened.
    """
    data: dict[str, Any] = {"message": str(error), "code": _code(error, opening=opening)}
    if isinstance(error, AtCapacity):
        data |= {"active_sessions": table.live, "max_sessions": table.limits.max_episodes}
    return data


def _code(error: EnvportError, *, opening: bool) -> ErrorCode:
    if isinstance(error, OpenEnvError):
        return error.named
    if isinstance(error, AtCapacity):
        return "CAPACITY_REACHED"
    if isinstance(error, UnknownEpisode) or (isinstance(error, EpisodeOver) and error.fault not in (None, "player")):
        return "SESSION_ERROR"
    if isinstance(error, EpisodeFailed):
        return "FACTORY_ERROR" if opening else "SESSION_ERROR"
    return "VALIDATION_ERROR" if opening and isinstance(error, RequestError) else "EXECUTION_ERROR"
