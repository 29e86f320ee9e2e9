"""The model's address: an HTTP server with the APIs that agents speak, in a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import uvicorn

from envport.access import HostPolicy
from envport.errors import ConfigurationError, InvalidOption
from envport_bridges.agents.model.replying import ReplySource
from envport_bridges.agents.model.session_control import SessionControl
from envport_bridges.agents.model.sessions import ModelSession
from envport_bridges.agents.model.surface import EndpointLimits, ModelSurface

__all__ = ["ModelEndpoint"]

_BACKLOG = 2048
# Agents that think for a while use the connection again.
_KEEP_ALIVE_SECONDS = 75
# For a client that does not read its answer to the end.
_SHUTDOWN_SECONDS = 2


class ModelEndpoint:
    """Serves a model to agents, as long as it is entered.

    ```python
    with ModelEndpoint(source) as endpoint:
        session = endpoint.open_session(max_calls=64)
        client = openai.OpenAI(base_url=endpoint.openai_url, api_key=session.token)
        ...
        endpoint.end_session(session)
    ```

    When it is left, running requests are cancelled, and no thread, connection or port stays behind.

    Args:
        source: Who writes the turns.
        host: Address to listen on.
        port: Port to listen on; 0 for a free one.
        hosts: Which `Host` headers are answered; if not given, the names of a loopback address, or `host`.
        limits: What one session may ask for.
        control: Begins and ends sessions by requests, if they may do that.

    Raises:
        InvalidAccess: It is to listen on every address, and `hosts` is not given.
    """

    def __init__(
        self,
        source: ReplySource,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        hosts: HostPolicy | None = None,
        limits: EndpointLimits | None = None,
        control: SessionControl | None = None,
    ):
        policy = hosts or HostPolicy.for_binding(host)
        self._surface = ModelSurface(source, policy, limits or EndpointLimits(), control)
        self._address = (host, port)
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port; the real one once it is entered."""
        return self._port

    @property
    def anthropic_url(self) -> str:
        """The base URL for Anthropic's SDK and its like, which add `/v1` themselves."""
        host = self._address[0].strip("[]")
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's SDK and its like."""
        return f"{self.anthropic_url}/v1"

    def open_session(self, max_calls: int, *, token: str | None = None) -> ModelSession:
        """Let somebody ask the model. Called from any thread.

        Args:
            max_calls: Most turns that the model writes for it.
            token: Its token, if that is not to be random.

        Raises:
            InvalidOption: The token is empty, or that of another open session.
        """
        if token == "":
            raise InvalidOption("the token of a model's session cannot be empty")
        session = ModelSession(max_calls) if token is None else ModelSession(max_calls, token)
        self._in_loop(lambda: self._surface.open(session))
        return session

    def end_session(self, session: ModelSession) -> None:
        """Answer a session no more; afterwards, no request of it is running. Called from any other thread."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._surface.end(session), self._loop).result()

    def __enter__(self) -> ModelEndpoint:
        bound = _bind(*self._address)
        self._port = bound.getsockname()[1]
        ready: Future[asyncio.AbstractEventLoop] = Future()
        config = uvicorn.Config(
            self._surface,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _Server(config, self._surface, ready.set_result)
        thread = threading.Thread(target=_serve, args=(self._server, bound, ready), name="envport-model", daemon=True)
        thread.start()
        self._thread = thread
        self._loop = ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join()
        self._loop = self._server = self._thread = None

    def _in_loop(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        if self._loop is None:
            raise RuntimeError("the endpoint is not running: enter it first")
        asyncio.run_coroutine_threadsafe(run(), self._loop).result()


class _Server(uvicorn.Server):
    """Says when it has started, and leaves no request or connection behind."""

    def __init__(
        self, config: uvicorn.Config, surface: ModelSurface, on_started: Callable[[asyncio.AbstractEventLoop], None]
    ):
        super().__init__(config)
        self._surface = surface
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started(asyncio.get_running_loop())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._surface.end_all()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            transport: Any = connection.transport
            transport.abort()
        # The loop closes what was aborted in its next turn.
        await asyncio.sleep(0)


def _serve(server: _Server, bound: socket.socket, ready: Future[asyncio.AbstractEventLoop]) -> None:
    try:
        server.run(sockets=[bound])
    except BaseException as error:
        if ready.done():
            raise
        ready.set_exception(error)
    finally:
        bound.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # With its protocol named, asyncio sends without delay.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host.strip("[]"), port))
            bound.listen(_BACKLOG)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        raise ConfigurationError(f"cannot serve a model at port {port} of {host}: {error.strerror}") from None
    return bound
