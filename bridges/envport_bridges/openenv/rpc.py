"""What OpenEnv calls MCP: `tools/list` and `tools/call` in JSON-RPC, of a session that was made before.

It is not MCP, whose clients cannot use it: they have `/episodes/{handle}/mcp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from envport.errors import CallerLeft, EnvportError, InvalidArguments, UnknownTool
from envport_bridges.openenv.session import OpenEnvSession, answered

__all__ = ["answer_rpc", "rpc_error", "rpc_result"]


def rpc_result(request: Mapping[str, Any], result: Any) -> dict[str, Any]:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


def rpc_error(request: Mapping[str, Any], code: int, message: str) -> dict[str, Any]:
    """The answer to a request that cannot be carried out."""
    return {"jsonrpc": "2.0", "id": request.get("id"), "error": {"code": code, "message": message}}


async def answer_rpc(session: OpenEnvSession, request: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out a request.

    Args:
        session: The session.
        request: The request.
    """
    method = request.get("method")
    params: Any = request.get("params") or {}
    if type(params) is not dict:
        return rpc_error(request, INVALID_PARAMS, "params has to be an object")
    if method == "tools/list":
        return rpc_result(request, {"tools": session.tools})
    if method != "tools/call":
        return rpc_error(request, METHOD_NOT_FOUND, f"there is no method {method!r}; allowed: tools/list, tools/call")
    fields = cast("dict[str, Any]", params)
    name, arguments = fields.get("name"), fields.get("arguments", {})
    if type(name) is not str or type(arguments) is not dict:
        return rpc_error(request, INVALID_PARAMS, "tools/call needs name, a text, and arguments, an object")
    try:
        return rpc_result(request, answered(await session.call(name, cast("dict[str, Any]", arguments))))
    except CallerLeft:
        raise
    except (InvalidArguments, UnknownTool) as refused:
        return rpc_error(request, INVALID_PARAMS, str(refused))
    except EnvportError as error:
        return rpc_error(request, INTERNAL_ERROR, str(error))
