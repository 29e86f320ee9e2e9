"""What OpenAI's responses answer: the items of a turn, and the events that tell of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from envport_bridges.agents.apis.requests import ModelReply, ModelRequest
from envport_bridges.agents.apis.response_tools import CalledFunction
from envport_bridges.agents.apis.wire import random_id, server_sent

__all__ = ["response_body", "response_events"]


def response_body(request: ModelRequest, reply: ModelReply) -> dict[str, Any]:
    """The whole response."""
    return _ended(_begun(request), reply, list(_items(request.extras["called"], reply)))


def response_events(request: ModelRequest, reply: ModelReply) -> Iterator[str]:
    """The events of a streamed response, in the order of OpenAI's API."""
    for number, event in enumerate(_events(request, reply)):
        yield server_sent({**event, "sequence_number": number}, event["type"])


def _events(request: ModelRequest, reply: ModelReply) -> Iterator[dict[str, Any]]:
    begun = _begun(request)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    items = list(_items(request.extras["called"], reply))
    for index, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": _started(item)}
        for piece in _pieces(item):
            yield {**piece, "item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    ended = _ended(begun, reply, items)
    yield {"type": f"response.{ended['status']}", "response": ended}


def _begun(request: ModelRequest) -> dict[str, Any]:
    return {
        "id": random_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": request.max_tokens,
        "metadata": {},
        "model": request.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        # Agents send them with each request and read nothing of them here; Codex's are 40 kB.
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
    }


def _ended(begun: Mapping[str, Any], reply: ModelReply, items: list[dict[str, Any]]) -> dict[str, Any]:
    cut = reply.finish == "length"
    usage = reply.usage
    return {
        **begun,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": items,
        "usage": {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt + usage.completion,
        },
    }


def _items(called: Mapping[str, CalledFunction], reply: ModelReply) -> Iterator[dict[str, Any]]:
    if reply.reasoning is not None:
        thought = {"type": "reasoning_text", "text": reply.reasoning}
        yield {"type": "reasoning", "id": random_id("rs"), "summary": [], "content": [thought], "status": "completed"}
    if reply.text or not reply.tool_calls:
        part: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        status = "incomplete" if reply.finish == "length" else "completed"
        yield {"type": "message", "id": random_id("msg"), "role": "assistant", "status": status, "content": [part]}
    for call in reply.tool_calls:
        item = called.get(call.name, CalledFunction(call.name)).item(call)
        yield {**item, "id": random_id("fc"), "call_id": call.id, "status": "completed"}


def _started(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item before its text is told."""
    empty: dict[str, dict[str, Any]] = {
        "message": {"content": []},
        "reasoning": {"content": []},
        "function_call": {"arguments": ""},
        "custom_tool_call": {"input": ""},
    }
    return {**item, **empty[item["type"]], "status": "in_progress"}


def _pieces(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The events between the first and the last of an item."""
    kind = item["type"]
    if kind == "message":
        (part,) = item["content"]
        at = {"content_index": 0}
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        yield {"type": "response.output_text.delta", **at, "delta": part["text"], "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}
    elif kind == "reasoning":
        (part,) = item["content"]
        at = {"content_index": 0}
        yield {"type": "response.reasoning_text.delta", **at, "delta": part["text"]}
        yield {"type": "response.reasoning_text.done", **at, "text": part["text"]}
    elif kind == "function_call":
        written = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **written}
    else:
        yield {"type": "response.custom_tool_call_input.delta", "delta": item["input"]}
        yield {"type": "response.custom_tool_call_input.done", "input": item["input"]}
