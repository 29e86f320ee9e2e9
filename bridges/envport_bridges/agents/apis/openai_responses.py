"""OpenAI's responses (https://platform.openai.com/docs/api-reference/responses)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envport_bridges.agents.apis.chat_completions import openai_error, openai_tool_choice, refuse_format
from envport_bridges.agents.apis.reading import (
    arguments_of,
    count_of,
    flag_of,
    ignored_settings,
    invalid,
    list_of,
    model_of,
    object_of,
    refuse_settings,
    text_of,
    text_of_parts,
    unsupported,
)
from envport_bridges.agents.apis.requests import ModelReply, ModelRequest, RequestRefused
from envport_bridges.agents.apis.response_answers import response_body, response_events
from envport_bridges.agents.apis.response_tools import ResponseTools, shown_name
from envport_bridges.agents.apis.transcript import Transcript, function_call

__all__ = ["OpenaiResponses"]

_NOT_HONOURED = ("temperature", "top_p", "max_tool_calls", "reasoning")
_NOTHING_IS_STORED = "nothing is stored between requests. Send the whole conversation as input"
_REFUSED = {
    "previous_response_id": _NOTHING_IS_STORED,
    "conversation": _NOTHING_IS_STORED,
    "prompt": "there are no stored prompts. Send instructions and input",
    "background": "a request is answered at once. Leave it out",
    "top_logprobs": "the log probabilities of tokens are kept for training, and not told",
}
_TEXT = ("input_text", "output_text", "text", "refusal")
_RESULTS = ("function_call_output", "custom_tool_call_output")


class OpenaiResponses:
    """Requests and answers of `POST /v1/responses`."""

    path = "/v1/responses"

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        """Read the body of a request; see `ModelApi.read`."""
        refuse_settings(body, _REFUSED)
        text = object_of(body.get("text") or {}, "text")
        if text.get("format") is not None:
            refuse_format(text["format"], "text.format")
        include = list_of(body.get("include") or [], "include")
        if "message.output_text.logprobs" in include:
            raise unsupported(f"include: message.output_text.logprobs is not supported: {_REFUSED['top_logprobs']}")
        tools = ResponseTools.read(body.get("tools"))
        shown, not_forced = openai_tool_choice(body)
        ignored = [*ignored_settings(body, _NOT_HONOURED), *not_forced, *tools.ignored]
        ignored += ["text.verbosity"] if text.get("verbosity") is not None else []
        ignored += ["truncation"] if body.get("truncation") not in (None, "disabled") else []
        return ModelRequest(
            messages=_messages(body),
            tools=tools.shown if shown else (),
            model=model_of(body),
            max_tokens=count_of(body, "max_output_tokens"),
            stream=flag_of(body, "stream"),
            ignored=tuple(ignored),
            extras={"called": tools.called},
        )

    def answer(self, request: ModelRequest, reply: ModelReply) -> dict[str, Any]:
        """The body of the answer."""
        return response_body(request, reply)

    def events(self, request: ModelRequest, reply: ModelReply) -> Iterator[str]:
        """The answer as server-sent events, each text in one piece."""
        return response_events(request, reply)

    def error(self, refused: RequestRefused) -> dict[str, Any]:
        """The body that tells of a refusal."""
        return openai_error(refused)


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    transcript = Transcript()
    instructions = body.get("instructions")
    if instructions:
        transcript.say("system", text_of(instructions, "instructions"))
    given = body.get("input")
    if isinstance(given, str):
        transcript.say("user", given)
        return transcript.finished()
    for index, listed in enumerate(list_of(given, "input")):
        _read_item(transcript, object_of(listed, f"input[{index}]"), f"input[{index}]")
    return transcript.finished()


def _read_item(transcript: Transcript, item: Mapping[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        _read_message(transcript, item, where)
    elif kind == "function_call":
        arguments = arguments_of(text_of(item.get("arguments"), f"{where}.arguments"))
        transcript.call(_call(item, arguments, where))
    elif kind == "custom_tool_call":
        transcript.call(_call(item, {"input": text_of(item.get("input"), f"{where}.input")}, where))
    elif kind in _RESULTS:
        text = text_of_parts(item.get("output"), f"{where}.output", _TEXT)
        transcript.result(text_of(item.get("call_id"), f"{where}.call_id"), text)
    elif kind == "item_reference":
        raise unsupported(f"{where}: item_reference is not supported: {_NOTHING_IS_STORED}")
    elif kind != "reasoning":
        allowed = "message, function_call, custom_tool_call, reasoning, " + ", ".join(_RESULTS)
        raise unsupported(f"{where}.type has to be one of {allowed}")


def _read_message(transcript: Transcript, item: Mapping[str, Any], where: str) -> None:
    text = text_of_parts(item.get("content"), f"{where}.content", _TEXT)
    role = item.get("role")
    if role in ("system", "developer"):
        transcript.say("system", text)
    elif role == "user":
        transcript.say("user", text)
    elif role == "assistant":
        transcript.turn(text, [])
    else:
        raise invalid(f"{where}.role has to be user, assistant, system or developer")


def _call(item: Mapping[str, Any], arguments: Any, where: str) -> dict[str, Any]:
    name = shown_name(text_of(item.get("name"), f"{where}.name"), item.get("namespace"))
    return function_call(text_of(item.get("call_id"), f"{where}.call_id"), name, arguments)
