"""Sessions at a served model: begun and ended by requests, counted, expired, and the one of those who have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from byte_chat import TOKEN, served, writing
from patience import patient
from scripted_policy import ScriptedPolicy, says
from scripted_sampler import ScriptedSampler

from envport.errors import InvalidAccess
from envport_bridges.agents.model.endpoint import ModelEndpoint
from envport_bridges.agents.model.sampling import SampleRequest, SamplerFailed
from envport_bridges.agents.model.session_control import SessionControl
from envport_bridges.model_serving.server import ServingAddress

HELLO = {"model": "any", "messages": [{"role": "user", "content": "Hello."}]}


def client(url: str, token: str | None = TOKEN) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.Client(base_url=url, headers=headers, timeout=30)


def chat(http: httpx2.Client, token: str | None = None, **body: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return http.post("/v1/chat/completions", json=HELLO | body, headers=headers)


def test_a_session_is_begun_counted_and_ended():
    with served(writing("Hi!")) as server, client(server.url) as http:
        begun = http.post("/sessions", json={"max_calls": 2, "labels": {"episode": "ep_1"}})
        assert begun.status_code == 201
        session = begun.json()
        where = f"/sessions/{session['session_id']}"
        first = chat(http, session["token"]).json()
        assert first["choices"][0]["message"]["content"] == "Hi!"
        told = first["choices"][0]["message"]
        more = [*HELLO["messages"], told, {"role": "user", "content": "And?"}]
        second = chat(http, session["token"], messages=more, temperature=0.3).json()
        assert chat(http, session["token"], messages=[*more, told, HELLO["messages"][0]]).status_code == 400
        used = http.get(where).json()
        assert used == http.delete(where).json()
        assert used == {
            "session_id": session["session_id"],
            "labels": {"episode": "ep_1"},
            "requests": 2,
            "prompt_tokens": first["usage"]["prompt_tokens"] + second["usage"]["prompt_tokens"],
            "completion_tokens": 8,
            "cached_tokens": first["usage"]["total_tokens"],
            "failed": 0,
            "failing": False,
            "refused": {"budget_exceeded": 1},
            "ignored": {"temperature": 1},
        }
        assert chat(http, session["token"]).status_code == 401
        assert http.get(where).status_code == 404
        assert http.delete(where).status_code == 404


def test_an_agent_controls_no_session():
    with served(writing("Hi!")) as server, client(server.url) as http:
        token = http.post("/sessions").json()["token"]
        with client(server.url, token) as agent:
            asked = [
                agent.post("/sessions"),
                agent.get("/model"),
                agent.delete("/sessions/1"),
                agent.get("/sessions/1"),
            ]
        assert [answer.status_code for answer in asked] == [401] * 4


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("[]", "the body has to be a JSON object"),
        ("{", "the body is not JSON"),
        ('{"max_call": 1}', "there is no field 'max_call'; there are max_calls and labels"),
        ('{"max_calls": 0}', "max_calls is 0; it has to be a whole number of at least 1"),
        ('{"max_calls": true}', "max_calls is True"),
        ('{"labels": {"a": 1}}', "labels have to be an object of at most 16 texts"),
    ],
)
def test_a_session_that_cannot_be_begun_is_refused(body: str, why: str):
    with served(writing("Hi!")) as server, client(server.url) as http:
        answer = http.post("/sessions", content=body)
    assert answer.status_code == 400
    assert why in answer.json()["error"]["message"]


def test_a_session_that_nobody_uses_expires():
    now = 0.0
    control = SessionControl({"name": "policy"}, token=TOKEN, idle_seconds=60, clock=lambda: now)
    policy = ScriptedPolicy(lambda request: says("Hi!"))
    with ModelEndpoint(policy, control=control) as endpoint, client(endpoint.anthropic_url) as http:
        used, looked_at, left = (http.post("/sessions").json() for _ in range(3))
        now = 50.0
        assert chat(http, used["token"]).status_code == 200
        assert http.get(f"/sessions/{looked_at['session_id']}").status_code == 200
        now = 100.0
        answers = [chat(http, session["token"]).status_code for session in (used, looked_at, left)]
        assert answers == [200, 200, 401]
        assert http.get(f"/sessions/{left['session_id']}").status_code == 404
        assert control.sessions == 3


class Hold:
    """Says when somebody waits, and lets nobody go on until it is told to."""

    def __init__(self):
        self.entered, self.released = threading.Event(), threading.Event()

    async def wait(self) -> None:
        self.entered.set()
        await asyncio.to_thread(self.released.wait)


def test_a_session_whose_request_is_running_does_not_expire():
    now = 0.0
    control = SessionControl({"name": "policy"}, token=TOKEN, idle_seconds=60, clock=lambda: now)
    policy, hold = ScriptedPolicy(lambda request: says("Hi!")), Hold()
    policy.hold = hold
    with ModelEndpoint(policy, control=control) as endpoint, client(endpoint.anthropic_url) as http:
        session = http.post("/sessions").json()
        with ThreadPoolExecutor() as threads, client(endpoint.anthropic_url) as agent:
            asked = threads.submit(chat, agent, session["token"])
            assert hold.entered.wait(patient(20))
            now = 100.0
            assert http.get("/model").status_code == 200
            assert control.sessions == 2
            hold.released.set()
            assert asked.result().status_code == 200


def test_those_who_have_no_session_share_one_that_samples_anew_each_time():
    counted = iter(range(1000))
    sampler = ScriptedSampler(lambda context, room: [1 + ord(c) for c in str(next(counted))] + [0])
    with served(sampler) as server, client(server.url) as http:
        texts = [chat(http).json()["choices"][0]["message"]["content"] for _ in range(3)]
        assert texts == ["0", "1", "2"]
        session = http.post("/sessions").json()["token"]
        # An agent's equal request counts as sent again.
        assert len({chat(http, session).json()["choices"][0]["message"]["content"] for _ in range(3)}) == 1
        shared = server._control._shared
        for number in range(300):
            assert chat(http, messages=[{"role": "user", "content": str(number)}]).status_code == 200
        assert shared.totals.turns == 303
        assert len(shared.calls.calls) == 256


def test_without_a_token_anybody_may_ask_but_not_with_the_token_of_an_ended_session():
    with served(writing("Hi!"), token=None) as server, client(server.url, None) as http:
        assert [chat(http, key).status_code for key in (None, "sk-any")] == [200, 200]
        session = http.post("/sessions").json()
        assert chat(http, session["token"]).status_code == 200
        http.delete(f"/sessions/{session['session_id']}")
        assert chat(http, session["token"]).status_code == 401


def test_a_model_that_fails_once_goes_on_to_be_served():
    class Failing:
        gathers = False
        failures = 1

        def sample(self, requests: Sequence[SampleRequest]) -> Any:
            if self.failures:
                self.failures -= 1
                raise SamplerFailed("no tokens today")
            return ScriptedSampler(lambda context, room: [2, 0]).sample(requests)

    with served(Failing()) as server, client(server.url) as http:
        session = http.post("/sessions").json()
        where = f"/sessions/{session['session_id']}"
        assert chat(http, session["token"]).status_code == 500
        used = http.get(where).json()
        assert (used["failed"], used["failing"], used["requests"]) == (1, True, 0)
        assert chat(http, session["token"]).status_code == 200
        used = http.get(where).json()
        assert (used["failed"], used["failing"], used["requests"]) == (1, False, 1)


def test_what_it_is_is_told():
    with served(writing("Hi!"), name="step_20", temperature=0.5, max_tokens=64) as server, client(server.url) as http:
        assert http.get("/model").json() == {
            "name": "step_20",
            "weights": "weights of step_20",
            "sampler": "transformers",
            "settings": {
                "temperature": 0.5,
                "top_p": 1.0,
                "top_k": 0,
                "max_conversation_tokens": 64,
                "chat_template_kwargs": None,
            },
        }


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ({"host": "0.0.0.0"}, "without a token, a model is served at this machine's loopback address only"),
        ({"token": "short"}, "at least 16 ASCII characters"),
    ],
)
def test_a_model_is_not_served_to_everybody_by_mistake(address: dict[str, str], why: str):
    with pytest.raises(InvalidAccess, match=why):
        ServingAddress(**address)
