"""`envport serve`."""

from __future__ import annotations

import logging
import os
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from envport.app import Gateway
from envport.cli import console
from envport.cli.attachment import Attachment, envport_command
from envport.cli.groups import grouped
from envport.cli.loading import Unloadable, load_served
from envport.cli.serve_file import file_option
from envport.cli.serve_options import (
    SERVE_GROUPS,
    STORE_VARIABLE,
    AccessOptions,
    AddressOptions,
    AuthorOptions,
    CapacityOptions,
    ClusterOptions,
    LoggingOptions,
    ScoringOptions,
    StoreOptions,
    SurfaceOptions,
    settings_of,
)
from envport.cli.summary import first_line
from envport.definition import EnvironmentDefinition
from envport.environment_file import EnvironmentFile
from envport.errors import ConfigurationError
from envport.serving import Beside, Service
from envport.telemetry.exporting import exporting_traces
from envport.telemetry.logs import LogFormat, configure_logging

__all__ = ["serve"]

logger = logging.getLogger(__name__)

_EXPOSED = "there are no tokens. Whoever reaches this address may play and control everything."


@grouped
def serve(
    references: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REFERENCE",
            help="What to serve: installed NAMEs, ./path/file.py:Class, package.module:Class or scheme:rest. "
            "Options follow a question mark ('catch?rows=8'), another name comes first ('small=catch?rows=5'). "
            "If none is given, everything in the file of --config, or else everything that is installed.",
        ),
    ] = None,
    config: Annotated[Path | None, file_option(*SERVE_GROUPS)] = None,
    *,
    address: AddressOptions,
    surfaces: SurfaceOptions,
    access: AccessOptions,
    scoring: ScoringOptions,
    capacity: CapacityOptions,
    cluster: ClusterOptions,
    store: StoreOptions,
    logs: LoggingOptions,
    authors: AuthorOptions,
) -> None:
    """Serve environments over MCP and HTTP, each session in an episode of its own.

    Without tokens, only this machine can reach the gateway.
    """
    configure_logging(logs.log_level, logs.log_format, ends=logs.ends)
    file = EnvironmentFile.read(config) if config is not None else None
    specs, unloadable = load_served(references or (), file, scoring.score)
    settings = settings_of(address, surfaces, access, capacity, cluster, store, logs, authors)
    with exporting_traces(os.environ):
        service = Service(settings, [spec for _, spec in specs], os.environ)
        beside = _reloader(service.gateway, specs, scoring.score) if authors.reload else None
        service.run(lambda: _greet(service, unloadable, logs.log_format, config), beside)
    # Start a new line: the terminal shows ^C on the current one.
    console.line("\nStopped.", "dim")


def _reloader(gateway: Gateway, specs: list[tuple[str, EnvironmentDefinition]], score: str | None) -> Beside:
    # Imported only here: what watches files is an extra.
    from envport.cli.reloading import Reloader, Watched

    reloader = Reloader(gateway, [Watched.of(reference, spec) for reference, spec in specs], score)
    if not reloader.folders:
        raise ConfigurationError(
            "--reload has nothing to watch: what is served is installed, and not in a folder of your own"
        )
    logger.info("environments are loaded again when files change below: %s", ", ".join(map(str, reloader.folders)))
    return reloader.start


def _greet_store(service: Service) -> None:
    if (place := service.store_place) is None:
        return
    console.heading("Look at the episodes, which are recorded as they happen:")
    if "://" in place:
        console.line(f"  {STORE_VARIABLE}=... {envport_command()} episodes list", "cyan")
        console.line(f"The store is {place}.", "dim")
        return
    console.command(envport_command(), "episodes", "list", "--store", place)
    if service.settings.store.where is None:
        console.line("This folder is a temporary one: choose your own with --store.", "dim")


def _greet(service: Service, unloadable: list[Unloadable], log_format: LogFormat, file: Path | None) -> None:
    """Print what is served and what to do next."""
    environments = service.gateway.table.environments
    url, secured = service.url, service.gateway.access.required
    count = f"{len(environments)} environment{'s' if len(environments) != 1 else ''}"
    console.heading(f"envport {version('envport')} serves {count} at {url}")
    if file is not None and file != Path(os.devnull):
        console.line(f"Read {file}.", "dim")
    console.rows((name, first_line(spec.description)) for name, spec in environments.items())
    if unloadable:
        console.line()
        console.heading("Not served:")
        console.rows(((it.name, it.why) for it in unloadable), style="yellow")
    name = next(iter(environments))
    console.line()
    program = envport_command()
    console.heading(f"Attach Claude Code (for other clients: {shlex.join([program, 'attach', 'NAME', '--url', url])}):")
    console.command(*Attachment.to(url, name, with_token=secured).claude_code)
    console.heading("Play by hand, in another terminal:")
    console.command(program, "play", name, "--url", url)
    if service.settings.page():
        console.heading("Look at environments and episodes, and play, in a browser:")
        console.line(f"  {url}/", "cyan")
    console.heading("Open episodes from a program:")
    console.line(f"  {url}/docs", "cyan")
    if service.settings.root_surface == "ors":
        console.heading("Play with the client of the Open Reward Standard:")
        console.line(f"  OPENREWARD_SESSION_URL={url} OPENREWARD_API_URL={url}", "cyan")
    if service.settings.root_surface == "nemo_gym":
        console.heading("Host and port of the resources server, for the configuration of NeMo Gym:")
        console.line(f"  {url}", "cyan")
    _greet_store(service)
    if secured:
        console.line("Every request needs a token; clients take it from the variable ENVPORT_TOKEN.")
    else:
        planes = "An agent too may open and reset episodes, and read rewards: without tokens, the two planes are one."
        if not service.exposed:
            console.line(f"There are no tokens. {planes}")
        elif log_format is LogFormat.JSON:
            logger.warning("%s %s", _EXPOSED, planes)
        else:
            console.note(f"Warning: {_EXPOSED} {planes}")
    console.line("Stop with Ctrl-C.", "dim")
