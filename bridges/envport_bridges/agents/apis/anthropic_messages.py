"""Anthropic's messages (https://docs.anthropic.com/en/api/messages)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envport_bridges.agents.apis.reading import (
    count_of,
    flag_of,
    function_tool,
    hosted_tool,
    ignored_settings,
    invalid,
    list_of,
    model_of,
    object_of,
    refuse_settings,
    stops_of,
    text_of,
    text_of_parts,
    unsupported,
)
from envport_bridges.agents.apis.requests import ModelReply, ModelRequest, RequestRefused, WrittenCall
from envport_bridges.agents.apis.transcript import Transcript, function_call
from envport_bridges.agents.apis.wire import encoded_text, random_id, server_sent

__all__ = ["AnthropicMessages"]

_NOT_HONOURED = ("temperature", "top_p", "top_k", "context_management", "speed")
_OF_THE_SERVER = "it is run by Anthropic's own servers"
_REFUSED = {
    "mcp_servers": _OF_THE_SERVER,
    "container": _OF_THE_SERVER,
    "output_format": "what the policy writes cannot be kept to a schema; ask for the format in the prompt or as a tool",
}
_KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error",
}  # fmt: skip


class AnthropicMessages:
    """Requests and answers of `POST /v1/messages`."""

    path = "/v1/messages"

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        """Read the body of a request; see `ModelApi.read`."""
        refuse_settings(body, _REFUSED)
        output = object_of(body.get("output_config") or {}, "output_config")
        if output.get("format") is not None:
            raise unsupported(f"output_config.format is not supported: {_REFUSED['output_format']}")
        tools, hosted = _tools(body.get("tools"))
        choice = object_of(body.get("tool_choice") or {}, "tool_choice")
        kind = choice.get("type")
        ignored = [*ignored_settings(body, _NOT_HONOURED), *hosted]
        ignored += ["tool_choice"] if kind not in (None, "auto", "none") else []
        ignored += ["tool_choice.disable_parallel_tool_use"] if choice.get("disable_parallel_tool_use") else []
        ignored += ["output_config.effort"] if output.get("effort") is not None else []
        thinking = object_of(body.get("thinking") or {}, "thinking")
        ignored += ["thinking.budget_tokens"] if thinking.get("budget_tokens") is not None else []
        return ModelRequest(
            messages=_messages(body),
            tools=tools if kind != "none" else (),
            model=model_of(body),
            max_tokens=count_of(body, "max_tokens"),
            stop=stops_of(body.get("stop_sequences"), "stop_sequences"),
            stream=flag_of(body, "stream"),
            ignored=tuple(ignored),
            extras={"thinking": thinking.get("type") in ("enabled", "adaptive")},
        )

    def answer(self, request: ModelRequest, reply: ModelReply) -> dict[str, Any]:
        """The body of the answer."""
        return _started(request, reply) | {
            "content": list(_blocks(request, reply)),
            **_ending(reply),
            "usage": _usage(reply) | {"output_tokens": reply.usage.completion},
        }

    def events(self, request: ModelRequest, reply: ModelReply) -> Iterator[str]:
        """The answer as server-sent events, each block in one piece."""
        yield _event({"type": "message_start", "message": _started(request, reply)})
        for index, block in enumerate(_blocks(request, reply)):
            begin, deltas = _in_pieces(block)
            yield _event({"type": "content_block_start", "index": index, "content_block": begin})
            for delta in deltas:
                yield _event({"type": "content_block_delta", "index": index, "delta": delta})
            yield _event({"type": "content_block_stop", "index": index})
        usage = _usage(reply) | {"output_tokens": reply.usage.completion}
        yield _event({"type": "message_delta", "delta": _ending(reply), "usage": usage})
        yield _event({"type": "message_stop"})

    def error(self, refused: RequestRefused) -> dict[str, Any]:
        """The body that tells of a refusal. Clients know a context that is too long by the first words alone."""
        kind = "api_error" if refused.status >= 500 else _KINDS.get(refused.status, "invalid_request_error")
        begin = "prompt is too long: " if refused.code == "context_length_exceeded" else ""
        error = {"type": kind, "message": f"{begin}{refused}", "code": refused.code}
        return {"type": "error", "error": error, "request_id": random_id("req")}


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    transcript = Transcript()
    if system := text_of_parts(body.get("system"), "system", ("text",)):
        transcript.say("system", system)
    for index, given in enumerate(list_of(body.get("messages"), "messages")):
        where = f"messages[{index}]"
        message = object_of(given, where)
        content = message.get("content")
        blocks = list_of(content if isinstance(content, list) else [content], where)
        role = message.get("role")
        if role == "system":
            transcript.say("system", text_of_parts(content, f"{where}.content", ("text",)))
        elif role == "user":
            _read_user(transcript, blocks, f"{where}.content")
        elif role == "assistant":
            _read_assistant(transcript, blocks, f"{where}.content")
        else:
            raise invalid(f"{where}.role has to be user, assistant or system")
    return transcript.finished()


def _read_user(transcript: Transcript, blocks: list[Any], where: str) -> None:
    """What tools returned is a message of its own for each, between what the user says."""
    said: list[Any] = []

    def end_of_text() -> None:
        if said:
            transcript.say("user", text_of_parts(said, where, ("text",)))
            said.clear()

    for index, given in enumerate(blocks):
        block = _block(given, f"{where}[{index}]")
        if block.get("type") != "tool_result":
            said.append(block)
            continue
        end_of_text()
        text = text_of_parts(block.get("content"), f"{where}[{index}].content", ("text",))
        failed = flag_of(block, "is_error")
        call_id = text_of(block.get("tool_use_id"), f"{where}[{index}].tool_use_id")
        transcript.result(call_id, f"Error: {text}" if failed else text)
    end_of_text()


def _read_assistant(transcript: Transcript, blocks: list[Any], where: str) -> None:
    said: list[Any] = []
    calls: list[dict[str, Any]] = []
    for index, given in enumerate(blocks):
        place = f"{where}[{index}]"
        block = _block(given, place)
        kind = block.get("type")
        if kind == "tool_use":
            arguments = object_of(block.get("input"), f"{place}.input")
            name = text_of(block.get("name"), f"{place}.name")
            calls.append(function_call(text_of(block.get("id"), f"{place}.id"), name, arguments))
        elif kind not in ("thinking", "redacted_thinking"):
            said.append(block)
    transcript.turn(text_of_parts(said, where, ("text",)), calls)


def _block(given: Any, where: str) -> dict[str, Any]:
    """A block of a message. Text alone is a block of text."""
    return {"type": "text", "text": given} if isinstance(given, str) else object_of(given, where)


def _tools(given: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The tools that the model is shown, and those that Anthropic's servers would run."""
    shown: list[dict[str, Any]] = []
    others: list[str] = []
    for index, listed in enumerate(list_of(given or [], "tools")):
        tool = object_of(listed, f"tools[{index}]")
        if tool.get("type") not in (None, "custom"):
            others.append(hosted_tool(tool.get("type")))
            continue
        if tool.get("strict"):
            others.append("tools.strict")
        where = f"tools[{index}]"
        shown.append(function_tool(tool.get("name"), tool.get("description"), tool.get("input_schema"), where))
    return shown, list(dict.fromkeys(others))


