"""Recognizes the messages that clients send most: `tools/call` and `tools/list`, in their plain form.

A message is plain if the SDK would accept it, and nothing of it concerns the SDK alone. Everything else is left to the
SDK: what is malformed, asks for progress, or uses a rarer part of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from mcp.server.streamable_http import check_accept_headers
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.methods import validate_client_request
from pydantic import ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import Request

from envport.mcp.progress import PROGRESS_TOKEN

__all__ = ["PlainHeaders", "PlainMessage", "cancelled_request"]

_MODERN = b"2026-07-28"
# These two versions have the same form of results. Older ones leave parts out, so the SDK answers them.
_HANDSHAKE = frozenset({b"2025-06-18", b"2025-11-25"})
_MESSAGE_KEYS = frozenset({"jsonrpc", "id", "method", "params"})
_KEYS = {"tools/call": frozenset({"name", "arguments", "_meta"}), "tools/list": frozenset({"_meta"})}
_ENVELOPE = frozenset({PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY})
_OF_THE_PROTOCOL = "io.modelcontextprotocol/"
# What is remembered of clients is bounded.
_LONGEST = 1024
_WRAPPED_NAME = "=?base64?"

_READ = frozenset({b"accept", b"content-type", b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id"})


class PlainHeaders(NamedTuple):
    """What the headers of a request say about its message.

    Attributes:
        modern: Whether it is of the era without sessions.
        method: The method, in the modern era.
        name: The name of the tool, in the modern era.
        session: Id of the session, in the handshake era.
    """

    modern: bool
    method: str | None
    name: str | None
    session: str | None

    @classmethod
    def of(cls, headers: list[tuple[bytes, bytes]]) -> PlainHeaders | None:
        """Read the headers; `None` if the SDK has to look at them.

        Args:
            headers: The headers in ASGI form.
        """
        found: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in _READ:
                if name in found:
                    return None
                found[name] = value
            elif name.startswith(b"mcp-param-"):
                return None
        version = found.get(b"mcp-protocol-version")
        modern = version == _MODERN
        if not (modern or version in _HANDSHAKE) or not found.get(b"content-type", b"").startswith(b"application/json"):
            return None
        accept = found.get(b"accept", b"")
        if len(accept) > _LONGEST or not _takes_json(accept):
            return None
        return cls(
            modern, _text(found.get(b"mcp-method")), _text(found.get(b"mcp-name")), _text(found.get(b"mcp-session-id"))
        )


class PlainMessage(NamedTuple):
    """A message in its plain form.

    Attributes:
        id: Its JSON-RPC id.
        tool: Name of the tool that is called; `None` if it asks for the tool listing.
        arguments: The arguments of the call.
        meta: Its `_meta`.
    """

    id: int | str
    tool: str | None
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]

    @classmethod
    def of(cls, headers: PlainHeaders, body: bytes) -> PlainMessage | None:
        """Read a message; `None` if the SDK has to look at it.

        Args:
            headers: The headers of its request.
            body: The body of its request.
        """
        try:
            message = _object(from_json(body), _MESSAGE_KEYS)
        except ValueError:
            return None
        if message is None or message.get("jsonrpc") != "2.0":
            return None
        number, method = message.get("id"), message.get("method")
        if not (type(number) is int or type(number) is str) or method not in _KEYS:
            return None
        params = _object(message.get("params", _NOTHING), _KEYS[method])
        if params is None:
            return None
        meta = _object(params.get("_meta", _NOTHING))
        if meta is None or not _is_plain(meta, headers, method):
            return None
        if method == "tools/list":
            return cls(number, None, _NOTHING, meta)
        name, arguments = params.get("name"), _object(params.get("arguments", _NOTHING))
        if type(name) is not str or arguments is None:
            return None
        if headers.modern and (headers.name != name or name.startswith(_WRAPPED_NAME)):
            return None
        return cls(number, name, arguments, meta)


def cancelled_request(body: bytes) -> int | str | None:
    """The id of the request that a message cancels; `None` if it cancels none."""
    try:
        message = _object(from_json(body))
    except ValueError:
        return None
    if message is None or message.get("method") != "notifications/cancelled":
        return None
    number = (_object(message.get("params")) or _NOTHING).get("requestId")
    return number if type(number) is int or type(number) is str else None


_NOTHING: dict[str, Any] = {}


def _object(value: Any, keys: frozenset[str] | None = None) -> dict[str, Any] | None:
    """A JSON object that has none but these keys."""
    if type(value) is not dict:
        return None
    found = cast("dict[str, Any]", value)
    return found if keys is None or found.keys() <= keys else None


def _is_plain(meta: dict[str, Any], headers: PlainHeaders, method: str) -> bool:
    if PROGRESS_TOKEN in meta:
        return False
    if any(key not in _ENVELOPE and key.startswith(_OF_THE_PROTOCOL) for key in meta):
        return False
    if not headers.modern:
        return meta.keys().isdisjoint(_ENVELOPE)
    if headers.method != method or meta.get(PROTOCOL_VERSION_META_KEY) != _MODERN.decode("ascii"):
        return False
    envelope = to_json({key: meta[key] for key in _ENVELOPE if key in meta})
    return len(envelope) <= _LONGEST and _is_envelope(envelope)


@lru_cache(maxsize=1024)
def _is_envelope(envelope: bytes) -> bool:
    """Whether the SDK accepts what a client says about itself. It says the same in all of its messages."""
    meta = from_json(envelope)
    if CLIENT_CAPABILITIES_META_KEY not in meta:
        return False
    try:
        validate_client_request("tools/list", _MODERN.decode("ascii"), {"_meta": meta})
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=256)
def _takes_json(accept: bytes) -> bool:
    """Whether the SDK would answer with JSON, or with a stream, to a client that sends this header `Accept`."""
    json, stream = check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]}))
    return json and stream


def _text(value: bytes | None) -> str | None:
    return value.decode("latin-1") if value is not None else None
