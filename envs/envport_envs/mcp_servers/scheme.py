"""The scheme `mcp:`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import anyio

from envport.errors import ConfigurationError, InvalidOption, UpstreamLost
from envport.registry import EnvironmentDefinition
from envport_envs.mcp_servers.connection import Upstream
from envport_envs.mcp_servers.environment import McpEnvironment, McpTaskToolsEnvironment
from envport_envs.mcp_servers.scoring import require_score
from envport_envs.mcp_servers.sources import Address, Command, EpisodeFolders
from envport_envs.mcp_servers.tasks import Splits, TaskEntry, read_tasks

__all__ = ["mcp"]

_LOOK_SECONDS = 60.0
_FALLBACK_NAME = "mcp"


async def mcp(
    rest: str,
    /,
    *,
    tasks: Path | None = None,
    tools: list[str] | None = None,
    sandbox: bool = True,
    network: bool = False,
    reads: list[str] | None = None,
    variables: list[str] | None = None,
    headers: dict[str, str] | None = None,
    ends: bool = False,
    era: Literal["session", "newest"] = "session",
) -> EnvironmentDefinition:
    """Any MCP server: `mcp:"COMMAND ..."` or `mcp:URL`.

    Args:
        rest: A command that starts a server that speaks over standard input and output, or the URL of a server.
            Placeholders: `{seed}`, in a command also `{folder}` and, as its program, `{python}`.
        tasks: The task file; see `envport_envs.mcp_servers.tasks`.
        tools: The tools that are shown, in this order; all if not given.
        sandbox: Whether a command runs in a sandbox of its own, without network.
        network: Whether it has this machine's network in its sandbox.
        reads: Files and folders that it may read in its sandbox, beside its program.
        variables: Names of environment variables that a command sees, or that placeholders of an address may name.
        headers: HTTP headers for an address. `{NAME}` stands for a secret, or for one of `variables`.
        ends: Whether the end of a command during an episode ends the episode as it is, and is no fault: for servers
            whose tools run what the player writes.
        era: What an address is asked for: a session, as revisions up to 2025-11-25 have it, where the server grants
            one; or the newest revision, in which a server has no sessions.

    Raises:
        ConfigurationError: The server does not start, cannot be reached, or has no tools; the message has its last
            words. Or the task file is malformed.
        InvalidOption: An option does not belong to a command, or not to an address.
    """
    at_address = re.match("https?://", rest, re.IGNORECASE) is not None
    _refuse_foreign(at_address, sandbox=sandbox, network=network, reads=reads, headers=headers, ends=ends, era=era)
    file = await anyio.to_thread.run_sync(partial(_tasks, tasks, has_folder=not at_address, sandbox=sandbox))
    passed = tuple(variables or ())
    if at_address:
        source: Command | Address = Address(rest, tuple((headers or {}).items()), passed)
        look = await _looked_at_address(source, era)
    else:
        command = await anyio.to_thread.run_sync(Command.parse, rest)
        source = replace(
            command, variables=passed, sandbox=sandbox, network=network, reads=tuple(reads or ()), ends=ends
        )
        await anyio.to_thread.run_sync(source.require)
        look = await _looked(source)
    listing = _chosen(look.listing, tools)
    entries = [entry for entries in file.splits.values() for entry in entries]
    for entry in entries:
        _require_tools(f"{tasks}, task {entry.id!r}", entry.tools or (), [tool["name"] for tool in listing])
    unshown = {
        "source": look.source,
        "listing": listing,
        "told": look.told,
        "tasks": file.splits,
        "tasks_folder": file.folder,
    }
    shown = {"server": _shown(rest), **({"content": file.content} if file.content else {})}
    made = McpTaskToolsEnvironment if any(entry.tools for entry in entries) else McpEnvironment
    return EnvironmentDefinition(_name(rest), made, shown, unshown)


@dataclass(frozen=True)
class _TaskFile:
    """A task file that was read.

    Attributes:
        splits: Its tasks.
        folder: The folder that holds it.
        content: SHA-256 of it; empty if there is none.
    """

    splits: Splits = field(default_factory=dict[str, tuple[TaskEntry, ...]])
    folder: str = ""
    content: str = ""


@dataclass(frozen=True)
class _Look:
    """What a server said of itself.

    Attributes:
        source: The server, and how it was connected to.
        listing: Its tools.
        told: Its instructions.
    """

    source: Command | Address
    listing: list[dict[str, Any]]
    told: str


async def _looked(source: Command | Address) -> _Look:
    folders = EpisodeFolders.make()
    try:
        with anyio.fail_after(_LOOK_SECONDS):
            upstream = await Upstream.open(source, folders, 0, {})
            try:
                return _Look(source, await upstream.tools(), upstream.instructions)
            finally:
                await upstream.close()
    except UpstreamLost as error:
        raise ConfigurationError(str(error)) from None
    except TimeoutError:
        raise ConfigurationError(f"the MCP server did not list its tools within {_LOOK_SECONDS:g} s") from None
    finally:
        folders.remove()


async def _looked_at_address(address: Address, era: str) -> _Look:
    if era == "newest":
        return await _looked(address)
    try:
        return await _looked(replace(address, era="legacy"))
    except ConfigurationError as refused:
        try:
            return await _looked(address)
        except ConfigurationError:
            raise refused from None


def _refuse_foreign(at_address: bool, **given: Any) -> None:
    """Refuse options of the other kind of server."""
    usual: dict[str, Any] = {"sandbox": True, "network": False, "reads": None, "ends": False}
    if not at_address:
        usual = {"headers": None, "era": "session"}
    for name, value in usual.items():
        if given[name] != value:
            kind, other = ("an address", "a command") if at_address else ("a command", "an address")
            raise InvalidOption(f"scheme 'mcp': the option {name} is for {other}, and this is {kind}")
    if given["network"] and not given["sandbox"]:
        raise InvalidOption("scheme 'mcp': without a sandbox, a server has the network: give only sandbox=false")


def _chosen(listing: list[dict[str, Any]], tools: Sequence[str] | None) -> list[dict[str, Any]]:
    by_name = {tool["name"]: tool for tool in listing}
    if not by_name:
        raise ConfigurationError("the MCP server has no tools")
    if tools is None:
        return listing
    _require_tools("the option tools", tools, [*by_name])
    return [by_name[name] for name in tools]


def _require_tools(where: str, tools: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [name for name in tools if name not in known]:
        raise ConfigurationError(f"{where} names the tool {unknown[0]!r}; the server's tools are: {', '.join(known)}")


def _tasks(file: Path | None, *, has_folder: bool, sandbox: bool) -> _TaskFile:
    """The tasks, checked but for the tools that they name."""
    if file is None:
        return _TaskFile()
    splits, folder = read_tasks(file), str(file.resolve().parent)
    for entry in (entry for entries in splits.values() for entry in entries):
        where = f"{file}, task {entry.id!r}"
        if not has_folder and (entry.files or entry.folder):
            raise ConfigurationError(f"{where}: a server at an address has no working folder for files")
        if entry.score is not None:
            require_score(where, entry.score, has_folder=has_folder, sandbox=sandbox, tasks=folder)
    return _TaskFile(splits, folder, hashlib.sha256(file.read_bytes()).hexdigest())


def _name(rest: str) -> str:
    """A name for the environment: that of the package, the program or the host."""
    if (parts := urlsplit(rest)).hostname:
        words = [parts.hostname]
    else:
        words = [word for word in rest.split() if not word.startswith(("-", "{")) and word not in ("npx", ".")]
    plain = [re.sub("[^A-Za-z0-9._-]+", "-", Path(word).stem).strip("-._") for word in words]
    return next((name[:64] for name in plain if name and not name.startswith("python")), _FALLBACK_NAME)


def _shown(rest: str) -> str:
    """The server as everybody may see it: an address without keys that may be in it."""
    parts = urlsplit(rest)
    if not parts.hostname:
        return rest
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
