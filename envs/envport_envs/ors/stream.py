"""An answer that comes as a stream of events: whole, broken, or an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, cast

import httpx2

from envport import UpstreamLost
from envport_envs.upstream.http import MOST_BYTES, UpstreamHttp, parsed

__all__ = ["SESSION", "Stream", "StreamBroken", "StreamError", "begin_session"]

SESSION = "X-Session-ID"
"""The HTTP header that names a session."""

_KIND = "text/event-stream"
_ACCEPT = {"Accept": _KIND}
# Servers send a comment every 10 s while a tool runs.
_SILENT_SECONDS = 60.0
_LAST_SECONDS = 0.5


class StreamBroken(Exception):
    """The stream ended before the answer did.

    Args:
        message: What happened.
        reached: Whether the request may have reached the server.
    """

    def __init__(self, message: str, *, reached: bool):
        super().__init__(message)
        self.reached = reached


class StreamError(Exception):
    """The server sent an error in the place of an answer."""


class Stream:
    """One request, and the stream that answers it.

    Args:
        http: The server.

    Attributes:
        task_id: What the server calls the work, once it has said so.
    """

    def __init__(self, http: UpstreamHttp):
        self._http = http
        self.task_id: str | None = None

    async def read(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None, *, plain: bool = False
    ) -> str:
        """Send the request, and read the answer.

        Args:
            path: The path.
            body: The body.
            headers: Further headers.
            plain: Whether the answer may also be plain text.

        Raises:
            ServerFull: The server has no room now.
            StreamBroken: The stream broke.
            StreamError: The server sent an error.
            UpstreamLost: The answer is no stream of events. `BadStatus` if its status is no success.
        """
        sent = {**_ACCEPT, **(headers or {})}
        try:
            async with self._http.answer(
                "POST", path, json=dict(body), headers=sent, silent_seconds=_SILENT_SECONDS
            ) as response:
                if not response.headers.get("Content-Type", "").lower().startswith(_KIND):
                    if plain:
                        return await self._http.text(response, path)
                    self._http.unexpected(path, "is no stream of events")
                return await self._text(path, aiter(httpx2.EventSource(response, MOST_BYTES)))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise StreamBroken(self._why(error), reached=False) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise StreamBroken(self._why(error), reached=True) from None

    async def _text(self, path: str, events: Any) -> str:
        parts: list[str] = []
        size = 0
        async for event in cast("AsyncGenerator[httpx2.ServerSentEvent]", events):
            match event.event:
                case "task_id":
                    self.task_id = event.data.strip()
                case "error":
                    raise StreamError(self._http.scrubbed(event.data))
                case "chunk" | "end":
                    parts.append(event.data)
                    if (size := size + len(event.data)) > MOST_BYTES:
                        self._http.unexpected(path, f"has more than {MOST_BYTES // 2**20} MiB")
                case _:
                    continue
            if event.event == "end":
                await _drained(events)
                return "".join(parts)
        raise StreamBroken("the stream ended before the answer did", reached=True)

    def _why(self, error: Exception) -> str:
        return self._http.scrubbed(str(error)) or type(error).__name__


async def _drained(events: Any) -> None:
    """Read what is left, so that the connection can be used again."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_LAST_SECONDS):
            async for _ in events:
                pass


async def begin_session(http: UpstreamHttp, headers: Mapping[str, str]) -> None:
    """Ask for a session, in which all further requests are made.

    Args:
        http: The server.
        headers: Further HTTP headers.

    Raises:
        ServerFull: The server has no room now.
        UpstreamLost: It cannot be reached, or gives none.
    """
    path, stream = "/create_session", Stream(http)
    try:
        # The first version of the standard has no stream here.
        text = await stream.read(path, {}, headers, plain=True)
    except StreamBroken as broken:
        raise http.unreachable(broken) from None
    except StreamError as error:
        http.unexpected(path, f"is the error {str(error)!r}")
    finally:
        # Also if the rest is missing, so that the session can be ended.
        _enter(http, stream.task_id)
    with suppress(ValueError):
        said: Any = parsed(text)
        _enter(http, cast("dict[str, Any]", said).get("sid") if isinstance(said, dict) else None)
    if SESSION not in http.headers:
        raise UpstreamLost(f"the answer of {http.http.base_url} to {path} has no id of a session")


def _enter(http: UpstreamHttp, session: Any) -> None:
    if isinstance(session, str) and session.isascii() and session.isprintable() and session.strip():
        http.headers[SESSION] = session
