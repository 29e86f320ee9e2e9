"""Hosts on the machines of a Ray cluster: one detached, named actor on each."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from envport.backoff import Backoff
from envport.cluster.host import Answer, Host, Progressed
from envport.cluster.hosts import HostLost
from envport.cluster.messages import AnswerT, HostLoad, HostMessage, LoadMessage
from envport.cluster.settings import ClusterSettings
from envport.errors import ConfigurationError, MissingExtra, error_from_code
from envport.runtimes import ProgressSink

try:
    import ray as _untyped_ray
    from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError, RayTaskError
    from ray.util import list_named_actors
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    raise MissingExtra("The runtime 'ray'", "ray") from None

__all__ = ["RayHosts", "cluster_loads", "stop_cluster"]

# Ray's annotations are incomplete.
ray: Any = _untyped_ray

logger = logging.getLogger(__name__)

_SETTINGS = "envport-settings"
_HOST = "envport-host-"
_NAME_LENGTH = 16
_LOOK_SECONDS = 2.0
# How long to wait for an unreachable host to come back.
_UNAVAILABLE_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
# Concurrent calls in one host. Ray's default of 1,000 would add a hidden queue.
_CONCURRENCY = 1_000_000
_SETTINGS_SECONDS = 120.0
_STATUS_SECONDS = 5.0
_REACH_SECONDS = 5.0


class RayHosts:
    """`Hosts` of a Ray cluster. This process becomes a Ray driver.

    Each host is pinned to one node and named after it. If its process dies, Ray restarts it on that node. A host
    reserves no Ray resources, so it does not have to wait for those that trainers hold.

    Args:
        address: Address of the cluster, such as `10.0.0.1:6379`; `auto` finds one that runs on this machine, `local`
            starts one for this process.
        namespace: Ray namespace that separates this gateway's hosts from those of others.
        settings: The settings of this replica; see `ClusterSettings.require`.
        secret_given: Whether the secret in the settings was given by the user; then it has to equal the cluster's.
        resource: Only nodes with this custom resource get a host; all nodes do if not given.

    Raises:
        ConfigurationError: There is no such cluster, or its settings differ.
    """

    def __init__(
        self,
        address: str,
        namespace: str,
        settings: ClusterSettings,
        *,
        secret_given: bool = False,
        resource: str | None = None,
    ):
        self._namespace = namespace
        self._resource = resource
        self._alive: frozenset[str] = frozenset()
        self._actors: dict[str, Any] = {}
        _connect(address, namespace)
        keeper = (
            ray.remote(_Settings)
            .options(
                name=_SETTINGS,
                namespace=namespace,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
            )
            .remote(settings)
        )
        try:
            self._settings: ClusterSettings = ray.get(keeper.read.remote(), timeout=_SETTINGS_SECONDS)
        except GetTimeoutError:
            raise ConfigurationError(
                f"the Ray cluster at {address} has not started the actor that keeps envport's settings within "
                f"{_SETTINGS_SECONDS:g} s: see what keeps it from starting workers (ray status), and try again"
            ) from None
        settings.require(self._settings, secret=secret_given)
        self._look()

    @property
    def settings(self) -> ClusterSettings:
        """The settings of the cluster."""
        return self._settings

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Keep a host on every machine, for as long as this runs."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def names(self) -> Sequence[str]:
        """The hosts on which episodes may be opened now."""
        return sorted(self._alive & self._actors.keys())

    async def ask(
        self,
        host: str,
        message: HostMessage[AnswerT],
        life: str | None = None,
        progress: ProgressSink | None = None,
    ) -> AnswerT:
        """Send a request to a host."""
        actor = await self._actor(host)
        backoff = Backoff(_UNAVAILABLE_SECONDS, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            try:
                return _read(await _send(actor, message, life, progress))
            except ActorUnavailableError as error:
                # Whether the request was executed is not known.
                logger.warning("host %s is away: %s", host, error)
                if not message.repeatable or not await self._is_there(host) or not await backoff.wait():
                    raise HostLost(str(error)) from None
            except RayTaskError:
                # The host raised an unexpected error, but it is still alive.
                raise
            except RayError as error:
                raise HostLost(str(error)) from None

    async def _actor(self, host: str) -> Any:
        if host not in self._actors:
            # Another replica may have created the host.
            try:
                self._actors[host] = await asyncio.to_thread(ray.get_actor, _HOST + host, self._namespace)
            except (ValueError, RayError):
                raise HostLost(f"there is no host {host}") from None
        return self._actors[host]

    async def _is_there(self, host: str) -> bool:
        await asyncio.to_thread(self._look)
        return host in self._alive

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await asyncio.to_thread(self._look)
            except Exception:
                logger.exception("the nodes of the cluster could not be listed")

    def _look(self) -> None:
        """List the machines, and create the missing hosts."""
        nodes: dict[str, Any] = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        if self._resource is not None:
            nodes = {key: node for key, node in nodes.items() if node["Resources"].get(self._resource, 0) > 0}
        known = {key[:_NAME_LENGTH]: key for key in nodes}
        for name in known.keys() - self._actors.keys():
            self._actors[name] = self._make(name, known[name])
        for name in self._alive - known.keys():
            logger.error("host %s is gone, and with it every episode that it ran", name)
        self._alive = frozenset(known)

    def _make(self, name: str, node_id: str) -> Any:
        return (
            ray.remote(Host)
            .options(
                name=_HOST + name,
                namespace=self._namespace,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=_CONCURRENCY,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            )
            .remote(name, self._settings)
        )


def stop_cluster(address: str, namespace: str) -> int:
    """Close every episode of a gateway on a cluster, and end its hosts.

    Args:
        address: Address of the cluster.
        namespace: Ray namespace that separates this gateway's hosts from those of others.

    Returns:
        How many hosts were ended.

    Raises:
        ConfigurationError: There is no such cluster.
    """
    _connect(address, namespace)
    found = _named(namespace)
    hosts = [name for name in found if name.startswith(_HOST)]
    for name in [*hosts, *(name for name in found if name == _SETTINGS)]:
        actor = ray.get_actor(name, namespace)
        if name in hosts:
            _stop(name, actor)
        ray.kill(actor, no_restart=True)
    return len(hosts)


def cluster_loads(address: str, namespace: str) -> dict[str, HostLoad | None]:
    """The load of each host of a gateway on a cluster; `None` for a host that does not answer.

    Args:
        address: Address of the cluster.
        namespace: Ray namespace that separates this gateway's hosts from those of others.

    Raises:
        ConfigurationError: There is no such cluster.
    """
    _connect(address, namespace)
    hosts = [name for name in _named(namespace) if name.startswith(_HOST)]
    return {name.removeprefix(_HOST): _load(ray.get_actor(name, namespace)) for name in hosts}


def _load(actor: Any) -> HostLoad | None:
    try:
        return _read(ray.get(actor.ask.remote(LoadMessage(), None), timeout=_STATUS_SECONDS))
    except RayError:
        return None


def _named(namespace: str) -> list[str]:
    named: Any = list_named_actors(all_namespaces=True)
    return sorted(one["name"] for one in named if one["namespace"] == namespace)


def _stop(name: str, actor: Any) -> None:
    try:
        ray.get(actor.stop.remote(), timeout=_SETTINGS_SECONDS)
    except RayError as error:
        logger.warning("%s did not close its episodes: %s", name, error)


class _Settings:
    """Keeps the settings of the first replica. If its node is lost, Ray restarts it elsewhere with the same ones."""

    def __init__(self, settings: ClusterSettings):
        self._settings = settings

    def read(self) -> ClusterSettings:
        return self._settings


def _connect(address: str, namespace: str) -> None:
    if ray.is_initialized():
        return
    _reach(address)
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address=address,
            namespace=namespace,
            # The gateway has its own logs.
            configure_logging=False,
            log_to_driver=False,
            **options,
        )
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"there is no Ray cluster at {address!r} that can be joined: {error}") from None


def _reach(address: str) -> None:
    """Check that something listens at the address, because Ray itself would try for minutes."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"there is no Ray cluster at {address!r}: {error}") from None


async def _send(actor: Any, message: HostMessage[Any], life: str | None, progress: ProgressSink | None) -> Answer:
    if progress is None:
        return await actor.ask.remote(message, life)
    stream = actor.ask_reporting.options(num_returns="streaming").remote(message, life)
    async for reference in stream:
        said = await reference
        if isinstance(said, Progressed):
            progress(*said.report)
        else:
            return said
    raise HostLost("it gave no answer")


def _read(answer: Answer) -> Any:
    if answer.lost:
        raise HostLost("it was restarted, without the earlier episodes")
    if answer.error is not None:
        code, message, fields = answer.error
        raise error_from_code(code, message, **fields)
    return answer.value
