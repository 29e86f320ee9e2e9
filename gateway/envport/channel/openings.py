"""Openings that have names: one that is asked for again, after its answer was lost, opens no second episode."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict

from pydantic_core import to_json

from envport.episodes import EpisodeTable, Opening, OpenRequest
from envport.errors import EnvportError, InvalidRequest

__all__ = ["NamedOpenings"]

_REMEMBERED = 10_000


class _Named:
    """What is remembered of an opening: neither its task and secrets nor what the episode showed first.

    Args:
        request: Digest of the request.

    Attributes:
        request: Digest of the request.
        handle: The handle of the episode, once it is open.
    """

    __slots__ = ("_opened", "handle", "request")

    def __init__(self, request: bytes):
        self.request = request
        self.handle: str | None = None
        self._opened: asyncio.Future[str] | None = None

    async def opened(self) -> str:
        """Wait until the episode is open, and return its handle."""
        if self.handle is not None:
            return self.handle
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
        # Several may wait, and one may leave.
        return await asyncio.shield(self._opened)

    def succeed(self, handle: str) -> None:
        """Tell those who wait that the episode is open."""
        self.handle = handle
        if self._opened is not None:
            self._opened.set_result(handle)

    def fail(self, error: BaseException) -> None:
        """Tell those who wait that the episode could not be opened."""
        if self._opened is None:
            return
        if isinstance(error, EnvportError):
            self._opened.set_exception(error)
            # Otherwise asyncio logs it, if nobody waits any more.
            self._opened.exception()
        else:
            self._opened.cancel()


class NamedOpenings:
    """Opens episodes, each once for its name.

    Args:
        table: The episodes.
    """

    def __init__(self, table: EpisodeTable):
        self._table = table
        self._named: OrderedDict[tuple[str, str], _Named] = OrderedDict()
        self._tasks: set[asyncio.Task[Opening]] = set()

    async def open(self, name: str, request: OpenRequest, *, at_once: bool = False) -> Opening:
        """Open an episode, or return the one that was opened under this name.

        The opening goes on if the caller leaves, so that it can be asked for again. An episode that nobody asks for
        expires.

        Args:
            name: The name, which is the principal's own.
            request: The request.
            at_once: Whether it waits for nothing, which `at_once` has just told.

        Raises:
            InvalidRequest: The name was used for another request.
            UnknownEpisode: The episode that was opened under this name has been closed.
            EnvportError: The episode cannot be opened. The name is free again.
        """
        key = (request.principal, name)
        named = self._named.get(key)
        digest = _digest(request)
        if named is None:
            named = self._begin(key, digest)
            opening = self._open(request, key, named)
            if at_once:
                return await opening
            task = asyncio.get_running_loop().create_task(opening)
            self._tasks.add(task)
            task.add_done_callback(self._done)
        elif named.request != digest:
            raise InvalidRequest(f"The name {name!r} was used for another request: give each opening its own")
        handle = await named.opened()
        return await self._table.opening(self._table.find(handle, request.principal))

    async def stop(self) -> None:
        """Stop the openings that have not ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def at_once(self, name: str, environment: str, principal: str) -> bool:
        """Whether `open` would wait for nothing.

        Args:
            name: The name of the opening.
            environment: Name of the environment.
            principal: Name of the principal.
        """
        if (named := self._named.get((principal, name))) is not None:
            return named.handle is not None
        return self._table.opens_at_once(environment, principal)

    def _begin(self, key: tuple[str, str], digest: bytes) -> _Named:
        named = self._named[key] = _Named(digest)
        if len(self._named) > _REMEMBERED:
            self._named.popitem(last=False)
        return named

    async def _open(self, request: OpenRequest, key: tuple[str, str], named: _Named) -> Opening:
        try:
            opening = await self._table.open(request)
        except BaseException as error:
            if self._named.get(key) is named:
                del self._named[key]
            named.fail(error)
            raise
        named.succeed(opening.handle)
        return opening

    def _done(self, task: asyncio.Task[Opening]) -> None:
        self._tasks.discard(task)
        # Retrieve the exception so that asyncio does not log it. Callers get the error through the name.
        if not task.cancelled():
            task.exception()


def _digest(request: OpenRequest) -> bytes:
    return hashlib.sha256(to_json(request, fallback=repr)).digest()
