"""The callers of episodes: whether they still wait for their answer, and whose turn it is."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import anyio

from envport.errors import CallerLeft, EpisodeBusy

__all__ = ["Leaving", "Turn", "while_connected"]

T = TypeVar("T")
_Receive = Callable[[], Awaitable[Mapping[str, Any]]]

# Most calls end sooner. They cost no task that watches the connection.
_UNWATCHED_SECONDS = 0.05


class _Caller:
    """A client that waits for an answer.

    Attributes:
        left: Whether it has disconnected.
        on_left: Called when it disconnects.
    """

    __slots__ = ("left", "on_left")

    def __init__(self) -> None:
        self.left = False
        self.on_left: Callable[[], None] | None = None

    def leave(self) -> None:
        self.left = True
        if self.on_left is not None:
            self.on_left()


class Leaving:
    """Makes a caller leave, although its connection stays open.

    Attributes:
        said: Whether the caller was told to leave.
    """

    __slots__ = ("_leave", "said")

    def __init__(self) -> None:
        self.said = False
        self._leave: Callable[[], None] | None = None

    def say(self) -> None:
        """Have the caller leave."""
        self.said = True
        if self._leave is not None:
            self._leave()

    def does(self, leave: Callable[[], None]) -> None:
        """Set what makes the caller leave, while it waits."""
        self._leave = leave


_caller_at_hand: ContextVar[_Caller | None] = ContextVar("caller_at_hand", default=None)


async def while_connected(
    receive: _Receive | None,
    work: Callable[[], Awaitable[T]],
    undo: Callable[[T], Awaitable[object]] | None = None,
    leaving: Leaving | None = None,
) -> T:
    """Do some work for a client, and cancel it when the client disconnects.

    Args:
        receive: The ASGI receive channel of the client's request, whose body has been read already; `None` if the
            client has no connection of its own.
        work: The work. A tool call that has begun is finished in any case.
        undo: Called with the result of the work if the client has disconnected in the meantime.
        leaving: Cancels the work too.

    Raises:
        CallerLeft: The client disconnected before the work was done.
    """
    if receive is None:
        return await work()
    caller = _Caller()
    token = _caller_at_hand.set(caller)
    loop = asyncio.get_running_loop()
    watching: asyncio.Task[None] | None = None
    results: list[T] = []
    with anyio.CancelScope() as scope:
        if leaving is not None:
            leaving.does(partial(_leave, caller, scope))

        def watch() -> None:
            nonlocal watching
            watching = loop.create_task(_watch(receive, caller, scope))

        timer = loop.call_later(_UNWATCHED_SECONDS, watch)
        try:
            results.append(await work())
        finally:
            timer.cancel()
            if watching is not None:
                watching.cancel()
            _caller_at_hand.reset(token)
    for result in results:
        if undo is None or not (caller.left or await _has_left(receive)):
            return result
        await undo(result)
    raise CallerLeft


async def _has_left(receive: _Receive) -> bool:
    with anyio.CancelScope() as scope:
        # Only a message that is there already is received.
        scope.cancel()
        return (await receive())["type"] == "http.disconnect"
    return False


async def _watch(receive: _Receive, caller: _Caller, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    _leave(caller, scope)


def _leave(caller: _Caller, scope: anyio.CancelScope) -> None:
    caller.leave()
    scope.cancel()


class Turn:
    """Lets one operation of an episode run at a time, in order of arrival. As a context manager, it takes a turn.

    Args:
        wait_seconds: How long a call waits for another one whose caller has left.
    """

    def __init__(self, wait_seconds: float):
        self._wait_seconds = wait_seconds
        self._lock = asyncio.Lock()
        self._queued = 0
        # The call that has the turn: its tool, its id and its caller.
        self._running: tuple[str, str | None, _Caller | None] | None = None
        self._waiting: list[anyio.CancelScope] = []

    @property
    def waiting(self) -> int:
        """How many operations wait for their turn."""
        return self._queued

    @property
    def free(self) -> bool:
        """Whether a call would get its turn at once."""
        # Between two turns the lock is free, but promised to the first that waits.
        return not (self._lock.locked() or self._queued)

    async def __aenter__(self) -> None:
        await (self._lock.acquire() if self.free else self._acquire())

    async def _acquire(self) -> None:
        self._queued += 1
        try:
            await self._lock.acquire()
        finally:
            self._queued -= 1

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    async def take(self, tool: str, call_id: str | None) -> None:
        """Take a turn for a call.

        Args:
            tool: The tool.
            call_id: Id of the call, if it has one.

        Raises:
            EpisodeBusy: The caller of the running call has left, and the call did not end in time.
        """
        if self.free:
            await self._lock.acquire()
        else:
            await self._wait(call_id)
        caller = _caller_at_hand.get()
        self._running = (tool, call_id, caller)
        if caller is not None:
            caller.on_left = self._limit_waiting

    def give_back(self) -> None:
        """End the turn of a call."""
        if self._running is not None and (caller := self._running[2]) is not None:
            caller.on_left = None
        self._running = None
        for scope in self._waiting:
            scope.deadline = math.inf
        self._lock.release()

    async def _wait(self, call_id: str | None) -> None:
        running = self._running
        if running is not None and call_id is not None and running[1] == call_id:
            # The same call, sent again: it waits for the answer.
            await self._acquire()
            return
        with anyio.CancelScope() as scope:
            self._waiting.append(scope)
            if running is not None and running[2] is not None and running[2].left:
                self._limit(scope)
            try:
                await self._acquire()
                return
            finally:
                self._waiting.remove(scope)
        raise EpisodeBusy(
            f"An earlier call of this episode{f', of {running[0]!r},' if running is not None else ''} is still "
            "running, although its caller has left. This call was not played: send it again in a while."
        )

    def _limit_waiting(self) -> None:
        for scope in self._waiting:
            self._limit(scope)

    def _limit(self, scope: anyio.CancelScope) -> None:
        scope.deadline = anyio.current_time() + self._wait_seconds
