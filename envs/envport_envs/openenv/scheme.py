"""The scheme `openenv:`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import anyio

from envport import ToolError, UpstreamLost
from envport.errors import ConfigurationError, InvalidOption
from envport.registry import EnvironmentDefinition
from envport_envs.openenv.actions import ActionTools
from envport_envs.openenv.environment import OpenEnvEnvironment, listed
from envport_envs.openenv.session import Session
from envport_envs.openenv.tasks import Specs, read_specs
from envport_envs.upstream.address import ServerAddress, environment_name
from envport_envs.upstream.faults import CallRaised, Exceptions, ServerFull
from envport_envs.upstream.http import UpstreamHttp, http_client

__all__ = ["openenv"]

_LOOK_SECONDS = 60.0
_FALLBACK_NAME = "openenv"
_OURS = ("seed", "split", "index")


async def openenv(
    rest: str,
    /,
    *,
    headers: dict[str, str] | None = None,
    variables: list[str] | None = None,
    arguments: dict[str, Any] | None = None,
    hidden: list[str] | None = None,
    exceptions: Exceptions = "fault",
    splits: list[str] | None = None,
) -> EnvironmentDefinition:
    """The environment of an OpenEnv server: `openenv:URL`.

    Args:
        rest: The server's URL, such as `http://127.0.0.1:8000`.
        headers: HTTP headers. `{NAME}` stands for a secret, or for one of `variables`.
        variables: Names of environment variables that headers may name.
        arguments: Further arguments of the server's `reset`, as JSON: `{"level": 3}`.
        hidden: Names of fields of observations that the player does not see, such as `metadata`.
        exceptions: What it is if the environment's `step` raises an exception: `fault`, which ends the episode as a
            fault of the environment; or `refusal`, whose text the player reads, and the episode goes on.
        splits: The splits to serve, of a server with OpenEnv's task API; all if not given.

    Raises:
        ConfigurationError: The server cannot be reached, is full, or is no OpenEnv server.
        InvalidOption: The URL or an option is wrong.
    """
    given = tuple((headers or {}).items())
    address = replace(ServerAddress.parse("openenv", rest), headers=given, variables=tuple(variables or ()))
    if taken := [name for name in _OURS if name in (arguments or {})]:
        raise InvalidOption(f"the option arguments names {taken[0]!r}, which each episode has from its task and seed")
    try:
        with anyio.fail_after(_LOOK_SECONDS):
            look = await _looked(address, splits)
    except TimeoutError:
        raise ConfigurationError(
            f"the OpenEnv server {address.url} did not answer within {_LOOK_SECONDS:g} s"
        ) from None
    except ServerFull as full:
        raise ConfigurationError(
            f"the OpenEnv server {address.url} takes no further session now, and one is needed to look at it: {full}"
        ) from None
    except (UpstreamLost, ToolError, CallRaised) as error:
        raise ConfigurationError(f"{address.url}: {error}") from None
    shown: dict[str, Any] = {"server": address.url}
    shown |= {"arguments": arguments} if arguments else {}
    shown |= {"hidden": hidden} if hidden else {}
    shown |= {"exceptions": exceptions} if exceptions != "fault" else {}
    unshown = {
        "address": address,
        "actions": look.actions.tools,
        "listing": look.listing,
        "specs": look.specs,
        "told": look.told,
        "sessions": look.sessions,
    }
    return EnvironmentDefinition(look.name, OpenEnvEnvironment, shown, unshown)


@dataclass(frozen=True)
class _Look:
    """What a server said of itself.

    Attributes:
        name: The name of its environment.
        told: What its environment is.
        actions: What it takes.
        listing: Its environment's own MCP tools; `None` if it has none.
        specs: Its tasks.
        sessions: How many sessions it takes; `None` if it is not known.
    """

    name: str
    told: str
    actions: ActionTools
    listing: list[dict[str, Any]] | None
    specs: Specs
    sessions: int | None


async def _looked(address: ServerAddress, splits: list[str] | None) -> _Look:
    filled = address.filled({})
    async with http_client(address.url) as http:
        look = UpstreamHttp(http, "OpenEnv server", dict(filled.headers), [value for _, value in filled.headers])
        schemas: Any = await look.get("/schema")
        schema: Any = cast("dict[str, Any]", schemas).get("action") if isinstance(schemas, dict) else None
        if not isinstance(schema, dict):
            look.unexpected("/schema", "has no schema of actions")
        metadata: Any = await look.get("/metadata")
        said = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
        specs = await read_specs(look, splits)
    actions = ActionTools.of(cast("dict[str, Any]", schema))
    listing, sessions = await _session_look(filled, actions)
    if listing is not None and actions.has_tools is None:
        actions = replace(actions, tools=())
    if not listing and not actions.tools:
        raise ConfigurationError(f"the OpenEnv server {address.url} has no tools")
    name = environment_name(str(said.get("name") or ""), _FALLBACK_NAME)
    return _Look(name, str(said.get("description") or ""), actions, listing, specs, sessions)


async def _session_look(address: ServerAddress, actions: ActionTools) -> tuple[list[dict[str, Any]] | None, int | None]:
    """The environment's own tools, and how many sessions the server takes if that is one, which is the default."""
    session = await Session.open(address)
    try:
        listing: list[dict[str, Any]] | None = None
        if actions.has_tools:
            listing = await listed(session)
        elif actions.has_tools is None:
            listing = await _tried(session)
        try:
            await (await Session.open(address)).close()
        except ServerFull as full:
            return listing, full.most
        return listing, None
    finally:
        await session.close()


async def _tried(session: Session) -> list[dict[str, Any]] | None:
    try:
        return await listed(session) or None
    except (ToolError, CallRaised):
        return None
