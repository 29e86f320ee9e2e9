"""Checks as an MCP client whether a gateway's MCP address can be attached to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

from envport.cli.causes import innermost
from envport.client.calls import headers_for
from envport.client.certificates import trusted
from envport.client.reasons import reason_of
from envport.errors import EnvportError, GatewayUnreachable, PermissionDenied, Unauthenticated, UnknownEnvironment

__all__ = ["Probe", "mcp_client", "probe"]

_SECONDS = 30.0


@dataclass(frozen=True)
class Probe:
    """The findings at an address.

    Attributes:
        needs_token: Whether the gateway wants a token.
        name: The MCP server's own name; `None` if it could not be asked because the token is missing.
        tools: The tools that it lists.
    """

    needs_token: bool
    name: str | None = None
    tools: tuple[str, ...] = ()


@asynccontextmanager
async def mcp_client(url: str, token: str | None) -> AsyncGenerator[mcp.Client]:
    """A connected MCP client.

    Raises:
        GatewayUnreachable: There is no MCP server at the address.
    """
    timeout = httpx2.Timeout(_SECONDS, read=None)
    http = httpx2.AsyncClient(headers=headers_for(token or ""), timeout=timeout, verify=trusted())
    started = False
    try:
        async with http, mcp.Client(streamable_http_client(url, http_client=http)) as client:
            started = True
            yield client
    except EnvportError:
        raise
    except Exception as error:
        if started:
            raise
        raise GatewayUnreachable(f"{url} answers, but not as an MCP server: {innermost(error)}") from error


async def probe(url: str, token: str | None) -> Probe:
    """Probe an address.

    Args:
        url: The MCP address.
        token: The token to use if one is wanted.

    Raises:
        GatewayUnreachable: There is no answer, or it is not from an MCP server.
        Unauthenticated: The token is not valid.
        PermissionDenied: The token does not cover this address.
        UnknownEnvironment: The gateway does not serve this environment.
    """
    async with httpx2.AsyncClient(timeout=_SECONDS, verify=trusted()) as http:
        answer = await _ask(http, url, None)
        needs_token = answer.status_code == 401
        if needs_token and token is None:
            return Probe(needs_token=True)
        if needs_token:
            answer = await _ask(http, url, token)
    _refuse(answer, url)
    async with mcp_client(url, token if needs_token else None) as client:
        listed = await client.list_tools()
        name = client.server_info.name if client.server_info is not None else ""
        return Probe(needs_token, name, tuple(tool.name for tool in listed.tools))


async def _ask(http: httpx2.AsyncClient, url: str, token: str | None) -> httpx2.Response:
    try:
        # An MCP server refuses an empty message, so this request changes nothing.
        return await http.post(url, json={}, headers=headers_for(token or ""))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise GatewayUnreachable(f"no answer from {url}: {reason_of(error)}") from error


def _refuse(answer: httpx2.Response, url: str) -> None:
    if answer.status_code == 401:
        raise Unauthenticated(f"{url} does not accept the token in ENVPORT_TOKEN")
    if answer.status_code == 403:
        raise PermissionDenied(f"{url} is not covered by the token in ENVPORT_TOKEN")
    if answer.status_code == 404:
        raise UnknownEnvironment(_message(answer) or f"there is nothing at {url}")
    if answer.status_code == 421:
        raise GatewayUnreachable(f"{url} is a gateway that does not answer by this name: see --allowed-host of serve")


def _message(answer: httpx2.Response) -> str | None:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return None
