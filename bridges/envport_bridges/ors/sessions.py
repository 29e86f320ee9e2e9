"""The sessions of a server by their ids, from the request that creates one until it is deleted or abandoned."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from envport.errors import EnvportError, UnknownEpisode
from envport_bridges.ors.messages import OrsError
from envport_bridges.ors.session import ServedOrsSession

__all__ = ["OrsSessions", "SessionKey"]

logger = logging.getLogger(__name__)

SessionKey = tuple[str, str]
"""Name of the principal, and the id of its session."""


class _Place:
    """Where a session is, or will be when its episode is open."""

    def __init__(self, request: bytes):
        self.request = request
        self.settled = asyncio.Event()
        self.session: ServedOrsSession | None = None
        self.used = asyncio.get_running_loop().time()
        self.timer: asyncio.TimerHandle | None = None


class OrsSessions:
    """Sessions by their ids.

    Args:
        reap_seconds: How long a session may be unused before it is deleted.
    """

    def __init__(self, reap_seconds: float):
        self._reap_seconds = reap_seconds
        self._places: dict[SessionKey, _Place] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def create(
        self, key: SessionKey, request: bytes, open_session: Callable[[], Awaitable[ServedOrsSession]]
    ) -> ServedOrsSession:
        """Create a session, or return the one that was created by the same request, which may have come twice.

        Args:
            key: The session's key.
            request: A digest of the request.
            open_session: Opens the episode.

        Raises:
            OrsError: The id is in use for another request.
            EnvportError: The episode cannot be opened.
        """
        while (known := self._places.get(key)) is not None:
            if known.request != request:
                raise OrsError(400, "Session already exists: it was created with another task")
            await known.settled.wait()
            if known.session is not None:
                return known.session
        place = self._places[key] = _Place(request)
        try:
            place.session = await open_session()
        except BaseException:
            del self._places[key]
            raise
        finally:
            place.settled.set()
        self._reap_later(key, place)
        return place.session

    def find(self, key: SessionKey) -> ServedOrsSession | None:
        """The session of that key, which is in use by this.

        Raises:
            OrsError: Its episode is not open yet.
        """
        place = self._places.get(key)
        if place is None:
            return None
        if place.session is None:
            raise OrsError(503, "Environment still starting.", starting=True)
        place.used = asyncio.get_running_loop().time()
        return place.session

    async def delete(self, key: SessionKey) -> None:
        """Delete a session, if there is one, and close its episode."""
        place = self._places.get(key)
        if place is None or place.session is None:
            return
        del self._places[key]
        if place.timer is not None:
            place.timer.cancel()
        try:
            await place.session.close()
        except UnknownEpisode:
            # It is forgotten already.
            return

    def _reap_later(self, key: SessionKey, place: _Place) -> None:
        loop = asyncio.get_running_loop()
        place.timer = loop.call_at(place.used + self._reap_seconds, self._reap, key, place)

    def _reap(self, key: SessionKey, place: _Place) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < place.used + self._reap_seconds:
            self._reap_later(key, place)
            return
        logger.info("the ORS session %s was unused for %g s and is deleted", key[1], self._reap_seconds)
        closing = loop.create_task(self._abandon(key))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _abandon(self, key: SessionKey) -> None:
        try:
            await self.delete(key)
        except EnvportError as error:
            logger.warning("the episode of the ORS session %s cannot be closed: %s", key[1], error)
