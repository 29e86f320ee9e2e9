"""What attaches MCP clients to an address of a gateway: the command for Claude Code, and the settings of others."""

from __future__ import annotations

from typing import Any

__all__ = ["TOKEN_VARIABLE", "authorization", "claude_code", "mcp_settings"]

TOKEN_VARIABLE = "${ENVPORT_TOKEN}"
"""Clients replace this by the token, so the token is in no command line and no settings file."""


def authorization(token: str | None) -> dict[str, str]:
    """The request headers of a client with this token."""
    return {"Authorization": f"Bearer {token}"} if token is not None else {}


def claude_code(name: str, url: str, token: str | None) -> list[str]:
    """The command, as a list of arguments.

    Args:
        name: The name that the client gives the server.
        url: The MCP address.
        token: The token, or `TOKEN_VARIABLE`; `None` if none is needed.
    """
    # Headers go after the address, because the option takes all following arguments.
    headers = [word for key, value in authorization(token).items() for word in ("--header", f"{key}: {value}")]
    return ["claude", "mcp", "add", "--transport", "http", name, url, *headers]


def mcp_settings(name: str, url: str, token: str | None) -> dict[str, Any]:
    """The `mcpServers` settings that most clients read.

    Args:
        name: The name that the client gives the server.
        url: The MCP address.
        token: The token, or `TOKEN_VARIABLE`; `None` if none is needed.
    """
    server: dict[str, Any] = {"type": "http", "url": url}
    if headers := authorization(token):
        server["headers"] = headers
    return {"mcpServers": {name: server}}
