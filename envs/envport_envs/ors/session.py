"""A session at an Open Reward Standard server: one environment of the server's, kept alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from envport import UpstreamLost
from envport.backoff import Backoff
from envport_envs.ors.outputs import shown
from envport_envs.ors.server import WHAT, OrsServer
from envport_envs.ors.stream import SESSION, Stream, StreamBroken, StreamError, begin_session
from envport_envs.ors.tools import OrsListing, listing_of
from envport_envs.upstream.faults import BadStatus, CallRaised, ServerFull
from envport_envs.upstream.http import http_client, parsed

__all__ = ["PING_SECONDS", "OrsSession"]

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

PING_SECONDS = 10.0
"""Seconds between two pings. Servers forget a session that nobody has asked anything for 900 s."""

_MOST_FAILED_PINGS = 5
_PING_WAIT_SECONDS = 30.0
_RESUME_SECONDS = 6.0
# Of a proxy that did not hear from the server.
_BETWEEN = (502, 504)
_FORGOTTEN = "unknown task_id"
_GONE = (404, 410)
_RAISED = 500
_END_SECONDS = 5.0


class OrsSession:
    """A session. Call `close` whatever has become of `open`.

    Args:
        server: The server.
        secrets: What placeholders of the server may stand for, beside variables.
        ping_seconds: Seconds between two pings.

    Raises:
        InvalidOption: A placeholder names nothing.
    """

    def __init__(self, server: OrsServer, secrets: Mapping[str, str], ping_seconds: float = PING_SECONDS):
        self._server = server
        self._secrets = server.session_headers(secrets)
        self._client = http_client(server.address.url)
        self._http = server.requests(self._client, secrets)
        self._ping_seconds = ping_seconds
        self._keeper: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[str] | None = None

    async def open(self, task: Mapping[str, Any]) -> None:
        """Open it. The server makes an environment.

        Args:
            task: What the standard has for a task: `task_spec`, or `split` and `index`.

        Raises:
            CallRaised: The environment raised an exception.
            ServerFull: The server has no room now.
            UpstreamLost: It cannot be reached, or refuses the session.
        """
        await begin_session(self._http, self._secrets)
        named = {"env_name": self._server.environment} if self._server.environment else {}
        await self._told(self._http.post("/create", {**named, **task}, self._secrets))
        self._lost = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep_alive(self._lost))

    async def tools(self) -> OrsListing:
        """The tools of the session's task.

        Raises:
            CallRaised: The environment raised an exception.
            ServerFull: The server has no room now.
            UpstreamLost: The session is lost, or the answer is no listing.
        """
        # Servers before the tools of tasks have only those of the environment.
        answer = await self._raised(self._http.get(f"{self._server.base}/task_tools"))
        if answer is None:
            answer = await self._told(self._http.get(f"{self._server.base}/tools"))
        return listing_of(answer)

    async def prompt(self) -> Any:
        """The prompt of the session's task.

        Raises:
            CallRaised: The environment raised an exception.
            ServerFull: The server has no room now.
            UpstreamLost: The session is lost, or the answer is no prompt.
        """
        return shown(await self._told(self._http.get(f"{self._server.base}/prompt")))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool. If the stream of the answer breaks, the server is asked for the rest, and does nothing again.

        Returns:
            The server's answer.

        Raises:
            CallRaised: The environment raised an exception.
            UpstreamLost: The session is lost, or the answer is none.
        """
        text = await self._while_kept(self._resumed({"name": tool, "input": dict(arguments)}))
        try:
            return parsed(text)
        except ValueError as error:
            raise UpstreamLost(f"the {WHAT}'s answer to a call is no JSON: {error}") from None

    async def close(self) -> None:
        """End the session, and wait until the server has closed its environment, for a while."""
        try:
            if self._keeper is not None:
                self._keeper.cancel()
            if SESSION in self._http.headers:
                for path in ("/delete", "/delete_session"):
                    await self._ended(path)
        finally:
            await self._client.aclose()

    async def _ended(self, path: str) -> None:
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._http.post(path, {})
        except (TimeoutError, UpstreamLost, ServerFull) as error:
            logger.warning("a session of the %s could not be ended: %s", WHAT, str(error) or "no answer")

    async def _resumed(self, call: Mapping[str, Any]) -> str:
        task_id, backoff = "", None
        while True:
            stream, broken = Stream(self._http), None
            try:
                text = await self._attempt(stream, {**call, "task_id": task_id} if task_id else call)
            except StreamBroken as error:
                text, broken = "", error
            if task_id and stream.task_id not in (None, task_id):
                raise UpstreamLost(f"the {WHAT} answered with another call than the one that was asked for again")
            if broken is None:
                return text
            task_id = stream.task_id or task_id
            if broken.reached and not task_id:
                # It may have been carried out, and there is no word to ask for the answer with.
                raise UpstreamLost(f"the {WHAT} broke off before it had named the call: {broken}")
            backoff = backoff or Backoff(_RESUME_SECONDS)
            if not await backoff.wait():
                raise UpstreamLost(f"the {WHAT} broke off a call, and it could not be resumed: {broken}")

    async def _attempt(self, stream: Stream, call: Mapping[str, Any]) -> str:
        """The answer to a call. A broken stream is one that may be asked for again."""
        try:
            return await self._raised(stream.read(f"{self._server.base}/call", call))
        except ServerFull as full:
            raise StreamBroken(str(full), reached=False) from None
        except BadStatus as bad:
            if bad.status in _BETWEEN:
                raise StreamBroken(str(bad), reached=True) from None
            raise
        except StreamError as error:
            if "task_id" in call and _FORGOTTEN in str(error).lower():
                raise UpstreamLost(f"the {WHAT} has forgotten a call that broke off: {error}") from None
            raise CallRaised(str(error)) from None

    async def _raised(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except BadStatus as bad:
            if bad.status == _RAISED:
                raise CallRaised(bad.detail) from None
            raise

    async def _told(self, work: Coroutine[Any, Any, Any]) -> Any:
        answer = await self._raised(work)
        if answer is None:
            raise UpstreamLost(f"the {WHAT} does not know the session, or has not what the standard has")
        return answer

    async def _while_kept(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """The result of some work, unless the session is lost before."""
        if self._lost is None:
            work.close()
            raise UpstreamLost(f"there is no session at the {WHAT}")
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._lost}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise UpstreamLost(self._lost.result())
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _keep_alive(self, lost: asyncio.Future[str]) -> None:
        failed, why = 0, ""
        while failed < _MOST_FAILED_PINGS:
            await asyncio.sleep(self._ping_seconds)
            try:
                async with asyncio.timeout(_PING_WAIT_SECONDS):
                    known = await self._http.post("/ping", {}) is not None
            except BadStatus as bad:
                known, failed, why = bad.status not in _GONE, failed + 1, str(bad)
            except (TimeoutError, UpstreamLost, ServerFull) as error:
                known, failed, why = True, failed + 1, str(error) or "no answer"
            else:
                failed, why = 0, "it is unknown there"
            if not known:
                break
        if not lost.done():
            lost.set_result(f"the {WHAT} has lost the session: {why}")
