"""The messages of the rollout channel: JSON-RPC requests and their answers, as bytes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from pydantic_core import from_json, to_json

from envport.errors import AtCapacity, EnvportError, RequestError, error_fields

__all__ = ["BROKEN", "ChannelRequest", "Malformed", "answered", "refused", "unknown_method"]

_REFUSED = -32000
BROKEN = {"code": INTERNAL_ERROR, "message": "The gateway broke; see its log."}
"""The error for a request at which the gateway itself failed."""


class Malformed(Exception):
    """A message that is no request.

    Args:
        code: The code of JSON-RPC.
        message: What is wrong, and what is allowed.
        number: The id of the message, if it has one.
    """

    def __init__(self, code: int, message: str, number: int | str | None = None):
        super().__init__(message)
        self.answer = to_json({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


class ChannelRequest(NamedTuple):
    """One request.

    Attributes:
        id: Its JSON-RPC id.
        method: What is asked for.
        params: With what.
    """

    id: int | str
    method: str
    params: dict[str, Any]

    @classmethod
    def read(cls, data: bytes | str) -> ChannelRequest | None:
        """Read a message; `None` if it is a notification, which needs no answer.

        Raises:
            Malformed: It is something else than a request.
        """
        try:
            message = _parsed(data)
        except (ValueError, RecursionError) as error:
            raise Malformed(PARSE_ERROR, f"This is not JSON: {error}") from None
        if type(message) is not dict:
            raise Malformed(INVALID_REQUEST, "A message has to be one JSON-RPC request: an object, not a list of them")
        fields = cast("dict[str, Any]", message)
        number, method, params = fields.get("id"), fields.get("method"), fields.get("params", {})
        if type(method) is str and "id" not in fields:
            return None
        if not (type(number) is int or type(number) is str):
            raise Malformed(INVALID_REQUEST, "A request needs an id: a whole number or a string")
        if type(method) is not str or fields.get("jsonrpc") != "2.0":
            raise Malformed(INVALID_REQUEST, 'A request needs "jsonrpc": "2.0" and a method', number)
        if type(params) is not dict:
            raise Malformed(INVALID_PARAMS, "params has to be an object", number)
        return cls(number, method, cast("dict[str, Any]", params))


def _parsed(data: bytes | str) -> Any:
    try:
        return from_json(data)
    except ValueError:
        # `from_json` is stricter: it refuses half of a surrogate pair, which a model may write in an argument.
        return json.loads(data)


def answered(number: int | str, result: bytes) -> bytes:
    """The answer to a request.

    Args:
        number: Its id.
        result: The result as JSON.
    """
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (to_json(number), result)


def refused(number: int | str, error: EnvportError | dict[str, Any]) -> bytes:
    """The answer to a request that could not be carried out.

    Args:
        number: Its id.
        error: Why.
    """
    if isinstance(error, EnvportError):
        of_the_request = isinstance(error, RequestError) and not isinstance(error, AtCapacity)
        code = INVALID_PARAMS if of_the_request else _REFUSED
        error = {"code": code, "message": str(error), "data": error_fields(error)}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (to_json(number), to_json(error))


def unknown_method(request: ChannelRequest, known: list[str]) -> bytes:
    """The answer to a request for something that the channel does not do."""
    message = f"There is no method {request.method!r}; there are {', '.join(known)}"
    return refused(request.id, {"code": METHOD_NOT_FOUND, "message": message})