def _started(request: ModelRequest, reply: ModelReply) -> dict[str, Any]:
    return {
        "id": random_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(reply) | {"output_tokens": 0},
    }


def _blocks(request: ModelRequest, reply: ModelReply) -> Iterator[dict[str, Any]]:
    if reply.reasoning is not None and request.extras["thinking"]:
        # The signature is what Anthropic's servers check. Here no thinking is read.
        yield {"type": "thinking", "thinking": reply.reasoning, "signature": random_id("sig")}
    if reply.text:
        yield {"type": "text", "text": reply.text}
    for call in reply.tool_calls:
        yield _tool_use(call)


def _tool_use(call: WrittenCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}


def _in_pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How a block begins in a stream, and what is added to it."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "tool_use":
        written = {"type": "input_json_delta", "partial_json": encoded_text(block["input"])}
        return {**block, "input": {}}, [written]
    thought = {"type": "thinking_delta", "thinking": block["thinking"]}
    signed = {"type": "signature_delta", "signature": block["signature"]}
    return {"type": "thinking", "thinking": "", "signature": ""}, [thought, signed]


def _ending(reply: ModelReply) -> dict[str, Any]:
    reasons = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
    at_stop = reply.finish == "stop" and reply.stopped_by is not None
    reason = "stop_sequence" if at_stop else reasons[reply.finish]
    return {"stop_reason": reason, "stop_sequence": reply.stopped_by if at_stop else None}


def _usage(reply: ModelReply) -> dict[str, int]:
    usage = reply.usage
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
    }


def _event(event: dict[str, Any]) -> str:
    return server_sent(event, event["type"])
