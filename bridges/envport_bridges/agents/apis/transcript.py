"""A conversation in the one form that chat templates take, while a request is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envport_bridges.agents.apis.reading import invalid, unsupported

__all__ = ["Transcript", "function_call"]


def function_call(call_id: str, name: str, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    """A call of a tool, as it stands in a message of the assistant."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Transcript:
    """The messages that were read so far."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._tools: dict[str, str] = {}

    def say(self, role: str, text: str) -> None:
        """Add a message of the system or of the user."""
        self._messages.append({"role": role, "content": text})

    def turn(self, text: str, calls: Sequence[dict[str, Any]]) -> None:
        """Add a turn of the assistant."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        self._messages.append(message)
        for call in calls:
            self._add(message, call)

    def call(self, call: dict[str, Any]) -> None:
        """Add a call to the assistant's turn, or begin one."""
        if not self._messages or self._messages[-1]["role"] != "assistant":
            self._messages.append({"role": "assistant", "content": ""})
        self._add(self._messages[-1], call)

    def result(self, call_id: str, text: str) -> None:
        """Add what a tool returned."""
        message = {"role": "tool", "content": text, "tool_call_id": call_id}
        name = self._tools.get(call_id)
        self._messages.append({**message, "name": name} if name is not None else message)

    def finished(self) -> list[dict[str, Any]]:
        """The messages of a request for the next turn.

        Raises:
            RequestRefused: There is none, or the turn to write has begun already.
        """
        if not self._messages:
            raise invalid("the conversation is empty: it has to have a message")
        if self._messages[-1]["role"] == "assistant":
            raise unsupported(
                "the conversation ends with a turn of the assistant, which cannot be continued: it has to end with a "
                "message of the user or of a tool"
            )
        return self._messages

    def _add(self, message: dict[str, Any], call: dict[str, Any]) -> None:
        message.setdefault("tool_calls", []).append(call)
        self._tools[call["id"]] = call["function"]["name"]
