"""`envport serve`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from envport.cli import console
from envport.cli.attachment import Attachment
from envport.cli.loading import Unloadable, load_environment, load_installed
from envport.cli.summary import first_line
from envport.episodes import Limits
from envport.errors import ConfigurationError
from envport.serving import RaySettings, Service, Settings
from envport.telemetry.exporting import exporting_traces
from envport.telemetry.logs import LogFormat, LogLevel, configure_logging

__all__ = ["serve"]

logger = logging.getLogger(__name__)

_ACCESS, _LIMITS, _CLUSTER = "Access", "Limits", "Cluster"
_DEFAULTS = Limits()


class RuntimeOption(Enum):
    """The runtime for the environments."""

    INLINE = "inline"
    THREAD = "thread"
    PROCESS = "process"
    RAY = "ray"


def serve(
    references: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REFERENCE",
            help="What to serve: installed NAMEs, ./path/file.py:Class or package.module:Class. Options follow a "
            "question mark ('catch?rows=8'), another name comes first ('small=catch?rows=5'). "
            "Everything that is installed, if nothing is given.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Name or address to bind to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind to; 0 for a free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file with a [[tokens]] table for each token: name, scopes (control, play, metrics), and "
            "token or sha256. "
            "A single token can come from ENVPORT_TOKEN instead.".replace("[", r"\["),
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated",
            help="Let other machines in without tokens: whoever reaches the gateway may do everything.",
            rich_help_panel=_ACCESS,
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Host name that clients may call the gateway by, beside the one it is bound to; '*' for any. "
            "May be repeated.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Origin of web pages that may call the gateway, such as https://app.example.com. May be repeated.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Address as clients see it, if a proxy stands in front.", rich_help_panel=_ACCESS
        ),
    ] = None,
    max_episodes: Annotated[
        int, typer.Option(min=1, help="Live episodes in all.", rich_help_panel=_LIMITS)
    ] = _DEFAULTS.max_episodes,
    max_episodes_per_principal: Annotated[
        int | None,
        typer.Option(min=1, help="Live episodes of one principal; no limit if not given.", rich_help_panel=_LIMITS),
    ] = _DEFAULTS.max_episodes_per_principal,
    max_episodes_per_environment: Annotated[
        int | None,
        typer.Option(
            min=1, help="Live episodes of one environment; as each declares if not given.", rich_help_panel=_LIMITS
        ),
    ] = _DEFAULTS.max_episodes_per_environment,
    max_episodes_of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="The same for the environment of that name. May be repeated.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    idle_seconds: Annotated[
        float, typer.Option(min=1, help="An episode expires after so long without a call.", rich_help_panel=_LIMITS)
    ] = _DEFAULTS.idle_seconds,
    wait_seconds: Annotated[
        float, typer.Option(min=0, help="How long a request waits for room when all is full.", rich_help_panel=_LIMITS)
    ] = _DEFAULTS.wait_seconds,
    runtime: Annotated[
        RuntimeOption | None,
        typer.Option(
            help="How environments are run: in the event loop, in threads, each episode in a process of its own, "
            "or that on the machines of a Ray cluster. Each as it declares, if not given.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The cluster for --runtime ray: HOST:PORT; auto for one on this machine; local to start one.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    ray_namespace: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What tells this gateway from others in the cluster; all replicas of one have the same.",
            rich_help_panel=_CLUSTER,
        ),
    ] = RaySettings.namespace,
    ray_resource: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run environments only on nodes that have some of this custom resource.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="How long episodes may be played on after SIGTERM, while new ones are refused. Ctrl-C does not wait "
            "for them.",
            rich_help_panel=_LIMITS,
        ),
    ] = Settings.drain_seconds,
    shutdown_seconds: Annotated[
        int,
        typer.Option(
            min=1, help="How long running calls may take to end when the gateway is stopped.", rich_help_panel=_LIMITS
        ),
    ] = Settings.shutdown_seconds,
    log_level: Annotated[
        LogLevel, typer.Option(help="Least severe messages to log, to standard error; debug logs every request.")
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines for people, or a JSON object on each line for programs.")
    ] = LogFormat.TEXT,
) -> None:
    """Serve environments over MCP and HTTP, each session in an episode of its own.

    Without tokens, only this machine can reach the gateway.
    """
    configure_logging(log_level, log_format)
    specs, unloadable = load_installed() if not references else ([load_environment(it) for it in references], [])
    settings = Settings(
        host=host,
        port=port,
        token_file=token_file,
        allow_unauthenticated=allow_unauthenticated,
        allowed_hosts=tuple(allowed_host or ()),
        allowed_origins=tuple(allowed_origin or ()),
        public_url=public_url,
        limits=Limits(
            max_episodes=max_episodes,
            max_episodes_per_principal=max_episodes_per_principal,
            max_episodes_per_environment=max_episodes_per_environment,
            max_episodes_of=_by_name(max_episodes_of or ()),
            idle_seconds=idle_seconds,
            wait_seconds=wait_seconds,
        ),
        runtime=runtime.value if runtime is not None and runtime is not RuntimeOption.RAY else None,
        ray=_ray(runtime, ray_address, ray_namespace, ray_resource),
        access_log=log_level is LogLevel.DEBUG,
        drain_seconds=drain_seconds,
        shutdown_seconds=shutdown_seconds,
    )
    with exporting_traces(os.environ):
        service = Service(settings, specs, os.environ)
        service.run(lambda: _greet(service, unloadable, log_format))
    # Start a new line: the terminal shows ^C on the current one.
    console.line("\nStopped.", "dim")


def _ray(
    runtime: RuntimeOption | None, address: str | None, namespace: str, resource: str | None
) -> RaySettings | None:
    if runtime is RuntimeOption.RAY:
        if address is None:
            raise ConfigurationError("--runtime ray needs --ray-address: HOST:PORT, auto, or local to try it out")
        return RaySettings(address, namespace, resource)
    if address is not None or resource is not None:
        raise ConfigurationError("--ray-address and --ray-resource are for --runtime ray")
    return None


def _by_name(said: Iterable[str]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for words in said:
        name, _, number = words.partition("=")
        if not name or not number.isascii() or not number.isdigit() or int(number) < 1:
            raise typer.BadParameter(
                f"{words!r} has to be NAME=N, with a whole number from 1", param_hint="--max-episodes-of"
            )
        if name in limits:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--max-episodes-of")
        limits[name] = int(number)
    return limits


def _greet(service: Service, unloadable: list[Unloadable], log_format: LogFormat) -> None:
    """Print what is served and what to do next."""
    environments = service.gateway.table.environments
    url, secured = service.url, service.gateway.access.required
    count = f"{len(environments)} environment{'s' if len(environments) != 1 else ''}"
    console.heading(f"envport {version('envport')} serves {count} at {url}")
    console.rows((name, first_line(spec.description)) for name, spec in environments.items())
    if unloadable:
        console.line()
        console.heading("Not served:")
        console.rows(((it.name, it.why) for it in unloadable), style="yellow")
    name = next(iter(environments))
    console.line()
    console.heading("Attach Claude Code (for other clients: envport attach NAME):")
    console.command(*Attachment.to(url, name, with_token=secured).claude_code)
    console.heading("Play by hand, in another terminal:")
    console.command("envport", "play", name, "--url", url)
    console.heading("Open episodes from a program:")
    console.line(f"  {url}/docs", "cyan")
    if secured:
        console.line("Every request needs a token; clients take it from the variable ENVPORT_TOKEN.")
    if service.exposed:
        warning = "there are no tokens. Whoever reaches this address may play and control everything."
        if log_format is LogFormat.JSON:
            logger.warning(warning)
        else:
            console.note(f"Warning: {warning}")
    console.line("Stop with Ctrl-C.", "dim")
