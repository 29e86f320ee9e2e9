"""The scheme `ors:`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import anyio

from envport import UpstreamLost
from envport.errors import ConfigurationError, InvalidOption
from envport.registry import EnvironmentDefinition
from envport_envs.ors.environment import (
    OrsEnvironment,
    OrsLastRewardEnvironment,
    OrsTaskToolsEnvironment,
    OrsTaskToolsLastRewardEnvironment,
)
from envport_envs.ors.server import WHAT, OrsServer
from envport_envs.ors.session import PING_SECONDS
from envport_envs.ors.tasks import SplitTasks, first_spec, looking, tools_of_task
from envport_envs.ors.tools import OrsListing, listing_of
from envport_envs.upstream.address import environment_name
from envport_envs.upstream.faults import CallRaised, Exceptions, ServerFull
from envport_envs.upstream.http import UpstreamHttp
from envport_envs.upstream.task_api import all_tasks, chosen_splits, number_of_tasks, split_names

__all__ = ["ors"]

_LOOK_SECONDS = 240.0
_FALLBACK_NAME = "ors"
_CLASSES: dict[tuple[str, bool], type[OrsEnvironment]] = {
    ("sum", False): OrsEnvironment,
    ("sum", True): OrsTaskToolsEnvironment,
    ("last", False): OrsLastRewardEnvironment,
    ("last", True): OrsTaskToolsLastRewardEnvironment,
}


async def ors(
    rest: str,
    /,
    *,
    environment: str | None = None,
    splits: list[str] | None = None,
    task_tools: bool | None = None,
    reward: Literal["sum", "last"] = "sum",
    exceptions: Exceptions = "fault",
    session_secrets: dict[str, str] | None = None,
    secret_domains: dict[str, list[str]] | None = None,
    headers: dict[str, str] | None = None,
    variables: list[str] | None = None,
    ping_seconds: float = PING_SECONDS,
) -> EnvironmentDefinition:
    """The environment of an Open Reward Standard server: `ors:URL`, or `ors:OWNER/NAME` of OpenReward's catalogue.

    Args:
        rest: The server's URL, such as `http://127.0.0.1:8080`, or a name of the catalogue.
        environment: The environment of a server that has several; its first one if not given.
        splits: The splits to serve; all if not given.
        task_tools: Whether tasks have tools of their own, which are then read with each task, in a session that is
            ended at once. If not given, the first task of each split is asked.
        reward: Whether the episode's reward is the sum of the tools' rewards or the last one.
        exceptions: What it is if a tool raises an exception: `fault`, which ends the episode as a fault of the
            environment; or `refusal`, whose text the player reads, and the episode goes on.
        session_secrets: Secrets of each session by name. `{NAME}` stands for a secret of the episode, or for one of
            `variables`.
        secret_domains: The hosts that each of these secrets may be sent to, by its name. The catalogue needs them.
        headers: HTTP headers, with the same placeholders.
        variables: Names of environment variables that placeholders may name.
        ping_seconds: Seconds between two pings, which keep a session alive.

    Raises:
        ConfigurationError: The server cannot be reached, is full, or is none of the standard.
        InvalidOption: The URL or an option is wrong.
    """
    if not ping_seconds > 0:
        raise InvalidOption(f"the option ping_seconds is {ping_seconds:g}; allowed: a number above 0")
    hosts = {name: tuple(allowed) for name, allowed in (secret_domains or {}).items()}
    server = OrsServer.parse(
        rest, headers or {}, tuple(variables or ()), environment or "", session_secrets or {}, hosts
    )
    try:
        with anyio.fail_after(_LOOK_SECONDS):
            look = await _looked(server, splits, task_tools)
    except TimeoutError:
        raise ConfigurationError(f"{server.shown}: the {WHAT} did not answer within {_LOOK_SECONDS:g} s") from None
    except ServerFull as full:
        raise ConfigurationError(f"{server.shown}: the {WHAT} takes no further session now: {full}") from None
    except (UpstreamLost, CallRaised) as error:
        raise ConfigurationError(f"{server.shown}: {error}") from None
    shown: dict[str, Any] = {"server": server.shown}
    shown |= {"exceptions": exceptions} if exceptions != "fault" else {}
    unshown = {"at": look.server, "listing": look.listing, "tasks": look.tasks, "ping_seconds": ping_seconds}
    return EnvironmentDefinition(look.name, _CLASSES[reward, look.task_tools], shown, unshown)


@dataclass(frozen=True)
class _Look:
    """What a server said of itself.

    Attributes:
        server: The server, with the environment's name if it told one.
        name: A name for the environment.
        listing: Its tools.
        tasks: Its tasks.
        task_tools: Whether tasks have tools of their own.
    """

    server: OrsServer
    name: str
    listing: OrsListing
    tasks: dict[str, SplitTasks]
    task_tools: bool


async def _looked(server: OrsServer, splits: list[str] | None, task_tools: bool | None) -> _Look:
    async with looking(server) as http:
        server = replace(server, environment=await _environment(http, server))
        listed: Any = await http.get(f"{server.base}/tools")
        if listed is None:
            http.unexpected(f"{server.base}/tools", "is that there is no such thing")
        listing = listing_of(listed)
        known = await split_names(http, server.base)
        if known is None:
            http.unexpected(f"{server.base}/splits", "is that there is no such thing")
        tasks = {name: await _tasks(http, server.base, name) for name in chosen_splits(known, splits, WHAT)}
        firsts = [await first_spec(server, http, *split) for split in tasks.items()] if task_tools is None else []
    name = environment_name(server.deployment.rpartition("/")[2] or server.environment, _FALLBACK_NAME)
    if task_tools is None:
        task_tools = await _has_task_tools(server, [spec for spec in firsts if spec is not None], listing)
    elif task_tools:
        # A session of a task needs its secrets now, and not only in episodes.
        server.session_headers({})
    if not listing and not task_tools:
        raise UpstreamLost("the environment has no tools")
    return _Look(server, name, listing, tasks, task_tools)


async def _environment(http: UpstreamHttp, server: OrsServer) -> str:
    """The name of the environment in paths; empty if the server does not tell the names of its environments."""
    names: Any = await http.get("/list_environments")
    if names is None:
        return server.environment
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in cast("list[Any]", names)):
        http.unexpected("/list_environments", "is no list of names")
    known = cast("list[str]", names)
    if not server.environment:
        return known[0]
    found = next((name for name in known if name.lower() == server.environment.lower()), None)
    if found is None:
        raise InvalidOption(f"the {WHAT} has no environment {server.environment!r}; it has: {', '.join(known)}")
    return found


async def _tasks(http: UpstreamHttp, base: str, split: str) -> SplitTasks:
    number = await number_of_tasks(http, base, split)
    # Servers of the first version of the standard have no numbers, only lists.
    return tuple(await all_tasks(http, base, split)) if number is None else number


async def _has_task_tools(server: OrsServer, specs: Sequence[Any], listing: OrsListing) -> bool:
    try:
        server.session_headers({})
    except InvalidOption:
        # A secret that only episodes have. If tasks have tools of their own after all, an episode says so.
        return False
    for spec in specs:
        if await tools_of_task(server, {"task_spec": spec}) != listing:
            return True
    return False
