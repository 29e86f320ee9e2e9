"""A model that keeps to a script, behind the real endpoint."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from envport_bridges.agents.apis.requests import ModelReply, ModelRequest, TokenUsage, WrittenCall
from envport_bridges.agents.model.endpoint import ModelEndpoint
from envport_bridges.agents.model.sessions import ModelSession

Script = Callable[[ModelRequest], ModelReply]

USAGE = TokenUsage(prompt=11, completion=3, cached=7)
POSITIONS = re.compile(r"Ball in column (\d+), paddle in column (\d+)")


def says(text: str, **settings: Any) -> ModelReply:
    return ModelReply(text=text, **{"finish": "stop", "usage": USAGE, **settings})


def calls(*made: tuple[str, Mapping[str, Any]], text: str = "", **settings: Any) -> ModelReply:
    written = tuple(WrittenCall(f"call_{secrets.token_hex(8)}", name, arguments) for name, arguments in made)
    return says(text, finish="tool_calls", tool_calls=written, **settings)


def catches(request: ModelRequest) -> ModelReply:
    """Plays catch with whatever the agent calls the tool, and ends when the game does."""
    move = next((name for name in names_of(request) if name.endswith("move")), None)
    boards = [message["content"] for message in request.messages if POSITIONS.search(message["content"])]
    if move is None or not boards or "The game is over" in boards[-1]:
        return says("Done.")
    ball, paddle = map(int, POSITIONS.findall(boards[-1])[-1])
    direction = "stay" if ball == paddle else "right" if ball > paddle else "left"
    return calls((move, {"direction": direction}), text="I move.")


def names_of(request: ModelRequest) -> list[str]:
    return [tool["function"]["name"] for tool in request.tools]


def replied(reply: ModelReply) -> dict[str, Any]:
    """A reply as the message that the agent has to send back."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in reply.tool_calls
        ]
    return message


class ScriptedPolicy:
    """Answers by a script, and keeps what it was asked.

    Attributes:
        turns: Each request with its reply, in the order of the replies.
        asked: The requests, also those that got no reply.
        resent: What each request said of being sent again.
        cancelled: How many were cancelled.
        hold: Requests wait until it is set.
    """

    def __init__(self, script: Script):
        self._script = script
        self.turns: list[tuple[ModelRequest, ModelReply]] = []
        self.asked: list[ModelRequest] = []
        self.resent: list[bool | None] = []
        self.cancelled = 0
        self.hold: asyncio.Event | None = None

    async def reply(self, session: ModelSession, request: ModelRequest, *, resent: bool | None) -> ModelReply:
        self.asked.append(request)
        self.resent.append(resent)
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        reply = self._script(request)
        self.turns.append((request, reply))
        return reply

    def conversations(self) -> list[list[tuple[ModelRequest, ModelReply]]]:
        """The turns, each with those that it extends: the same tools, the messages of the one before, and its reply."""
        found: list[list[tuple[ModelRequest, ModelReply]]] = []
        for request, reply in self.turns:
            for one in found:
                before, said = one[-1]
                begins = [*before.messages, replied(said)]
                if request.tools == before.tools and list(request.messages[: len(begins)]) == begins:
                    one.append((request, reply))
                    break
            else:
                found.append([(request, reply)])
        return found


Serve = Callable[..., tuple[ModelEndpoint, ScriptedPolicy]]
"""Serves a policy with a script until the test ends: the fixture `serve`."""
