"""Serves a model until it is told to stop: HTTP in a thread, and the model in the main one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from envport.access import HostPolicy, is_loopback
from envport.errors import InvalidAccess
from envport_bridges.agents.model.contexts import ContextLimits
from envport_bridges.agents.model.desk import ModelDesk
from envport_bridges.agents.model.endpoint import ModelEndpoint
from envport_bridges.agents.model.session_control import SessionControl
from envport_bridges.model_serving.loading import ServedModel

__all__ = ["ModelServer", "ServingAddress"]

_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class ServingAddress:
    """Where a model is served, and who may ask it.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 for a free one.
        token: The control token: it begins and ends sessions, and is one of its own. `None` for none.
        hosts: Further host names by which clients may call it.
        idle_seconds: Seconds after which a session that nobody uses ends.

    Raises:
        InvalidAccess: Other machines could use the model without a token, or the token cannot be used.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    hosts: tuple[str, ...] = ()
    idle_seconds: float = 3600.0

    def __post_init__(self):
        if self.token is None and not is_loopback(self.host):
            raise InvalidAccess(
                f"without a token, a model is served at this machine's loopback address only, not at {self.host}: set "
                "the variable ENVPORT_MODEL_TOKEN"
            )
        if self.token is not None and (len(self.token) < _SHORTEST_TOKEN or not self.token.isascii()):
            raise InvalidAccess(
                f"the token in ENVPORT_MODEL_TOKEN has to be of at least {_SHORTEST_TOKEN} ASCII characters"
            )

    @property
    def policy(self) -> HostPolicy:
        """Which `Host` headers are answered."""
        return HostPolicy.for_binding(self.host, self.hosts)


class ModelServer:
    """Serves a model.

    Args:
        model: The model.
        address: Where.
    """

    def __init__(self, model: ServedModel, address: ServingAddress):
        self._model = model
        self._stopping = Event()
        # One request that fails, such as a batch that is too large, must not end the others.
        limits = ContextLimits(following=model.settings.max_tokens)
        self._desk = ModelDesk(model.chat, model.sampler, limits, survives=True)
        self._control = SessionControl(model.description, token=address.token, idle_seconds=address.idle_seconds)
        self._endpoint = ModelEndpoint(
            self._desk, host=address.host, port=address.port, hosts=address.policy, control=self._control
        )

    @property
    def url(self) -> str:
        """Its address, without `/v1`, once it serves."""
        return self._endpoint.anthropic_url

    def stop(self) -> None:
        """Have `run` return. From any thread, or a signal's handler."""
        self._stopping.set()
        self._desk.wake()

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`. In the thread in which the model is to work.

        Args:
            ready: Called when it serves.
        """
        try:
            with self._endpoint:
                ready()
                self._desk.work(self._stopping.is_set, lambda: self._control.sessions)
        finally:
            self._model.close()
