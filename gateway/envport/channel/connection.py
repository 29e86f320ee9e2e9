"""One connection of the rollout channel: reads requests, carries them out, and answers each when it is done."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup
from pydantic_core import to_json
from starlette.types import Message, Receive, Send

from envport.access import Principal
from envport.channel.answers import ChannelAnswers
from envport.channel.messages import BROKEN, ChannelRequest, Malformed, answered, refused, unknown_method
from envport.channel.openings import NamedOpenings
from envport.episodes import (
    EpisodeTable,
    Found,
    OpenFields,
    Opening,
    call_id_of,
    tool_error,
    tool_result,
    while_connected,
)
from envport.errors import CallerLeft, EnvportError, InvalidRequest, PermissionDenied, UnknownTool
from envport.types import CHANNEL_LINES, EpisodeInfo, LegalCalls

__all__ = ["ChannelConnection"]

logger = logging.getLogger(__name__)

_EPISODE = "envport/episode_id"
_MOST_AT_ONCE = 4096
_IN_A_ROW = 64
_LONGEST_NAME = 200
_POLICY_VIOLATION = 1008

Method = Callable[["ChannelConnection", dict[str, Any]], Awaitable[bytes]]


class ChannelConnection:
    """One connection.

    Calls of one episode, and what ends it, are carried out in the order in which they come; everything else at once.

    Args:
        table: The episodes.
        openings: Opens episodes that have names.
        principal: Who is connected.
        admitted: Whether the token is still valid.
        lines: Whether a message may hold several requests or answers, one a line.
        receive: The ASGI receive channel of the WebSocket.
        send: The ASGI send channel.
    """

    def __init__(
        self,
        table: EpisodeTable,
        openings: NamedOpenings,
        principal: Principal,
        admitted: Callable[[], bool],
        receive: Receive,
        send: Send,
        *,
        lines: bool,
    ):
        self._table = table
        self._openings = openings
        self._principal = principal
        self._admitted = admitted
        self._receive = receive
        self._send = send
        self._lines = lines
        self._answers = ChannelAnswers(send, lines=lines)
        # How many requests of each episode run in a task. A call that could be made at once must not overtake them.
        self._running: Counter[str] = Counter()
        self._places = anyio.Semaphore(_MOST_AT_ONCE, fast_acquire=True)
        self._left = anyio.Event()

    async def serve(self) -> None:
        """Serve until the client leaves. Calls that have begun are finished and recorded."""
        await self._receive()
        await self._send({"type": "websocket.accept", "subprotocol": CHANNEL_LINES if self._lines else None})
        async with anyio.create_task_group() as tasks:
            try:
                number = count(1)
                while (message := await self._receive())["type"] != "websocket.disconnect":
                    if not self._admitted():
                        await self._send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                        break
                    self._answers.begin()
                    for request in self._requests(message):
                        # Reading messages that are already there never yields. So yield now and then, for other tasks.
                        if next(number) % _IN_A_ROW == 0:
                            await asyncio.sleep(0)
                        await self._take(request, tasks)
                    await self._answers.flush()
            finally:
                self._left.set()
                tasks.cancel_scope.cancel()

    def _requests(self, message: Message) -> list[bytes] | list[str]:
        """The requests in a message, as JSON."""
        data: bytes | None = message.get("bytes")
        if data is not None:
            return [line for line in data.split(b"\n") if line] if self._lines else [data]
        text: str = message["text"]
        return [line for line in text.split("\n") if line] if self._lines else [text]

    async def _take(self, data: bytes | str, tasks: TaskGroup) -> None:
        text = type(data) is str
        try:
            request = ChannelRequest.read(data)
        except Malformed as malformed:
            await self._answers.add(malformed.answer, text=text)
            return
        if request is None:
            return
        handle = _handle_of(request)
        found = self._idle(request.method, handle)
        if found is not None or self._opens_at_once(request):
            await self._answers.add(await self._carried_out(request, found, at_once=True), text=text)
            return
        if not self._places.value:
            await self._answers.flush()
        await self._places.acquire()
        self._running[handle] += 1
        tasks.start_soon(self._carry_out, request, handle, text)

    async def _carry_out(self, request: ChannelRequest, handle: str, text: bool) -> None:
        try:
            await self._answers.add(
                await while_connected(self._disconnected, partial(self._carried_out, request)), text=text
            )
            await self._answers.flush()
        except CallerLeft:
            return
        finally:
            self._places.release()
            self._running[handle] -= 1
            if not self._running[handle]:
                del self._running[handle]

    async def _carried_out(
        self, request: ChannelRequest, found: Found | None = None, *, at_once: bool = False
    ) -> bytes:
        """Carry out a request, whose episode may have been found already, and return the answer.

        Args:
            request: The request.
            found: Its episode.
            at_once: Whether it waits for nothing.
        """
        try:
            method = _METHODS.get(request.method)
            if method is None:
                return unknown_method(request, list(_METHODS))
            if self._principal.episode is not None and (
                request.method not in _OF_PLAYERS or _handle_of(request) != self._principal.episode
            ):
                raise PermissionDenied("this token plays one episode: it may call and list the tools of that one")
            if method is ChannelConnection.call:
                return answered(request.id, await self.call(request.params, found))
            if method is ChannelConnection.open:
                return answered(request.id, await self.open(request.params, at_once=at_once))
            return answered(request.id, await method(self, request.params))
        except EnvportError as error:
            return refused(request.id, error)
        except Exception:
            logger.exception("%s on the rollout channel broke", request.method)
            return refused(request.id, BROKEN)

    async def _disconnected(self) -> Mapping[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    def _idle(self, method: str, handle: str) -> Found | None:
        """The episode, if it can do what is asked for without waiting for anything."""
        if handle in self._running or method not in _OF_EPISODES:
            return None
        try:
            found = self._table.find(handle, self._principal.name)
        except EnvportError:
            return None
        if method == "episodes/finish" and found.spec.scored:
            return None
        return found if self._table.at_once(found) else None

    def _opens_at_once(self, request: ChannelRequest) -> bool:
        if request.method != "episodes/open":
            return False
        name, environment = request.params.get("name"), request.params.get("environment")
        if type(name) is not str or type(environment) is not str:
            return True
        return self._openings.at_once(name, environment, self._principal.name)

    def _episode(self, params: dict[str, Any]) -> Found:
        return self._table.find(_named(params), self._principal.name)

    async def open(self, params: dict[str, Any], *, at_once: bool = False) -> bytes:
        """Open an episode: `name`, and the fields of `POST /episodes`, whose `reward_in_meta` is true here."""
        name = params.pop("name", None)
        if type(name) is not str or not 1 <= len(name) <= _LONGEST_NAME:
            raise InvalidRequest(f"name: an opening needs a name of 1 to {_LONGEST_NAME} characters, its own")
        fields = OpenFields.read({"reward_in_meta": True, **params})
        if fields.mint_token:
            raise InvalidRequest("mint_token: tokens of single episodes are minted by POST /episodes")
        return _opened(await self._openings.open(name, fields.request(self._principal.name), at_once=at_once))

    async def call(self, params: dict[str, Any], found: Found | None = None) -> bytes:
        """Call a tool: MCP's `name`, `arguments` and `_meta`, which names the episode and may name the call."""
        meta, name, arguments = params.get("_meta"), params.get("name"), params.get("arguments", {})
        if type(meta) is not dict or type(name) is not str or type(arguments) is not dict:
            raise InvalidRequest(f"a call needs name, arguments (an object) and _meta with {_EPISODE!r}")
        call_id = call_id_of(cast("dict[str, Any]", meta))
        try:
            found = found or self._table.find(_handle_in(meta), self._principal.name)
            result = await self._table.call(found, name, cast("dict[str, Any]", arguments), None, call_id)
            return to_json(tool_result(result))
        except (UnknownTool, CallerLeft):
            raise
        except EnvportError as error:
            return to_json(tool_error(error))

    async def tools(self, params: dict[str, Any]) -> bytes:
        """List the tools of an episode."""
        opening = await self._table.opening(self._table.find(_handle_in(params.get("_meta")), self._principal.name))
        return to_json({"tools": opening.tools.listing, "resultType": "complete"})

    async def legal_calls(self, params: dict[str, Any]) -> bytes:
        """Say which calls make sense now."""
        return to_json(LegalCalls(calls=await self._table.legal_calls(self._episode(params))))

    async def state(self, params: dict[str, Any]) -> bytes:
        """Tell the state of an episode."""
        return _info(await self._table.info(_named(params), self._principal.name))

    async def keep_alive(self, params: dict[str, Any]) -> bytes:
        """Restart the idle timer of an episode."""
        return _info(await self._table.keep_alive(self._episode(params)))

    async def finish(self, params: dict[str, Any]) -> bytes:
        """End an episode, and wait for its reward."""
        return _info(await self._table.finish(_named(params), self._principal.name))

    async def close(self, params: dict[str, Any]) -> bytes:
        """Close an episode."""
        return _info(await self._table.close(_named(params), self._principal.name))


