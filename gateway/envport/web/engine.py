"""NiceGUI as this process runs it.

NiceGUI keeps its state in the process: one application, one event loop. Gateways of the same process and event loop
share it; each request carries the viewer of its gateway. A gateway on another event loop has no page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from nicegui import Client, ui
from starlette.types import ASGIApp

from envport.web import frame
from envport.web.viewer import VIEWER_KEY, Viewer

__all__ = ["Engine", "running_engine"]

logger = logging.getLogger(__name__)

_RECONNECT_SECONDS = 10.0
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#3451b2"/>'
    '<path d="M8 10h16M8 16h10M8 22h16" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>'
)


class Engine:
    """NiceGUI's application and its background tasks."""

    def __init__(self) -> None:
        shell = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        frame.register()
        ui.run_with(  # pyright: ignore[reportUnknownMemberType]
            shell,
            title="envport",
            favicon=_ICON,
            dark=None,
            language="en-US",
            reconnect_timeout=_RECONNECT_SECONDS,
            tailwind=False,
            show_welcome_message=False,
        )
        self.application: ASGIApp = shell
        self._lifespan = shell.router.lifespan_context
        self._shell = shell
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def owner_of(self, client_id: str) -> Viewer | None:
        """The viewer that a page was made for."""
        client = Client.instances.get(client_id)
        return client.request.scope.get(VIEWER_KEY) if client is not None else None

    async def join(self) -> bool:
        """Start NiceGUI unless it runs. Returns whether it runs in this event loop."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            logger.warning("the page is not served here: NiceGUI runs in another event loop of this process")
            return False
        self._loop = loop
        self._users += 1
        if self._task is None:
            started = loop.create_future()
            self._stop = asyncio.Event()
            self._task = asyncio.create_task(self._run(started))
            await started
        return True

    async def leave(self) -> None:
        """Stop NiceGUI if no other gateway needs it."""
        self._users -= 1
        if self._users == 0 and self._task is not None:
            self._stop.set()
            await self._task
            self._task = None

    async def _run(self, started: asyncio.Future[None]) -> None:
        # A task of its own, because NiceGUI's lifespan has to be left where it was entered.
        try:
            async with self._lifespan(self._shell):
                started.set_result(None)
                await self._stop.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)


_engine: Engine | None = None


@asynccontextmanager
async def running_engine() -> AsyncGenerator[Engine | None]:
    """The engine of this process while a gateway uses it; `None` if it belongs to another event loop."""
    global _engine
    if _engine is None:
        _engine = Engine()
    engine = _engine
    if not await engine.join():
        yield None
        return
    try:
        yield engine
    finally:
        await engine.leave()
