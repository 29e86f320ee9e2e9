"""What agents may not ask for is refused in the form of their API, with the reason; none of it is a fault of ours."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from patience import patient
from scripted_policy import ScriptedPolicy, Serve, calls, says

from envport_bridges.agents.apis.requests import RequestRefused, TokenUsage
from envport_bridges.agents.model import surface
from envport_bridges.agents.model.endpoint import ModelEndpoint
from envport_bridges.agents.model.surface import EndpointLimits

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
SAID: list[Any] = [{"role": "user", "content": "a"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}


def refusal(answer: httpx2.Response, path: str) -> tuple[int, str, str]:
    """The status, code and text of a refusal, in the form of the API."""
    body = answer.json()
    if path.startswith(MESSAGES):
        assert (body["type"], set(body)) == ("error", {"type", "error", "request_id"})
    error = body["error"]
    assert {"type", "message", "code"} <= set(error)
    return answer.status_code, error["code"], error["message"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": SAID, "n": 2}, "n has to be 1"),
    (CHAT, {"messages": SAID, "logprobs": True}, "logprobs is not supported"),
    (CHAT, {"messages": SAID, "top_logprobs": 3}, "top_logprobs is not supported"),
    (CHAT, {"messages": SAID, "response_format": SCHEMA}, "response_format.type has to be text"),
    (CHAT, {"messages": SAID, "modalities": ["text", "audio"]}, "modalities has to be"),
    (CHAT, {"messages": SAID, "functions": [{"name": "a"}]}, "replaced by tools"),
    (CHAT, {"messages": [{"role": "user", "content": [IMAGE]}]}, "of type 'image_url': the policy reads text only"),
    (CHAT, {"messages": [*SAID, {"role": "assistant", "content": "b"}]}, "ends with a turn of the assistant"),
    (CHAT, {"messages": [{"role": "wizard", "content": "b"}]}, "messages[0].role has to be"),
    (CHAT, {"messages": []}, "the conversation is empty"),
    (CHAT, {}, "messages has to be a list, not null"),
    (CHAT, {"messages": SAID, "max_tokens": 0}, "max_tokens has to be a whole number of at least 1"),
    (CHAT, {"messages": SAID, "max_tokens": True}, "max_tokens has to be"),
    (CHAT, {"messages": SAID, "stop": [""]}, "empty text"),
    (CHAT, {"messages": SAID, "stream": "yes"}, "stream has to be true or false, not text"),
    (CHAT, {"messages": SAID, "tools": [{"type": "function"}]}, "tools[0].function has to be an object"),
    (CHAT, {"messages": SAID, "model": 3}, "model has to be text"),
    (MESSAGES, {"messages": [{"role": "user", "content": [PICTURE]}]}, "of type 'image'"),
    (MESSAGES, {"messages": SAID, "output_format": {"type": "json_schema"}}, "output_format is not supported"),
    (MESSAGES, {"messages": SAID, "output_config": {"format": {}}}, "output_config.format is not supported"),
    (MESSAGES, {"messages": SAID, "mcp_servers": [{"url": "x"}]}, "mcp_servers is not supported"),
    (MESSAGES, {"messages": [*SAID, {"role": "assistant", "content": "b"}]}, "ends with a turn of the assistant"),
    (RESPONSES, {"input": "a", "previous_response_id": "resp_1"}, "Send the whole conversation"),
    (RESPONSES, {"input": "a", "conversation": "conv_1"}, "Send the whole conversation"),
    (RESPONSES, {"input": "a", "background": True}, "background is not supported"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "a"}]}, "nothing is stored"),
    (RESPONSES, {"input": [{"type": "file_search_call"}]}, "input[0].type has to be one of"),
    (RESPONSES, {"input": "a", "text": {"format": SCHEMA}}, "text.format.type has to be text"),
    (RESPONSES, {"input": "a", "include": ["message.output_text.logprobs"]}, "is not supported"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "the policy reads text only"),
]


@pytest.fixture
def endpoint(serve: Serve) -> ModelEndpoint:
    return serve(lambda request: says("a"))[0]


def test_what_cannot_be_given_is_refused_with_the_reason(endpoint: ModelEndpoint):
    session = endpoint.open_session(max_calls=100)
    headers = {"authorization": f"bearer {session.token}"}
    with httpx2.Client(base_url=endpoint.anthropic_url, headers=headers) as http:
        for path, body, text in REFUSED:
            status, code, message = refusal(http.post(path, json=body), path)
            assert (status, text in message) == (400, True), (path, body, message)
            assert code in ("invalid_request_error", "unsupported_value")
    assert sum(session.refused.values()) == len(REFUSED)
    assert session.turns == 0


FUNCTION = {"name": "move", "strict": True}
IGNORED: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"parallel_tool_calls": False, "logit_bias": {}, "user": "me"}, "logit_bias, parallel_tool_calls"),
    (CHAT, {"parallel_tool_calls": True, "tools": [{"type": "function", "function": FUNCTION}]}, "tools.strict"),
    (CHAT, {"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools.custom"),
    (MESSAGES, {"top_k": 1, "output_config": {"effort": "low"}}, "top_k, output_config.effort"),
    (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 9}}, "thinking.budget_tokens"),
    (MESSAGES, {"tools": [FUNCTION, {"type": "web_search_20250305"}]}, "tools.strict, tools.web_search"),
    (
        MESSAGES,
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        "tool_choice, tool_choice.disable_parallel_tool_use",
    ),
    (RESPONSES, {"truncation": "auto", "text": {"verbosity": "low"}}, "text.verbosity, truncation"),
    (RESPONSES, {"max_tool_calls": 1, "truncation": "disabled", "store": True}, "max_tool_calls"),
]


def test_what_is_ignored_is_said(endpoint: ModelEndpoint):
    headers = {"x-api-key": endpoint.open_session(max_calls=100).token}
    with httpx2.Client(base_url=endpoint.anthropic_url, headers=headers) as http:
        for path, settings_of_it, said in IGNORED:
            given_with = {"input": "a"} if path == RESPONSES else {"messages": SAID}
            answer = http.post(path, json={**given_with, **settings_of_it})
            assert answer.headers.get("envport-ignored") == said, (path, answer.text)


def test_what_is_ignored_is_logged_once_whatever_the_endpoint(serve: Serve, caplog: pytest.LogCaptureFixture):
    """A training has an endpoint for each batch."""
    surface._log_once.cache_clear()
    for _ in range(2):
        endpoint, _ = serve(lambda request: says("a"))
        headers = {"x-api-key": endpoint.open_session(max_calls=100).token}
        with httpx2.Client(base_url=endpoint.anthropic_url, headers=headers) as http:
            http.post(RESPONSES, json={"input": "a", "tools": [{"type": "web_search"}]})
    assert [record.getMessage() for record in caplog.records if "web_search" in record.getMessage()] == [
        "agents set tools.web_search, which is not honoured: see bridges/envport_bridges/agents/MODEL_API.md"
    ]


def test_reasoning_is_told_where_the_api_has_a_place_for_it(serve: Serve):
    endpoint, _ = serve(lambda request: says("a", reasoning="Hm."))
    headers = {"x-api-key": endpoint.open_session(max_calls=100).token}
    with httpx2.Client(base_url=endpoint.anthropic_url, headers=headers) as http:
        (choice,) = http.post(CHAT, json={"messages": SAID}).json()["choices"]
        assert choice["message"]["reasoning_content"] == "Hm."
        kinds = [item["type"] for item in http.post(RESPONSES, json={"input": "a"}).json()["output"]]
        assert kinds == ["reasoning", "message"]
        # Anthropic's tells it to those who ask.
        for asked, expected in (({}, ["text"]), ({"thinking": {"type": "adaptive"}}, ["thinking", "text"])):
            blocks = http.post(MESSAGES, json={"messages": SAID, **asked}).json()["content"]
            assert [block["type"] for block in blocks] == expected


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "invalid UTF-8": b'{"messages": "\xff"}',
    "deep": b'{"messages":' * 100_000,
    "deep and whole": b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a long number": b'{"max_tokens": ' + b"9" * 5000 + b', "messages": [{"role": "user"}]' + b"}" * 2,
    "no number": b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": NaN}',
}


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_body_that_is_no_request_is_refused(path: str, endpoint: ModelEndpoint):
    headers = {"x-api-key": endpoint.open_session(max_calls=9).token}
    with httpx2.Client(base_url=endpoint.anthropic_url, headers=headers) as http:
        for name, body in BODIES.items():
            assert refusal(http.post(path, content=body), path)[0] == 400, name
        zipped = http.post(path, content=b"{}", headers={"content-encoding": "gzip"})
        assert refusal(zipped, path)[:2] == (415, "unsupported_media_type")


def test_half_of_a_surrogate_pair_becomes_a_question_mark(serve: Serve):
    """JavaScript cuts texts between the halves, and no tokenizer takes one."""
    endpoint, policy = serve(lambda request: calls(("move", {"to": "\ud83d"})))
    token = endpoint.open_session(max_calls=9).token
    body = b'{"messages": [{"role": "user", "content": "a\\ud83d"}]}'
    answer = httpx2.post(f"{endpoint.openai_url}/chat/completions", content=body, headers={"x-api-key": token})
    assert policy.asked[0].messages[0]["content"] == "a?"
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"to": "\ud83d"}


def test_arguments_that_are_no_json_are_kept_as_text(serve: Serve):
    endpoint, policy = serve(lambda request: says("a"))
    token = endpoint.open_session(max_calls=9).token
    function = {"name": "move", "arguments": '{"to": '}
    turn = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    told = {"role": "tool", "tool_call_id": "1", "content": "no"}
    answer = httpx2.post(
        f"{endpoint.openai_url}/chat/completions", json={"messages": [turn, told]}, headers={"x-api-key": token}
    )
    assert answer.status_code == 200, answer.text
    assert policy.asked[0].messages[0]["tool_calls"][0]["function"] == function


def test_anthropics_forms_of_the_same_are_read_alike(serve: Serve):
    endpoint, policy = serve(lambda request: says("a"))
    headers = {"x-api-key": endpoint.open_session(max_calls=9).token}
    use = {"type": "tool_use", "id": "1", "name": "move", "input": {}}
    failed = {"type": "tool_result", "tool_use_id": "1", "content": "no", "is_error": True}
    spoken = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    thought = [{"type": "thinking", "thinking": "b", "signature": "c"}, {"type": "redacted_thinking", "data": "d"}]
    rest: list[Any] = [
        {"role": "system", "content": "Be quick."},
        {"role": "assistant", "content": [*thought, {"type": "text", "text": "b"}, use]},
        {"role": "user", "content": [failed, {"type": "text", "text": "Go on."}]},
    ]
    system = [{"type": "text", "text": "Play."}, {"type": "text", "text": "Well."}]
    for body in (
        {"system": "Play.\nWell.", "messages": [*SAID, *rest]},
        {"system": system, "messages": [{"role": "user", "content": spoken}, *rest]},
    ):
        assert httpx2.post(f"{endpoint.anthropic_url}{MESSAGES}", json=body, headers=headers).status_code == 200
    first, second = policy.asked
    call = {"id": "1", "type": "function", "function": {"name": "move", "arguments": {}}}
    assert first.messages == second.messages
    assert list(first.messages) == [
        {"role": "system", "content": "Play.\nWell."},
        *SAID,
        {"role": "system", "content": "Be quick."},
        {"role": "assistant", "content": "b", "tool_calls": [call]},
        {"role": "tool", "content": "Error: no", "tool_call_id": "1", "name": "move"},
        {"role": "user", "content": "Go on."},
    ]


def test_a_refusal_by_the_model_is_told_in_words_that_clients_know(serve: Serve):
    def full(request: Any) -> Any:
        raise RequestRefused(400, "context_length_exceeded", "1030 tokens, and 1024 are the most")

    endpoint, _ = serve(full)
    session = endpoint.open_session(max_calls=9)
    with (
        openai.OpenAI(base_url=endpoint.openai_url, api_key=session.token) as client,
        pytest.raises(openai.BadRequestError) as chat,
    ):
        client.chat.completions.create(model="mine", messages=SAID)
    assert chat.value.code == "context_length_exceeded"
    with (
        anthropic.Anthropic(base_url=endpoint.anthropic_url, api_key=session.token) as client,
        pytest.raises(anthropic.BadRequestError, match="prompt is too long: 1030 tokens"),
    ):
        client.messages.create(model="mine", max_tokens=9, messages=SAID)
    assert (session.refused, session.turns) == ({"context_length_exceeded": 2}, 0)


def test_a_model_that_fails_says_nothing_of_how(serve: Serve, caplog: pytest.LogCaptureFixture):
    def fails(request: Any) -> Any:
        raise ValueError("a secret of ours")

    endpoint, _ = serve(fails)
    session = endpoint.open_session(max_calls=9)
    headers = {"x-api-key": session.token}
    for path, body in ((CHAT, {"messages": SAID}), (MESSAGES, {"messages": SAID}), (RESPONSES, {"input": "a"})):
        answer = httpx2.post(f"{endpoint.anthropic_url}{path}", json=body, headers=headers)
        assert refusal(answer, path)[:2] == (500, "server_error")
        assert "secret" not in answer.text
    assert caplog.text.count("ValueError: a secret of ours") == 3
    assert session.turns == 0


def test_limits_of_a_session(serve: Serve):
    endpoint, _ = serve(lambda request: says("a"), limits=EndpointLimits(body_bytes=1000))
    session = endpoint.open_session(max_calls=2)
    with httpx2.Client(base_url=endpoint.anthropic_url, headers={"x-api-key": session.token}) as http:
        long = {"messages": [{"role": "user", "content": "a" * 1000}]}
        assert refusal(http.post(CHAT, json=long), CHAT)[:2] == (413, "request_too_large")
        answers = [http.post(CHAT, json={"messages": SAID}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 400]
    assert refusal(answers[-1], CHAT)[1] == "budget_exceeded"
    assert session.refused == {"request_too_large": 1, "budget_exceeded": 1}


def test_turns_that_the_agent_did_not_wait_for_count_too(serve: Serve):
    def written(request: Any) -> Any:
        session.totals.add(TokenUsage(1, 1))
        raise ValueError("nobody waits for this")

    endpoint, _ = serve(written)
    session = endpoint.open_session(max_calls=2)
    answers = [
        httpx2.post(f"{endpoint.anthropic_url}{CHAT}", json={"messages": SAID}, headers={"x-api-key": session.token})
        for _ in range(3)
    ]
    assert refusal(answers[-1], CHAT)[:2] == (400, "budget_exceeded")


KEYS = st.sampled_from([
    "messages", "input", "role", "content", "type", "text", "tools", "function", "name", "arguments", "tool_calls",
    "id", "system", "tool_choice", "stop", "stream", "model", "max_tokens", "call_id", "output", "tool_use_id",
    "parameters", "description", "n", "format", "namespace", "thinking", "stream_options",
    "include_usage", "stop_sequences",
])  # fmt: skip
WORDS = st.sampled_from([
    "user", "assistant", "system", "tool", "text", "tool_use", "tool_result", "function_call", "function_call_output",
    "message", "function", "custom", "namespace", "none", "required", "reasoning", "custom_tool_call", "{}", "[1]",
])  # fmt: skip
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5)
ANY = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5))
LISTED = st.lists(st.dictionaries(KEYS, ANY, max_size=5) | ANY, max_size=3)
BODY = st.fixed_dictionaries(
    {},
    optional={
        "messages": LISTED | st.just(SAID),
        "input": LISTED | st.just("a"),
        "tools": LISTED,
        "stream": st.booleans(),
    },
).flatmap(lambda body: st.dictionaries(KEYS, ANY, max_size=4).map(lambda more: {**more, **body}))


def test_no_body_is_a_fault_of_ours():
    with ModelEndpoint(ScriptedPolicy(lambda request: calls(("move", {}), text="a"))) as endpoint:
        session = endpoint.open_session(max_calls=10**6)
        headers = {"x-api-key": session.token}
        with httpx2.Client(base_url=endpoint.anthropic_url, headers=headers, timeout=patient(10)) as http:

            @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
            @given(path=st.sampled_from([CHAT, MESSAGES, RESPONSES]), body=BODY)
            @example(path=CHAT, body={"messages": SAID})
            def answered(path: str, body: Any) -> None:
                answer = http.post(path, content=json.dumps(body))
                assert answer.status_code in (200, 400), answer.text
                if answer.status_code == 400:
                    refusal(answer, path)

            answered()
        assert session.turns > 0