_METHODS: dict[str, Method] = {
    "tools/call": ChannelConnection.call,
    "tools/list": ChannelConnection.tools,
    "episodes/open": ChannelConnection.open,
    "episodes/state": ChannelConnection.state,
    "episodes/legal_calls": ChannelConnection.legal_calls,
    "episodes/keep_alive": ChannelConnection.keep_alive,
    "episodes/finish": ChannelConnection.finish,
    "episodes/close": ChannelConnection.close,
}
_OF_EPISODES = frozenset({"tools/call", "episodes/state", "episodes/keep_alive", "episodes/finish", "episodes/close"})
_OF_PLAYERS = frozenset({"tools/call", "tools/list"})


def _handle_of(request: ChannelRequest) -> str:
    """The handle that a request names, or nothing."""
    if request.method in _OF_PLAYERS:
        return _handle_in(request.params.get("_meta"))
    named = request.params.get("episode_id")
    return named if type(named) is str else ""


def _handle_in(meta: Any) -> str:
    named = cast("dict[str, Any]", meta).get(_EPISODE) if type(meta) is dict else None
    return named if type(named) is str else ""


def _named(params: dict[str, Any]) -> str:
    named = params.get("episode_id")
    if type(named) is not str or len(params) > 1:
        raise InvalidRequest("params has to be {episode_id}, with the handle of an episode")
    return named


def _opened(opening: Opening) -> bytes:
    return to_json(
        {
            "episode_id": opening.handle,
            "prompt": opening.prompt,
            "observation": opening.observation,
            "seed": opening.seed,
            "fingerprint": opening.tools.fingerprint,
            "tools": opening.tools.listing if opening.spec.tools_vary else None,
        }
    )


def _info(info: EpisodeInfo) -> bytes:
    return info.__pydantic_serializer__.to_json(info)
