"""Runs the gateway as a server: its settings, its socket and its shutdown."""

from __future__ import annotations

import asyncio
import atexit
import errno
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn

from envport.app import Gateway
from envport.cluster.settings import ClusterSettings
from envport.cluster.table import ClusterTable
from envport.collecting import collecting_by_the_clock
from envport.definition import EnvironmentDefinition
from envport.episodes import EpisodeTable, Limits
from envport.errors import ConfigurationError
from envport.http.sockets import SteadyWebSocket, WholeAnswers
from envport.runtimes.descriptors import allow_descriptors
from envport.secrecy import hide_memory
from envport.serve_settings import RaySettings, Settings
from envport.surfaces import SurfaceFactory, installed_surfaces
from envport.types import MAX_BODY

if TYPE_CHECKING:
    from envport.trajectories.database_archive import DatabaseArchive

__all__ = ["Beside", "Service"]

logger = logging.getLogger(__name__)

_BACKLOG = 2048
# Proxies and clients usually keep idle connections for a minute. With a longer time here, they close them first.
_KEEP_ALIVE_SECONDS = 75
# After a drain, clients can still ask during this time how the last episodes ended.
_LINGER_SECONDS = 1.0
_COLLECT_SECONDS = 60.0
Beside = Callable[[], Awaitable[asyncio.Task[None]]]
"""Starts a task that runs as long as the gateway answers requests."""


class Service:
    """A gateway with its socket, ready to run.

    Args:
        settings: The settings of the server.
        environments: The environments to serve.
        environ: The process's environment variables, which may contain tokens in addition to the token file.

    Raises:
        ConfigurationError: The settings are unusable or unsafe, or the port cannot be bound.
    """

    def __init__(self, settings: Settings, environments: Iterable[EnvironmentDefinition], environ: Mapping[str, str]):
        environments = list(environments)
        access = settings.access(environ)
        hosts = settings.hosts()
        public_url = settings.public_url
        if public_url is not None and urlsplit(public_url).scheme not in ("http", "https"):
            raise ConfigurationError(f"--public-url is {public_url!r}; it has to begin with http:// or https://")
        table: EpisodeTable | None = None
        archive: DatabaseArchive | None = None
        if settings.ray is not None:
            archive = settings.store.open_shared()
            store = settings.store.where if archive is not None else None
            table, secret = _join(settings.ray, environments, settings.limits, environ, store)
            # Replicas share the secret, because a client may present a token of one replica to another.
            access = settings.access({**environ, "ENVPORT_SECRET": secret})
            if settings.store.resume:
                raise ConfigurationError("--resume-episodes does nothing on a cluster: leave it out")
        self.settings = settings
        self.store = settings.store.open() if table is None else None
        if table is None:
            access = settings.access(settings.store.secret(environ))
        self.gateway = Gateway(
            environments,
            access=access,
            hosts=hosts,
            limits=settings.limits,
            trajectories=self.store,
            public_url=public_url,
            runtime=settings.runtime,
            table=table,
            archive=archive,
            surfaces=installed_surfaces("envport.surfaces"),
            environment_surfaces=installed_surfaces("envport.environment_surfaces"),
            root_surface=_root_surface(settings.root_surface),
            changing=settings.reload,
            sdk_only=settings.sdk_only,
            page=settings.page(),
        )
        self._table = self.gateway.table
        self._socket = _bind(settings.host, settings.port)
        self.url = settings.address(self._socket.getsockname()[1])

    @property
    def store_place(self) -> str | None:
        """Where episodes are recorded, for people to read; `None` if they are kept in memory only."""
        return self.store.where if self.store is not None else None

    @property
    def exposed(self) -> bool:
        """Whether other machines can reach the gateway without a token."""
        return not self.gateway.access.required and not self.settings.local

    def run(self, on_started: Callable[[], None], beside: Beside | None = None) -> None:
        """Serve until SIGINT or SIGTERM, then end calls and episodes in order. It needs its own process.

        SIGTERM first drains the gateway: new episodes are refused, and open ones can still be played until they end
        or the time limit is reached. SIGINT only lets the running calls finish. A second signal ends a drain, and
        stops without waiting.

        Args:
            on_started: Called once, when the gateway answers requests.
            beside: Starts what runs as long as the gateway does.
        """
        # Its variables may hold tokens, and its memory does.
        hide_memory()
        # Each connection needs a file descriptor.
        allow_descriptors()
        config = uvicorn.Config(
            self.gateway,
            lifespan="on",
            log_config=None,
            access_log=self.settings.access_log,
            server_header=False,
            # The public address is a setting. Forwarding headers are not trusted, so they are not read.
            proxy_headers=False,
            http=WholeAnswers,
            ws=SteadyWebSocket,
            ws_max_size=MAX_BODY,
            # It would take 40 KB of memory for each connection, and more time than it saves near a gateway.
            ws_per_message_deflate=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=self.settings.shutdown_seconds,
        )
        server = _Server(config, on_started, self._table, self.settings.drain_seconds, beside)
        # Uvicorn handles signals only while it serves. With this, the process also ends cleanly before and after.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)
        # When the process ends, Python would walk through all objects once more, which takes half a second.
        atexit.register(gc.freeze)
        if self.settings.end_with_input:
            threading.Thread(target=_end_with_input, daemon=True).start()
        server.run(sockets=[self._socket])


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        on_started: Callable[[], None],
        table: EpisodeTable,
        drain_seconds: float,
        beside: Beside | None,
    ):
        super().__init__(config)
        self._on_started = on_started
        self._table = table
        self._drain_seconds = drain_seconds
        self._beside = beside
        self._running_beside: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with collecting_by_the_clock(_COLLECT_SECONDS):
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._beside is not None and not self.should_exit:
            self._running_beside = await self._beside()
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None:
            self.should_exit = True
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop, sig)

    def _stop(self, number: int) -> None:
        # Uvicorn stops listening as soon as `should_exit` is set, so the drain has to come before.
        if self.should_exit or self._draining is not None:
            self.should_exit = self.force_exit = True
            return
        self._table.take_no_more()
        if number == signal.SIGTERM and self._drain_seconds > 0 and self._table.live:
            self._draining = asyncio.create_task(self._drain())
        else:
            self.should_exit = True

    async def _drain(self) -> None:
        live, seconds = self._table.live, self._drain_seconds
        logger.info("draining: %d episodes may be played on, for %g s at most", live, seconds)
        try:
            await self._table.drain(seconds)
            await asyncio.sleep(_LINGER_SECONDS)
        finally:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._running_beside is not None:
            self._running_beside.cancel()
        # A call that is stuck in a thread would keep the process alive until it returns.
        seconds = self.config.timeout_graceful_shutdown or 0
        patience = threading.Timer(seconds if self.force_exit else 2 * seconds, _leave)
        patience.daemon = True
        patience.start()
        await super().shutdown(sockets)
        if self.force_exit:
            # After a forced exit, uvicorn skips the lifespan shutdown. The episodes need it to get their outcomes.
            await self.lifespan.shutdown()


