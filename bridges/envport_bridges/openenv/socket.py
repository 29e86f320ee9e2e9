"""OpenEnv's WebSocket: strictly a message and its answer, without ids, in one session."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from starlette.types import Receive, Send

from envport.episodes import EpisodeTable, while_connected
from envport.errors import CallerLeft, EnvportError
from envport_bridges.openenv.frames import OpenEnvError, error_data, frame, read_frame
from envport_bridges.openenv.rpc import answer_rpc
from envport_bridges.openenv.session import OpenEnvSession

__all__ = ["OpenEnvSocket"]

logger = logging.getLogger(__name__)

# What a client may send before it has its answer. More is read when the answer is there.
_MOST_EARLY = 16
_NORMAL = 1000


class OpenEnvSocket:
    """One connection.

    Args:
        table: The episodes.
        session: What the client plays.
        receive: The ASGI receive channel.
        send: The ASGI send channel.
    """

    def __init__(self, table: EpisodeTable, session: OpenEnvSession, receive: Receive, send: Send):
        self._table = table
        self._session = session
        self._receive = receive
        self._send = send
        self._early: deque[Mapping[str, Any]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Serve until the client leaves. Its episode ends with the connection, which nobody else can play on."""
        await self._receive()
        await self._send({"type": "websocket.accept"})
        self._keep_alive_later()
        try:
            while (message := await self._next())["type"] != "websocket.disconnect":
                answer = await self._answered(message)
                if answer is None:
                    await self._send({"type": "websocket.close", "code": _NORMAL})
                    break
                await self._send({"type": "websocket.send", "text": answer})
        except (CallerLeft, OSError):
            return
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._keeping is not None:
                self._keeping.cancel()
            with anyio.CancelScope(shield=True):
                await self._session.close()

    async def _next(self) -> Mapping[str, Any]:
        return self._early.popleft() if self._early else await self._receive()

    async def _answered(self, message: Mapping[str, Any]) -> str | None:
        """The answer to a message; `None` if it ends the session."""
        kind = ""
        try:
            kind, data = read_frame(message)
            return await self._done(kind, data)
        except CallerLeft:
            raise
        except EnvportError as error:
            return frame("error", error_data(error, self._table, opening=kind == "reset"))
        except Exception:
            logger.exception("a message of type %r broke the OpenEnv surface", kind)
            broken = OpenEnvError("EXECUTION_ERROR", "the gateway broke; its log says more")
            return frame("error", error_data(broken, self._table))

    async def _done(self, kind: str, data: dict[str, Any]) -> str | None:
        session = self._session
        if kind == "step":
            if session.at_once:
                return frame("observation", await session.step(data))
            return frame("observation", await while_connected(self._watched, partial(session.step, data)))
        if kind == "reset":
            opening = await while_connected(self._watched, partial(session.open, data), session.undo)
            return frame("observation", session.begin(opening))
        if kind == "mcp":
            return frame("mcp", await while_connected(self._watched, partial(answer_rpc, session, data)))
        return frame("state", session.state) if kind == "state" else None

    async def _watched(self) -> Mapping[str, Any]:
        """Receive while a message is answered, to see whether the client leaves."""
        if len(self._early) >= _MOST_EARLY:
            await asyncio.Event().wait()
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            # Now, and not when the call that is running has ended.
            await self._session.close()
            return {"type": "http.disconnect"}
        self._early.append(message)
        return message

    def _keep_alive_later(self) -> None:
        """Keep the episode while the connection lasts. OpenEnv has no message with which a client could do this."""
        seconds = self._table.limits.idle_seconds / 3
        self._timer = asyncio.get_running_loop().call_later(seconds, self._keep_alive_now)

    def _keep_alive_now(self) -> None:
        self._keeping = asyncio.get_running_loop().create_task(self._keep_alive())
        self._keep_alive_later()

    async def _keep_alive(self) -> None:
        try:
            await self._session.keep_alive()
        except EnvportError as error:
            logger.debug("an episode could not be kept: %s", error)
