"""Tool calls of MCP revision 2026-07-28 as bytes, with only what the hot path needs.

See "Streamable HTTP" and "Tools" in the specification. `mcp.Client` does more, and takes four times as long.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

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

from envport.types import CALL_ID_KEY
from envport_bridges.rollouts.wire import written

__all__ = ["ToolCall"]

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
            CLIENT_INFO_META_KEY: {"name": "envport-client", "version": version("envport-client")},
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