def _join(
    ray: RaySettings,
    environments: list[EnvironmentDefinition],
    limits: Limits,
    environ: Mapping[str, str],
    store: str | None,
) -> tuple[EpisodeTable, str]:
    """The table of a cluster's episodes, and the secret that its gateways share."""
    # Imported only here: Ray is an extra, and its import takes a second.
    from envport.cluster.ray_hosts import RayHosts

    given = environ.get("ENVPORT_SECRET")
    said = ClusterSettings.of(environments, limits, given, store)
    joined = RayHosts(ray.address, ray.namespace, said, secret_given=given is not None, resource=ray.resource)
    return ClusterTable(environments, joined), joined.settings.secret


def _root_surface(name: str | None) -> SurfaceFactory | None:
    if name is None:
        return None
    installed = installed_surfaces("envport.root_surfaces")
    if name not in installed:
        raise ConfigurationError(
            f"no installed package serves {name!r} at the root; installed: {', '.join(installed) or 'none'}"
        )
    return installed[name]


def _end_with_input() -> None:
    # Read the descriptor directly: reading the stream would hold its lock when Python ends.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _leave() -> None:
    logger.warning("a call could not be cancelled; the gateway stops without it")
    logging.shutdown()
    os._exit(0)


def _bind(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"cannot bind to {host}: {getattr(error, 'strerror', error)}") from None
    # A name such as localhost may have IPv4 and IPv6 addresses. Prefer IPv4: clients try it first or second.
    family, kind, protocol, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # Listen now: two gateways can bind to the same port as long as neither of them listens.
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} of {host} is in use: choose another with --port, or a free one with --port 0"
            ) from None
        raise ConfigurationError(f"cannot bind to port {port} of {host}: {error.strerror}") from None
    return bound
