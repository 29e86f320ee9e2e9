"""A caller of the rollout channel, for the load generator. All callers of a job share one WebSocket."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self
from uuid import uuid4

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from envport.bench.jobs import BadAnswer
from envport.bench.targets import BenchTarget
from envport.types import CHANNEL_LINES

__all__ = ["ChannelCaller", "ChannelLine"]


class ChannelLine:
    """One WebSocket, with the requests that wait for their answers.

    What is asked in one turn of the event loop goes in one message, as our clients do it, if the server agrees.

    Args:
        url: Address of the server.
        path: Path of the endpoint.
    """

    def __init__(self, url: str, path: str):
        self._address = f"ws{url.removeprefix('http')}{path}"
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._outgoing: list[bytes] = []
        self._number = 0
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return the message that comes back with its id."""
        async with self._lock:
            if self._socket is None:
                self._socket = await connect(
                    self._address, compression=None, max_size=None, subprotocols=[Subprotocol(CHANNEL_LINES)]
                )
                self._reading = asyncio.create_task(self._read(self._socket))
        self._number += 1
        number = self._number
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._outgoing.append(json.dumps(message).encode())
        if len(self._outgoing) == 1:
            await self._send_with_others(self._socket)
        return json.loads(await answer)

    async def _send_with_others(self, socket: ClientConnection) -> None:
        await asyncio.sleep(0)  # The others of this turn are asked meanwhile.
        outgoing, self._outgoing = self._outgoing, []
        for message in outgoing if socket.subprotocol is None else [b"\n".join(outgoing)]:
            await socket.send(message)

    async def _read(self, socket: ClientConnection) -> None:
        async for data in socket:
            for line in (data if isinstance(data, bytes) else data.encode()).split(b"\n"):
                self._waiting.pop(json.loads(line)["id"]).set_result(line)

    async def close(self) -> None:
        """Close the WebSocket."""
        if self._socket is not None:
            await self._socket.close()


class ChannelCaller:
    """One caller, with an episode if the target plays episodes.

    Args:
        target: The target to call.
        line: The WebSocket that it shares with the others.
    """

    def __init__(self, target: BenchTarget, line: ChannelLine):
        self._target = target
        self._line = line
        self._episode = ""
        self._calls = 0

    async def begin(self) -> Self:
        """Open an episode, if the target plays them."""
        if self._target.plays:
            self._episode = await self.open_episode()
        return self

    async def open_episode(self) -> str:
        """Open an episode, and return its handle."""
        return (await self._result("episodes/open", {"environment": "echo", "name": uuid4().hex}))["episode_id"]

    def sit_down(self, handle: str) -> None:
        """Play this episode from now on."""
        self._episode = handle

    async def call(self) -> None:
        """Call the tool, and check its answer."""
        self._calls += 1
        said = f"{self._episode} says {self._calls}"
        meta = {"envport/episode_id": self._episode}
        params = {"name": "echo", "arguments": {"message": said}, "_meta": meta}
        answer = await self._line.ask("tools/call", params)
        if self._target.plays:
            result = answer.get("result", {})
            right = [block.get("text") for block in result.get("content", [])] == [said] and not result.get("isError")
        else:
            right = answer.get("params") == params
        if not right:
            raise BadAnswer(f"{self._target.name} was told {said!r} and answered {answer!r}")

    async def end(self) -> None:
        """Close the episode."""
        if self._episode:
            await self.close_episode(self._episode)

    async def close_episode(self, handle: str) -> dict[str, Any]:
        """Close an episode, and return its last state."""
        return await self._result("episodes/close", {"episode_id": handle})

    async def hang_up(self) -> None:
        """Close the connection that it shares."""
        await self._line.close()

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = await self._line.ask(method, params)
        if "result" not in answer:
            raise BadAnswer(f"{method} was answered {answer!r}")
        return answer["result"]
