"""OpenAI's chat completions (https://platform.openai.com/docs/api-reference/chat)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from envport_bridges.agents.apis.reading import (
    arguments_of,
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
from envport_bridges.agents.apis.requests import ModelReply, ModelRequest, RequestRefused, TokenUsage
from envport_bridges.agents.apis.transcript import Transcript, function_call
from envport_bridges.agents.apis.wire import encoded_text, random_id, server_sent

__all__ = ["ChatCompletions", "openai_error", "openai_tool_choice", "refuse_format"]

_NOT_HONOURED = (
    "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "reasoning_effort", "verbosity", "web_search_options",
)  # fmt: skip
_REFUSED = {
    "logprobs": "the log probabilities of tokens are kept for training, and not told",
    "top_logprobs": "the log probabilities of tokens are kept for training, and not told",
    "functions": "it was replaced by tools",
    "function_call": "it was replaced by tool_choice",
    "audio": "the policy writes text only",
}
_TEXT = ("text", "input_text", "output_text", "refusal")
_ROLES = "system, developer, user, assistant or tool"


class ChatCompletions:
    """Requests and answers of `POST /v1/chat/completions`."""

    path = "/v1/chat/completions"

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        """Read the body of a request; see `ModelApi.read`."""
        if body.get("n") not in (None, 1):
            raise unsupported("n has to be 1: the policy writes one answer to a request")
        refuse_settings(body, _REFUSED)
        if body.get("modalities") not in (None, ["text"]):
            raise unsupported("modalities has to be ['text']: the policy writes text only")
        if body.get("response_format") is not None:
            refuse_format(body["response_format"], "response_format")
        tools, hosted = _tools(body.get("tools"))
        shown, not_forced = openai_tool_choice(body)
        options = body.get("stream_options")
        return ModelRequest(
            messages=_messages(list_of(body.get("messages"), "messages")),
            tools=tools if shown else (),
            model=model_of(body),
            max_tokens=count_of(body, "max_completion_tokens", "max_tokens"),
            stop=stops_of(body.get("stop"), "stop"),
            stream=flag_of(body, "stream"),
            ignored=(*ignored_settings(body, _NOT_HONOURED), *not_forced, *hosted),
            extras={"usage": options is not None and flag_of(object_of(options, "stream_options"), "include_usage")},
        )

    def answer(self, request: ModelRequest, reply: ModelReply) -> dict[str, Any]:
        """The body of the answer."""
        choice = {"index": 0, "message": _message(reply), "logprobs": None, "finish_reason": reply.finish}
        return _base(request, "chat.completion") | {"choices": [choice], "usage": _usage(reply.usage)}

    def events(self, request: ModelRequest, reply: ModelReply) -> Iterator[str]:
        """The answer as server-sent events: one chunk with the whole turn, and one that ends it."""
        base = _base(request, "chat.completion.chunk")
        message = _message(reply)
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
        for delta, finish in ((message, None), ({}, reply.finish)):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield server_sent(base | {"choices": [choice]})
        if request.extras["usage"]:
            yield server_sent(base | {"choices": [], "usage": _usage(reply.usage)})
        yield "data: [DONE]\n\n"

    def error(self, refused: RequestRefused) -> dict[str, Any]:
        """The body that tells of a refusal."""
        return openai_error(refused)


def openai_error(refused: RequestRefused) -> dict[str, Any]:
    """A refusal, as both of OpenAI's APIs tell it."""
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = "server_error" if refused.status >= 500 else kinds.get(refused.status, "invalid_request_error")
    return {"error": {"message": str(refused), "type": kind, "param": None, "code": refused.code}}


def openai_tool_choice(body: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Whether the tools are shown, and what of `tool_choice` and `parallel_tool_calls` is not honoured."""
    choice = body.get("tool_choice")
    if choice is not None and not isinstance(choice, (str, dict)):
        raise invalid("tool_choice has to be auto, none, required, or an object")
    ignored = ["tool_choice"] if choice not in (None, "auto", "none") else []
    if body.get("parallel_tool_calls") is not None and not flag_of(body, "parallel_tool_calls"):
        ignored.append("parallel_tool_calls")
    return choice != "none", ignored


def refuse_format(value: Any, where: str) -> None:
    """Refuse any format of the answer but text.

    Raises:
        RequestRefused: It is another one.
    """
    if object_of(value, where).get("type") not in (None, "text"):
        raise unsupported(
            f"{where}.type has to be text: what the policy writes cannot be kept to a schema. Ask for the format in "
            "the prompt, or give it as a tool"
        )


def _messages(listed: list[Any]) -> list[dict[str, Any]]:
    transcript = Transcript()
    for index, given in enumerate(listed):
        where = f"messages[{index}]"
        message = object_of(given, where)
        text = text_of_parts(message.get("content"), f"{where}.content", _TEXT)
        role = message.get("role")
        if role in ("system", "developer"):
            transcript.say("system", text)
        elif role == "user":
            transcript.say("user", text)
        elif role == "assistant":
            calls = list_of(message.get("tool_calls") or [], f"{where}.tool_calls")
            transcript.turn(text, [_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(calls)])
        elif role == "tool":
            transcript.result(text_of(message.get("tool_call_id"), f"{where}.tool_call_id"), text)
        else:
            raise invalid(f"{where}.role has to be {_ROLES}")
    return transcript.finished()


def _call(given: Any, where: str) -> dict[str, Any]:
    call = object_of(given, where)
    function = object_of(call.get("function"), f"{where}.function")
    name = text_of(function.get("name"), f"{where}.function.name")
    arguments = function.get("arguments")
    place = f"{where}.function.arguments"
    read = object_of(arguments, place) if isinstance(arguments, dict) else arguments_of(text_of(arguments, place))
    return function_call(text_of(call.get("id"), f"{where}.id"), name, read)


def _tools(given: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The tools that the model is shown, and the others."""
    shown: list[dict[str, Any]] = []
    others: list[str] = []
    for index, listed in enumerate(list_of(given or [], "tools")):
        where = f"tools[{index}]"
        tool = object_of(listed, where)
        if tool.get("type") != "function":
            others.append(hosted_tool(tool.get("type")))
            continue
        function = object_of(tool.get("function"), f"{where}.function")
        if function.get("strict"):
            others.append("tools.strict")
        place = f"{where}.function"
        shown.append(
            function_tool(function.get("name"), function.get("description"), function.get("parameters"), place)
        )
    return shown, list(dict.fromkeys(others))


def _base(request: ModelRequest, kind: str) -> dict[str, Any]:
    return {"id": random_id("chatcmpl"), "object": kind, "created": int(time.time()), "model": request.model}


def _message(reply: ModelReply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning is not None:
        # OpenAI's own API does not tell it. This is the name that servers of open models use.
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [
            function_call(call.id, call.name, encoded_text(call.arguments)) for call in reply.tool_calls
        ]
    return message


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
