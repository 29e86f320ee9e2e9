"""The options of `envport serve`, and the settings that they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from envport.cli.groups import OptionGroup
from envport.episodes import Limits
from envport.errors import ConfigurationError
from envport.serve_settings import RaySettings, Settings, StoreSettings
from envport.telemetry.logs import LogFormat, LogLevel
from envport.trajectories import Retention

__all__ = [
    "SERVE_GROUPS",
    "STORE_VARIABLE",
    "AccessOptions",
    "AddressOptions",
    "AuthorOptions",
    "CapacityOptions",
    "ClusterOptions",
    "LoggingOptions",
    "ScoringOptions",
    "StoreOptions",
    "SurfaceOptions",
    "settings_of",
]

STORE_VARIABLE = "ENVPORT_STORE"
"""The variable that says where episodes are recorded."""

_DEFAULTS = Limits()


class RuntimeOption(Enum):
    """The runtime for the environments."""

    INLINE = "inline"
    THREAD = "thread"
    PROCESS = "process"
    RAY = "ray"


@dataclass(frozen=True)
class AddressOptions(OptionGroup):
    """Where the gateway listens."""

    host: Annotated[str, typer.Option(help="Name or address to bind to.")] = Settings.host
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind to; 0 for a free one.")] = Settings.port


@dataclass(frozen=True)
class SurfaceOptions(OptionGroup):
    """Whether there is a page for people, and which further protocol is spoken at the root."""

    ui: Annotated[
        bool | None,
        typer.Option(
            "--ui/--no-ui",
            help="Show browsers a page at /, to look at environments and episodes and to play. By default, if only "
            "this machine can reach the gateway and the extra ui is installed.",
            show_default=False,
        ),
    ] = Settings.ui
    ors: Annotated[
        bool,
        typer.Option(
            "--ors",
            help="Serve all environments at the root too, as a server of the Open Reward Standard: its clients know no "
            "path.",
        ),
    ] = False
    nemo_gym: Annotated[
        bool,
        typer.Option(
            "--nemo-gym",
            help="Serve all environments at the root too, as a resources server of NeMo Gym: its agents know no path.",
        ),
    ] = False

    @property
    def root_surface(self) -> str | None:
        """Name of the surface at the root.

        Raises:
            ConfigurationError: There are two.
        """
        if self.ors and self.nemo_gym:
            raise ConfigurationError("--ors and --nemo-gym both want the root: choose one, or start a gateway for each")
        return "ors" if self.ors else "nemo_gym" if self.nemo_gym else None


@dataclass(frozen=True)
class LoggingOptions(OptionGroup):
    """What the gateway logs."""

    log_level: Annotated[
        LogLevel, typer.Option(help="Least severe messages to log, to standard error; debug logs every request.")
    ] = LogLevel.INFO
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines for people, or a JSON object on each line for programs.")
    ] = LogFormat.TEXT
    log_ends: Annotated[
        bool | None,
        typer.Option(
            "--log-ends/--no-log-ends",
            help="Log each episode that ended as usual. By default, only with --log-format json.",
            show_default=False,
        ),
    ] = None

    @property
    def ends(self) -> bool:
        """Whether episodes that ended as usual are logged."""
        return self.log_ends if self.log_ends is not None else self.log_format is LogFormat.JSON


@dataclass(frozen=True)
class AccessOptions(OptionGroup):
    """Who may reach the gateway."""

    title = "Access"

    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file with a [[tokens]] table for each token: name, scopes (control, play, read, metrics), and "
            "token or sha256. "
            "A single token can come from ENVPORT_TOKEN instead.".replace("[", r"\["),
        ),
    ] = None
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated",
            help="Let other machines in without tokens: whoever reaches the gateway may do everything.",
        ),
    ] = False
    allowed_host: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="NAME",
            help="Host name that clients may call the gateway by, beside the one it is bound to; '*' for any. "
            "May be repeated.",
        ),
    ] = ()
    allowed_origin: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="ORIGIN",
            help="Origin of web pages that may call the gateway, such as https://app.example.com. May be repeated.",
        ),
    ] = ()
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address as clients see it, if a proxy stands in front.")
    ] = None


@dataclass(frozen=True)
class StoreOptions(OptionGroup):
    """Where episodes are recorded, and how long they are kept."""

    title = "Trajectories"

    store: Annotated[
        str | None,
        typer.Option(
            envvar=STORE_VARIABLE,
            metavar="WHERE",
            help="Where every episode is recorded: a folder, or postgresql://USER:PASSWORD@HOST/NAME. 'memory' keeps "
            "the latest ones only, as long as the gateway runs. A temporary folder, if not given.",
        ),
    ] = StoreSettings.where
    keep_days: Annotated[
        float | None, typer.Option(min=0, help="Days after its end until an episode is deleted. Never, if not given.")
    ] = None
    keep_gib: Annotated[
        float | None,
        typer.Option(min=0, help="GiB of trajectories to keep; the oldest are deleted. No limit, if not given."),
    ] = None
    resume_episodes: Annotated[
        bool,
        typer.Option(
            "--resume-episodes",
            help="Go on with the episodes that were live when the gateway stopped, if their environments have "
            "snapshot() and restore(), or are deterministic. Needs --store.",
        ),
    ] = StoreSettings.resume


@dataclass(frozen=True)
class ScoringOptions(OptionGroup):
    """How episodes are scored."""

    score: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION",
            help="package.module:function or ./file.py:function that scores the final state of every episode, in place "
            "of the environment's own score().",
        ),
    ] = None


@dataclass(frozen=True)
class CapacityOptions(OptionGroup):
    """How many episodes run, for how long, and how they are run."""

    title = "Limits"

    max_episodes: Annotated[int, typer.Option(min=1, help="Maximum number of live episodes.")] = _DEFAULTS.max_episodes
    max_episodes_per_principal: Annotated[
        int | None, typer.Option(min=1, help="Maximum of one principal; no limit if not given.")
    ] = _DEFAULTS.max_episodes_per_principal
    max_episodes_per_environment: Annotated[
        int | None, typer.Option(min=1, help="Maximum of one environment; as each declares if not given.")
    ] = _DEFAULTS.max_episodes_per_environment
    max_episodes_of: Annotated[
        tuple[str, ...],
        typer.Option(metavar="NAME=N", help="Maximum of the environment with that name. May be repeated."),
    ] = ()
    idle_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds without a call after which an episode expires.")
    ] = _DEFAULTS.idle_seconds
    wait_seconds: Annotated[float, typer.Option(min=0, help="Seconds that a request waits for a free place.")] = (
        _DEFAULTS.wait_seconds
    )
    runtime: Annotated[
        RuntimeOption | None,
        typer.Option(
            help="Where episodes run: in the event loop, in threads, in a process each, or in processes on a Ray "
            "cluster. As each environment declares, if not given.",
        ),
    ] = None
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds for which open episodes may still be played after SIGTERM. New ones are refused. Ctrl-C "
            "does not wait for them.",
        ),
    ] = Settings.drain_seconds
    shutdown_seconds: Annotated[
        int, typer.Option(min=1, help="Seconds that running calls have to end when the gateway stops.")
    ] = Settings.shutdown_seconds
    end_with_input: Annotated[
        bool,
        typer.Option(
            "--end-with-input",
            help="Stop when standard input ends. A program that starts the gateway with a pipe leaves none behind, "
            "even if it is killed.",
        ),
    ] = Settings.end_with_input


@dataclass(frozen=True)
class AuthorOptions(OptionGroup):
    """What helps whoever writes an environment, or looks for a cause."""

    title = "For authors"

    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="Load an environment again when its files change. New episodes are of the new one; those that run go "
            "on with the old one.",
        ),
    ] = Settings.reload
    sdk_only: Annotated[
        bool,
        typer.Option(
            "--sdk-only",
            help="Have the MCP SDK answer every message. By default, the gateway answers the frequent ones itself, "
            "which is faster.",
        ),
    ] = Settings.sdk_only


@dataclass(frozen=True)
class ClusterOptions(OptionGroup):
    """Which Ray cluster runs the environments."""

    title = "Cluster"

    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The cluster for --runtime ray: HOST:PORT; auto for one on this machine; local to start one.",
        ),
    ] = None
    ray_namespace: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Namespace of this gateway in the cluster; the same for all its replicas.",
        ),
    ] = RaySettings.namespace
    ray_resource: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run environments only on nodes that have some of this custom resource.",
        ),
    ] = None


SERVE_GROUPS = (
    AddressOptions,
    SurfaceOptions,
    LoggingOptions,
    AccessOptions,
    CapacityOptions,
    ClusterOptions,
    StoreOptions,
    ScoringOptions,
    AuthorOptions,
)
"""The groups of options that a file may fill."""


def settings_of(
    address: AddressOptions,
    surfaces: SurfaceOptions,
    access: AccessOptions,
    capacity: CapacityOptions,
    cluster: ClusterOptions,
    store: StoreOptions,
    logs: LoggingOptions,
    authors: AuthorOptions,
) -> Settings:
    """The gateway's settings.

    Raises:
        ConfigurationError: The options contradict each other.
    """
    runtime = capacity.runtime
    if authors.reload and runtime is RuntimeOption.RAY:
        raise ConfigurationError("--reload does not work with --runtime ray: choose another runtime while you write")
    return Settings(
        host=address.host,
        port=address.port,
        token_file=access.token_file,
        allow_unauthenticated=access.allow_unauthenticated,
        allowed_hosts=access.allowed_host,
        allowed_origins=access.allowed_origin,
        public_url=access.public_url,
        limits=Limits(
            max_episodes=capacity.max_episodes,
            max_episodes_per_principal=capacity.max_episodes_per_principal,
            max_episodes_per_environment=capacity.max_episodes_per_environment,
            max_episodes_of=_by_name(capacity.max_episodes_of),
            idle_seconds=capacity.idle_seconds,
            wait_seconds=capacity.wait_seconds,
        ),
        runtime=runtime.value if runtime is not None and runtime is not RuntimeOption.RAY else None,
        ray=_ray(runtime, cluster),
        access_log=logs.log_level is LogLevel.DEBUG,
        drain_seconds=capacity.drain_seconds,
        shutdown_seconds=capacity.shutdown_seconds,
        end_with_input=capacity.end_with_input,
        reload=authors.reload,
        sdk_only=authors.sdk_only,
        store=StoreSettings(store.store, Retention(store.keep_days, store.keep_gib), store.resume_episodes),
        root_surface=surfaces.root_surface,
        ui=surfaces.ui,
    )


def _ray(runtime: RuntimeOption | None, cluster: ClusterOptions) -> RaySettings | None:
    if runtime is RuntimeOption.RAY:
        if cluster.ray_address is None:
            raise ConfigurationError("--runtime ray needs --ray-address: HOST:PORT, auto, or local to try it out")
        return RaySettings(cluster.ray_address, cluster.ray_namespace, cluster.ray_resource)
    if cluster.ray_address is not None or cluster.ray_resource is not None:
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
