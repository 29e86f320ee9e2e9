"""The settings of a gateway's server."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from envport.access import Access, HostPolicy, is_loopback
from envport.environment import RuntimeKind
from envport.episodes import Limits
from envport.errors import ConfigurationError, InvalidAccess, MissingExtra
from envport.trajectories import MemoryTrajectories, Retention, TrajectoryStore
from envport.trajectories.token_secret import kept_secret
from envport.web import page_is_installed

if TYPE_CHECKING:
    from envport.trajectories.database_archive import DatabaseArchive

__all__ = ["MEMORY", "RaySettings", "Settings", "StoreSettings", "host_of"]

_EVERY_ADDRESS = ("0.0.0.0", "::", "")


@dataclass(frozen=True)
class RaySettings:
    """Which Ray cluster runs the environments.

    Attributes:
        address: Address of the cluster; `auto` for a cluster that runs on this machine, `local` to start one for this
            process alone.
        namespace: Separates this gateway from others in the cluster. Its replicas use the same namespace.
        resource: Custom resource that a node needs to run environments. If not given, all nodes run them.
    """

    address: str
    namespace: str = "envport"
    resource: str | None = None


MEMORY = "memory"
"""The trajectory store that keeps only the latest episodes, in memory."""


@dataclass(frozen=True)
class StoreSettings:
    """Where episodes are recorded, and how long they are kept.

    Attributes:
        where: A folder, the URL of a PostgreSQL database, or `memory`. If not given, a new temporary folder.
        retention: How long ended episodes are kept.
        resume: Whether episodes that are live when the gateway stops go on when it is started again.
    """

    where: str | None = None
    retention: Retention = field(default_factory=Retention)
    resume: bool = False

    def open(self) -> TrajectoryStore:
        """Open the store.

        Raises:
            ConfigurationError: It cannot be opened, or a newer version of envport wrote it.
        """
        if self.resume and self.where in (None, MEMORY):
            raise ConfigurationError(
                "--resume-episodes needs --store with a folder or a database, in which the next gateway finds them"
            )
        if self.where == MEMORY:
            return MemoryTrajectories()
        # Imported only here: SQLAlchemy takes a quarter of a second.
        from envport.trajectories.recorder import DatabaseTrajectories

        where = self.where or mkdtemp(prefix="envport-")
        return DatabaseTrajectories(where, retention=self.retention, resumes=self.resume)

    def secret(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """The environment variables with the secret that signs the tokens of single episodes, if they are to go on.

        It is kept beside a SQLite database, so that these tokens are valid after a restart.

        Args:
            environ: The process's environment variables.

        Raises:
            ConfigurationError: It can be kept nowhere, and is not given.
        """
        if not self.resume or self.where is None or "ENVPORT_SECRET" in environ:
            return environ
        if "://" in self.where:
            raise ConfigurationError(
                "--resume-episodes with PostgreSQL needs the variable ENVPORT_SECRET, the same after each restart: it "
                "signs the tokens of single episodes"
            )
        return {**environ, "ENVPORT_SECRET": kept_secret(Path(self.where).expanduser())}

    def open_shared(self) -> DatabaseArchive | None:
        """Open the store to look up what the hosts of a cluster record; `None` if they keep the latest in memory.

        Raises:
            ConfigurationError: It is on this machine only, or cannot be opened.
        """
        if self.where is None or self.where == MEMORY:
            return None
        if "://" not in self.where:
            raise ConfigurationError(
                "the hosts of a cluster cannot write to a folder of this machine: with --runtime ray, --store takes "
                "the URL of a PostgreSQL database"
            )
        from envport.trajectories.database import Database
        from envport.trajectories.database_archive import DatabaseArchive

        return DatabaseArchive(Database(self.where))


@dataclass(frozen=True)
class Settings:
    """Settings of a gateway's server.

    Attributes:
        host: Name or address to bind to.
        port: Port to bind to; 0 for a free one.
        token_file: TOML file with the tokens; see `Access.load`.
        allow_unauthenticated: Whether a gateway without tokens may be reached from other machines.
        allowed_hosts: Names in `Host` headers that are answered, in addition to the one that is bound to.
        allowed_origins: Origins of web pages that are answered, in addition to those of the allowed hosts.
        public_url: Address as clients see it, if the gateway is behind a proxy.
        limits: Limits on episodes.
        runtime: The runtime for all environments. If not given, each runs in the runtime that it declares.
        ray: The Ray cluster that runs the environments, if there is one.
        access_log: Whether every request is logged.
        drain_seconds: How long open episodes may still be played after SIGTERM, while new ones are refused. With
            the defaults, the whole shutdown takes less than 30 s, after which Kubernetes kills the process.
        shutdown_seconds: Seconds that running calls have to end when the gateway stops. After this time, they
            are cancelled. After twice this time, the process ends without the calls that could not be cancelled.
        end_with_input: Whether the gateway stops when standard input ends.
        reload: Whether environments may be replaced while it serves.
        sdk_only: Whether the MCP SDK answers every message; see `Gateway`.
        store: Where episodes are recorded.
        root_surface: Name of the surface that serves every path that is nobody else's; see `envport.surfaces`.
        ui: Whether browsers get the page of `envport.web`. If not given, they do if only this machine can reach the
            gateway and the extra `ui` is installed.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token_file: Path | None = None
    allow_unauthenticated: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    public_url: str | None = None
    limits: Limits = field(default_factory=Limits)
    runtime: RuntimeKind | None = None
    ray: RaySettings | None = None
    access_log: bool = False
    drain_seconds: float = 15.0
    shutdown_seconds: int = 5
    end_with_input: bool = False
    reload: bool = False
    sdk_only: bool = False
    store: StoreSettings = field(default_factory=StoreSettings)
    root_surface: str | None = None
    ui: bool | None = None

    def access(self, environ: Mapping[str, str]) -> Access:
        """Load the tokens, and check that a gateway without tokens is not exposed.

        Args:
            environ: The process's environment variables.

        Raises:
            InvalidAccess: The tokens are unusable, or other machines could reach a gateway without tokens.
        """
        access = Access.load(environ, self.token_file)
        if access.required or self.allow_unauthenticated:
            return access
        cure = "give it tokens (--token-file, or ENVPORT_TOKEN), or say --allow-unauthenticated"
        if not is_loopback(self.host):
            where = "every address" if self.host in _EVERY_ADDRESS else self.host
            raise InvalidAccess(
                f"without tokens, the gateway binds to this machine's loopback address only, not to {where}: {cure}"
            )
        if self.public_url is not None and not is_loopback(host_of(self.public_url)):
            raise InvalidAccess(f"a gateway with the public address {self.public_url} would have no tokens: {cure}")
        return access

    def hosts(self) -> HostPolicy:
        """The `Host` and `Origin` headers that are answered.

        Raises:
            InvalidAccess: A name is malformed, or the gateway is bound to every address and no name is given.
        """
        for name in self.allowed_hosts:
            if not name or "/" in name or (":" in name and not _is_ipv6(name)):
                raise InvalidAccess(f"--allowed-host is {name!r}; it has to be a name without scheme and port")
        for origin in self.allowed_origins:
            parts = urlsplit(origin)
            if f"{parts.scheme}://{parts.netloc}" != origin or not parts.scheme or not parts.netloc:
                raise InvalidAccess(f"--allowed-origin is {origin!r}; it has to be like https://app.example.com")
        public = (host_of(self.public_url),) if self.public_url is not None else ()
        return HostPolicy.for_binding(self.host, (*self.allowed_hosts, *public), self.allowed_origins)

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the gateway."""
        return is_loopback(self.host) and is_loopback(host_of(self.public_url or "http://localhost"))

    def page(self) -> bool:
        """Whether browsers get the page.

        Raises:
            MissingExtra: It is wanted, and its extra is not installed.
        """
        if self.ui and not page_is_installed():
            raise MissingExtra("The page (--ui)", "ui")
        return self.local and page_is_installed() if self.ui is None else self.ui

    def address(self, port: int) -> str:
        """The gateway's address for clients."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        host = self.host
        if host in _EVERY_ADDRESS:
            host = next((name for name in self.allowed_hosts if name != "*"), "127.0.0.1")
        return f"http://[{host.strip('[]')}]:{port}" if ":" in host else f"http://{host}:{port}"


def host_of(url: str) -> str:
    """The host of a URL; empty if it has none."""
    return urlsplit(url).hostname or ""


def _is_ipv6(name: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, name.strip("[]"))
    except OSError:
        return False
    return True
