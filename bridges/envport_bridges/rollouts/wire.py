"""Tool calls of MCP revision 2026-07-28 and their answers as bytes, with only what the hot path needs.

See "Streamable HTTP" and "Tools" in the specification. `mcp.Client` does more, and takes four times as long.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.jsonrpc import INVALID_PARAMS

from envport.errors import EpisodeFailed, GatewayUnreachable, InvalidArguments, UnknownTool, error_from_code
from envport.types import CALL_ID_KEY, Outcome, Reason
from envport_bridges.rollouts.backend import CallReply

__all__ = ["ToolCall", "read_answer", "read_result", "written"]

_VERSION = "2026-07-28"


@dataclass(frozen=True)
class ToolCall:
    """The part that all calls of one tool share.

    Attributes:
        headers: Headers of the request.
        before: The body up to the id of the call.
        between: The body from there to the arguments.
        mirrored: Arguments that are also sent as headers, by their place in the schema (`x-mcp-header`).
    """

    headers: dict[str, str]
    before: bytes
    between: bytes
    mirrored: dict[tuple[str, ...], str]

    @classmethod
    def of(cls, name: str, schema: Mapping[str, Any]) -> ToolCall:
        """Prepare the calls of a tool."""
        meta = {
            PROTOCOL_VERSION_META_KEY: _VERSION,
            CLIENT_INFO_META_KEY: {"name": "envport-trl", "version": version("envport")},
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        opening = json.dumps(request)[:-1] + ', "params": ' + json.dumps({"name": name, "_meta": meta})[:-2]
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            MCP_PROTOCOL_VERSION_HEADER: _VERSION,
            MCP_METHOD_HEADER: "tools/call",
            MCP_NAME_HEADER: encode_header_value(name),
        }
        mirrored = x_mcp_header_map(schema) if find_invalid_x_mcp_header(schema) is None else {}
        before = f'{opening}, "{CALL_ID_KEY}": "'.encode("ascii")
        return cls(headers, before, b'"}, "arguments": ', mirrored)

    def headers_for(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a call."""
        return self.headers | mcp_param_headers(self.mirrored, arguments) if self.mirrored else self.headers

    def body(self, arguments: Mapping[str, Any], call_id: str) -> bytes:
        """The body of a call.

        Args:
            arguments: The arguments.
            call_id: Id of the call, of letters and digits. A call that is sent twice is executed once.
        """
        return b"".join((self.before, call_id.encode("ascii"), self.between, written(arguments), b"}}"))


def written(arguments: Mapping[str, Any]) -> bytes:
    """The arguments of a call as JSON. It is ASCII, so that lone surrogates survive."""
    return json.dumps(arguments, allow_nan=False).encode("ascii")


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
