"""Each API of the model's address, with the SDK of whoever made it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
from patience import patient
from scripted_policy import Serve, calls, replied, says

from envport_bridges.agents.apis.requests import ModelReply
from envport_bridges.agents.model import surface
from envport_bridges.agents.model.endpoint import ModelEndpoint

SCHEMA = {"type": "object", "properties": {"direction": {"type": "string"}}, "required": ["direction"]}
TOOLS = [{"type": "function", "function": {"name": "move", "description": "Move.", "parameters": SCHEMA}}]
TWO_MOVES = (("move", {"direction": "left"}), ("move", {"direction": "é"}))
APIS = ["chat", "messages", "responses"]

Turn = tuple[str, str | None, list[tuple[str, str, Any]], str | None, tuple[int, int, int], list[Any]]
"""The id of an answer, its text, its calls, why it ended, its usage, and what is sent back of it."""


CLIENTS: list[Any] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """What is asked with is closed: connections that are left open are told of by whatever test comes next."""
    yield
    while CLIENTS:
        CLIENTS.pop().close()


def sdk_of(client: type[Any], url: str, token: str) -> Any:
    CLIENTS.append(client(base_url=url, api_key=token, max_retries=0, timeout=patient(10)))
    return CLIENTS[-1]


class Chat:
    def __init__(self, endpoint: ModelEndpoint, token: str):
        self.sdk = sdk_of(openai.OpenAI, endpoint.openai_url, token)
        self.history: list[Any] = [{"role": "developer", "content": "Play."}]

    def ask(self, *, stream: bool, **settings: Any) -> Turn:
        words = {"model": "mine", "messages": self.history, "tools": TOOLS, **settings}
        if stream:
            with self.sdk.chat.completions.stream(**words, stream_options={"include_usage": True}) as events:
                done = events.until_done().get_final_completion()
        else:
            done = self.sdk.chat.completions.create(**words)
        (choice,) = done.choices
        made = [
            (call.id, call.function.name, json.loads(call.function.arguments))
            for call in choice.message.tool_calls or []
        ]
        usage = done.usage
        counts = (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens)
        assert done.model == "mine"
        return done.id, choice.message.content, made, choice.finish_reason, counts, [choice.message]

    def user(self, text: str) -> None:
        self.history.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def result(self, call_id: str, text: str) -> None:
        self.history.append({"role": "tool", "tool_call_id": call_id, "content": text})


class Messages(Chat):
    def __init__(self, endpoint: ModelEndpoint, token: str):
        self.sdk = sdk_of(anthropic.Anthropic, endpoint.anthropic_url, token)
        self.history = []

    def ask(self, *, stream: bool, **settings: Any) -> Turn:
        tool = {"name": "move", "description": "Move.", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}
        words = {
            "model": "mine",
            "max_tokens": 100,
            "messages": self.history,
            "tools": [tool],
            "system": [{"type": "text", "text": "Play.", "cache_control": {"type": "ephemeral"}}],
            "thinking": {"type": "adaptive"},
            **settings,
        }
        if stream:
            with self.sdk.messages.stream(**words) as events:
                done = events.get_final_message()
        else:
            done = self.sdk.messages.create(**words)
        made = [(block.id, block.name, block.input) for block in done.content if block.type == "tool_use"]
        text = "".join(block.text for block in done.content if block.type == "text")
        usage = done.usage
        counts = (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens)
        assert done.model == "mine"
        sent_back = [{"role": "assistant", "content": done.content}] if done.content else []
        return done.id, text, made, done.stop_reason, counts, sent_back

    def result(self, call_id: str, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": text}]}
        if self.history[-1]["role"] == "user":
            self.history[-1]["content"].append(block)
        else:
            self.history.append({"role": "user", "content": [block]})


class Responses(Chat):
    def ask(self, *, stream: bool, **settings: Any) -> Turn:
        tool = {"type": "function", "name": "move", "description": "Move.", "parameters": SCHEMA, "strict": False}
        words = {"model": "mine", "input": self.history, "tools": [tool], **settings}
        if stream:
            with self.sdk.responses.stream(**words) as events:
                done = events.get_final_response()
        else:
            done = self.sdk.responses.create(**words)
        made = [
            (item.call_id, item.name, json.loads(item.arguments))
            for item in done.output
            if item.type == "function_call"
        ]
        usage = done.usage
        counts = (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens)
        ended = done.status if done.incomplete_details is None else done.incomplete_details.reason
        assert done.model == "mine"
        return done.id, done.output_text, made, ended, counts, list(done.output)

    def result(self, call_id: str, text: str) -> None:
        self.history.append({"type": "function_call_output", "call_id": call_id, "output": text})


DRIVERS: dict[str, Callable[..., Chat]] = {"chat": Chat, "messages": Messages, "responses": Responses}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
def test_a_conversation_goes_on_with_what_the_sdk_was_told(api: str, stream: bool, serve: Serve):
    replies = iter([calls(*TWO_MOVES, text="I see 🙂.", reasoning="Hm."), calls(TWO_MOVES[0]), says("Done.")])
    endpoint, policy = serve(lambda request: next(replies))
    session = endpoint.open_session(max_calls=3)
    driver = DRIVERS[api](endpoint, session.token)
    driver.user("Go.")
    ids: list[str] = []
    for expected in (TWO_MOVES, TWO_MOVES[:1], ()):
        answer_id, text, made, _, counts, sent_back = driver.ask(stream=stream)
        assert tuple((name, arguments) for _, name, arguments in made) == expected
        assert counts == ((4 if api == "messages" else 11), 7, 3)
        ids += [answer_id, *(call_id for call_id, _, _ in made)]
        driver.history += sent_back
        for call_id, _, _ in made:
            driver.result(call_id, "moved")
    assert text == "Done."
    # Ids that are seen twice make agents merge turns, or drop calls.
    assert len(set(ids)) == len(ids) == 6
    (conversation,) = policy.conversations()
    assert len(conversation) == 3
    (request, reply), (last, _) = conversation[0], conversation[-1]
    assert list(request.messages) == [{"role": "system", "content": "Play."}, {"role": "user", "content": "Go."}]
    assert (list(request.tools), request.stream) == (TOOLS, stream)
    results = [
        {"role": "tool", "content": "moved", "tool_call_id": call.id, "name": "move"} for call in reply.tool_calls
    ]
    assert list(last.messages[2:5]) == [replied(reply), *results]
    assert (session.refused, session.ignored, session.turns, session.waiting) == ({}, {}, 3, 0)
    assert policy.resent == [False] * 3


ENDS = {
    "end": (says("a"), {"chat": "stop", "messages": "end_turn", "responses": "completed"}),
    "stop text": (says("a", stopped_by="X"), {"chat": "stop", "messages": "stop_sequence", "responses": "completed"}),
    "limit": (
        says("a", finish="length"), {"chat": "length", "messages": "max_tokens", "responses": "max_output_tokens"}
    ),
    "call": (calls(TWO_MOVES[0]), {"chat": "tool_calls", "messages": "tool_use", "responses": "completed"}),
    "nothing": (says(""), {"chat": "stop", "messages": "end_turn", "responses": "completed"}),
}  # fmt: skip


@pytest.mark.parametrize("api", APIS)
def test_why_a_turn_ended_is_said_in_the_words_of_each_api(api: str, serve: Serve):
    replies: list[ModelReply] = []
    endpoint, _ = serve(lambda request: replies[-1])
    driver = DRIVERS[api](endpoint, endpoint.open_session(max_calls=100).token)
    driver.user("Go.")
    for reply, words in ENDS.values():
        replies.append(reply)
        for stream in (False, True):
            # OpenAI's helpers for streams take a cut answer for an error.
            if stream and reply.finish == "length" and api != "messages":
                continue
            assert driver.ask(stream=stream)[3] == words[api]


def test_a_stream_says_that_its_answer_was_cut(serve: Serve):
    endpoint, _ = serve(lambda request: says("a", finish="length"))
    sdk = Chat(endpoint, endpoint.open_session(max_calls=9).token).sdk
    chunks = list(sdk.chat.completions.create(model="mine", messages=[{"role": "user", "content": "a"}], stream=True))
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, "length"]
    *_, last = sdk.responses.create(model="mine", input="a", stream=True)
    assert (last.type, last.response.incomplete_details.reason) == ("response.incomplete", "max_output_tokens")
    assert last.response.output_text == "a"


def test_limits_and_stop_texts_reach_the_model(serve: Serve):
    endpoint, policy = serve(lambda request: says("a"))
    token = endpoint.open_session(max_calls=9).token
    settings: dict[str, list[dict[str, Any]]] = {
        "chat": [{"max_tokens": 5, "stop": "X"}, {"max_completion_tokens": 5, "stop": ["X"]}],
        "messages": [{"max_tokens": 5, "stop_sequences": ["X"]}],
        "responses": [{"max_output_tokens": 5}],
    }
    for api, all_of_them in settings.items():
        driver = DRIVERS[api](endpoint, token)
        driver.user("Go.")
        for one in all_of_them:
            driver.ask(stream=False, **one)
    assert [request.max_tokens for request in policy.asked] == [5] * 4
    assert [request.stop for request in policy.asked] == [("X",), ("X",), ("X",), ()]


def test_what_is_not_honoured_is_said_in_a_header_and_counted(serve: Serve, caplog: pytest.LogCaptureFixture):
    # Each is logged once in a process.
    surface._log_once.cache_clear()
    endpoint, _ = serve(lambda request: says("a"))
    session = endpoint.open_session(max_calls=9)
    sdk = Chat(endpoint, session.token).sdk
    for _ in range(2):
        raw = sdk.chat.completions.with_raw_response.create(
            model="mine",
            messages=[{"role": "user", "content": "a"}],
            temperature=0,
            tool_choice="required",
            tools=TOOLS,
        )
        assert raw.headers["envport-ignored"] == "temperature, tool_choice"
    assert session.ignored == {"temperature": 2, "tool_choice": 2}
    assert [record.args and record.args[0] for record in caplog.records] == ["temperature", "tool_choice"]


def test_no_tools_are_shown_if_none_may_be_called(serve: Serve):
    endpoint, policy = serve(lambda request: says("a"))
    token = endpoint.open_session(max_calls=9).token
    for api, choice in {"chat": "none", "messages": {"type": "none"}, "responses": "none"}.items():
        driver = DRIVERS[api](endpoint, token)
        driver.user("Go.")
        driver.ask(stream=False, tool_choice=choice)
    assert [request.tools for request in policy.asked] == [()] * 3


def test_tools_of_the_responses_api_that_are_no_plain_functions(serve: Serve):
    """Those of Codex: groups of functions, and tools that take free text."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
    tools: list[Any] = [
        {
            "type": "namespace",
            "name": "mcp__game",
            "description": "A game.",
            "tools": [{"type": "function", "name": "up"}],
        },
        {"type": "custom", "name": "patch", "description": "Patch.", "format": grammar},
        {"type": "web_search"},
        {"type": "a\nb"},
    ]
    replies = iter([calls(("mcp__game__up", {}), ("patch", {"input": "aa"})), says("Done.")] * 2)
    endpoint, policy = serve(lambda request: next(replies))
    session = endpoint.open_session(max_calls=9)
    driver = Responses(endpoint, session.token)
    driver.user("Go.")
    for stream in (False, True):
        sent_back = driver.ask(stream=stream, tools=tools)[-1]
        up, patch = sent_back
        assert (up.type, up.name, up.namespace, up.arguments) == ("function_call", "up", "mcp__game", "{}")
        assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", "aa")
        driver.history += sent_back
        driver.result(up.call_id, "went up")
        driver.history.append({"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "patched"})
        driver.history += driver.ask(stream=stream, tools=tools)[-1]
        driver.user("Again.")
    (((request, _), *_),) = policy.conversations()
    assert [tool["function"]["name"] for tool in request.tools] == ["mcp__game__up", "patch"]
    described = [tool["function"]["description"] for tool in request.tools]
    assert described == ["A game.", "Patch.\n\nThe input follows this grammar (lark):\nstart: /a+/"]
    assert session.ignored == {"tools.web_search": 4, "tools.other": 4}


def test_models_are_listed_for_both_sdks(serve: Serve):
    endpoint, _ = serve(lambda request: says("a"))
    token = endpoint.open_session(max_calls=1).token
    for driver in (Chat(endpoint, token), Messages(endpoint, token)):
        assert [model.id for model in driver.sdk.models.list()] == ["policy"]
        assert driver.sdk.models.retrieve("mine").id == "mine"
