"""From sampled ids to the turn that an agent is answered with."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, cast

from envport_bridges.agents.apis.requests import FinishReason, ModelReply, ModelRequest, TokenUsage, WrittenCall
from envport_bridges.agents.model.calls import ModelCall
from envport_bridges.agents.model.chat import ChatFormat
from envport_bridges.agents.model.contexts import ModelContext
from envport_bridges.agents.model.sampling import Sampled

__all__ = ["written_call"]


def written_call(request: ModelRequest, context: ModelContext, sampled: Sampled, chat: ChatFormat) -> ModelCall:
    """The turn that was sampled for a request.

    Args:
        request: The request.
        context: Its context.
        sampled: What was sampled; more than the context has room for is cut off.
        chat: The model's chat format.
    """
    ids, before_stop, stopped_by = _cut(sampled.ids[: context.room], request.stop, chat)
    if before_stop is not None:
        message: dict[str, Any] = {"role": "assistant", "content": before_stop}
    else:
        message = _message(ids, context.prompt_ids, request, chat)
    calls = tuple(_call(call) for call in message.get("tool_calls") or ())
    usage = TokenUsage(
        len(context.prompt_ids), len(ids), cached=len(context.parent.ids) if context.parent is not None else 0
    )
    reply = ModelReply(
        text=message["content"],
        finish=_finish(ids, stopped_by, calls, chat),
        usage=usage,
        reasoning=message.get("reasoning_content"),
        tool_calls=calls,
        stopped_by=stopped_by,
    )
    return ModelCall(
        context.conversation.then(_echo(reply)),
        request,
        message,
        reply,
        context.prompt_ids,
        ids,
        sampled.logprobs[: len(ids)] if sampled.logprobs is not None else None,
        context.parent,
    )


def _message(ids: Sequence[int], prefix: Sequence[int], request: ModelRequest, chat: ChatFormat) -> dict[str, Any]:
    read = chat.read(ids, prefix, request.tools)
    calls = cast("Sequence[Mapping[str, Any]]", read.get("tool_calls") or ())
    if not all(isinstance(call["function"].get("arguments"), dict) for call in calls):
        # No API can carry such a call, so the agent is shown what was written.
        return {"role": "assistant", "content": chat.text(ids)}
    message: dict[str, Any] = {"role": "assistant", "content": read.get("content") or ""}
    if reasoning := read.get("reasoning_content") or read.get("thinking"):
        message["reasoning_content"] = reasoning
    if calls and request.tools:
        message["tool_calls"] = calls
    elif calls:
        message["content"] = chat.text(ids)
    return message


def _call(call: Mapping[str, Any]) -> WrittenCall:
    # Random, because agents merge or drop calls whose ids they have seen before.
    return WrittenCall(f"call_{secrets.token_hex(12)}", call["function"]["name"], call["function"]["arguments"])


def _echo(reply: ModelReply) -> dict[str, Any]:
    """The turn as it comes back in the agent's next request."""
    calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.text, "tool_calls": calls}


def _finish(ids: Sequence[int], stopped_by: str | None, calls: Sequence[WrittenCall], chat: ChatFormat) -> FinishReason:
    if stopped_by is not None:
        return "stop"
    if not ids or ids[-1] not in chat.end_ids:
        return "length"
    return "tool_calls" if calls else "stop"


def _cut(ids: list[int], stop: Sequence[str], chat: ChatFormat) -> tuple[list[int], str | None, str | None]:
    """The ids up to the one that completes a stop text, the text before that, and the stop text."""
    whole = chat.text(ids) if stop else ""
    found = [(whole.index(text), text) for text in stop if text and text in whole]
    if not found:
        return ids, None, None
    start, text = min(found)
    # More ids never make less text, except in the middle of a character.
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        if text in chat.text(ids[:middle]):
            high = middle
        else:
            low = middle + 1
    return ids[:low], whole[:start], text
