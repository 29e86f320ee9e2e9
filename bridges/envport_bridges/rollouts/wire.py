"""What a gateway answers to a tool call, as the channel and MCP write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from mcp_types.jsonrpc import INVALID_PARAMS

from envport.errors import EpisodeFailed, GatewayUnreachable, InvalidArguments, UnknownTool, error_from_code
from envport.types import Outcome, Reason
from envport_bridges.rollouts.backend import CallReply

__all__ = ["read_answer", "read_result", "written"]

# `json.dumps` would make one for each call.
_encoder = json.JSONEncoder(allow_nan=False)


def written(arguments: Mapping[str, Any]) -> bytes:
    """The arguments of a call as JSON. It is ASCII, so that lone surrogates survive."""
    return _encoder.encode(arguments).encode("ascii")


def read_answer(status: int, content_type: str, body: bytes) -> CallReply:
    """Read the answer to a tool call.

    Raises:
        EnvportError: The gateway's error, as the same class.
        GatewayUnreachable: The answer does not come from a gateway.
    """
    message = _message(body, streamed=content_type.startswith("text/event-stream"))
    if isinstance(result := message.get("result"), dict):
        return read_result(cast("dict[str, Any]", result))
    error = message.get("error")
    if not isinstance(error, dict):
        raise GatewayUnreachable(f"the gateway answered {status} with {body[:200]!r}")
    fields = dict(cast("dict[str, Any]", error))
    code, text = fields.pop("code", None), str(fields.pop("message", "no message"))
    if isinstance(code, str):
        raise error_from_code(code, text, **fields)
    if code == INVALID_PARAMS:
        raise UnknownTool(text) if text.startswith("Unknown tool") else InvalidArguments(text)
    raise EpisodeFailed(f"the gateway answered a tool call with error {code}: {text}", "infrastructure")


def _message(body: bytes, *, streamed: bool) -> dict[str, Any]:
    if streamed:
        # Each event is one line: progress first, the answer last.
        body = next((line[5:] for line in reversed(body.splitlines()) if line.startswith(b"data:")), b"")
    try:
        message = json.loads(body)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise GatewayUnreachable(f"the gateway answered a tool call with {body[:200]!r}")
    return cast("dict[str, Any]", message)


def read_result(result: dict[str, Any]) -> CallReply:
    """Read the result of a tool call.

    Raises:
        EnvportError: The gateway's error, as the same class.
    """
    meta: dict[str, Any] = result.get("_meta") or {}
    is_error = bool(result.get("isError"))
    if is_error and (code := meta.get("envport/error")):
        text = "\n".join(str(block.get("text", "")) for block in result.get("content") or ())
        raise error_from_code(code, text, fault=meta.get("envport/fault"), reason=meta.get("envport/outcome"))
    return CallReply(
        content=result.get("content") or (),
        structured=result.get("structuredContent"),
        is_error=is_error,
        reward=meta.get("envport/reward"),
        outcome=_outcome(meta),
    )


def _outcome(meta: Mapping[str, Any]) -> Outcome | None:
    reason = cast("Reason | None", meta.get("envport/outcome"))
    if reason is None:
        return None
    status = "terminated" if meta.get("envport/terminated") else "truncated"
    steps = meta.get("envport/step", 0)
    # A gateway without `envport/fault` says only that there was one.
    fault = meta.get("envport/fault") or ("infrastructure" if meta.get("envport/infrastructure") else None)
    if fault is not None:
        return Outcome(status="failed", reason=reason, message=f"It was cut short after {steps} steps.", fault=fault)
    return Outcome(status=status, reason=reason, message=f"It {status} after {steps} steps.")
