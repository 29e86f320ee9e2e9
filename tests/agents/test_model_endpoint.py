"""The model's address: who is answered, until when, and what is left behind."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

import httpx2
import pytest
from patience import patient
from scripted_policy import ScriptedPolicy, Serve, says

from envport.errors import ConfigurationError, InvalidAccess, InvalidOption
from envport_bridges.agents.model.endpoint import ModelEndpoint
from envport_bridges.agents.model.sessions import ModelSession
from envport_bridges.agents.model.surface import EndpointLimits

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
BODY = {"messages": [{"role": "user", "content": "a"}]}
SENT = b'{"messages": [{"role": "user", "content": "a"}]}'


class Held(ScriptedPolicy):
    """A policy that answers nothing, and says when it is asked and when that is cancelled."""

    def __init__(self) -> None:
        super().__init__(lambda request: says("a"))
        self.begun = threading.Semaphore(0)
        self.left = threading.Semaphore(0)

    async def reply(self, session: ModelSession, request: Any, *, resent: bool | None) -> Any:
        self.begun.release()
        try:
            return await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.left.release()
            raise


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


def post(url: str, token: str, **settings: Any) -> httpx2.Response:
    headers = {"authorization": f"Bearer {token}".encode(), **settings.pop("headers", {})}
    return httpx2.post(url, json=BODY, headers=headers, timeout=patient(20), **settings)


def within(semaphore: threading.Semaphore) -> None:
    assert semaphore.acquire(timeout=patient(10))


def test_only_the_token_of_an_open_session_is_answered(serve: Serve):
    endpoint, policy = serve(lambda request: says("a"))
    first, second = endpoint.open_session(max_calls=9), endpoint.open_session(max_calls=9)
    url = f"{endpoint.anthropic_url}{CHAT}"
    endpoint.end_session(first)
    assert (first.open, second.open) == (False, True)
    assert post(url, second.token).status_code == 200
    assert httpx2.post(url, json=BODY, headers={"x-api-key": second.token}).status_code == 200
    for token in (first.token, "-", "é", second.token[:-1]):
        assert post(url, token).json()["error"]["code"] == "invalid_api_key"
    refused = httpx2.post(f"{endpoint.anthropic_url}{MESSAGES}", json=BODY)
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert len(policy.asked) == 2
    # A session that has ended may be ended again.
    endpoint.end_session(first)


def test_a_token_may_be_given(serve: Serve):
    endpoint, _ = serve(lambda request: says("a"))
    endpoint.open_session(max_calls=9, token="a-token-of-the-tests")
    assert post(f"{endpoint.openai_url}/chat/completions", "a-token-of-the-tests").status_code == 200
    for token, reason in (("a-token-of-the-tests", "is in use"), ("", "cannot be empty")):
        with pytest.raises(InvalidOption, match=reason):
            endpoint.open_session(max_calls=9, token=token)


def test_other_hosts_are_not_answered(serve: Serve):
    endpoint, _ = serve(lambda request: says("a"))
    token = endpoint.open_session(max_calls=9).token
    url = f"http://127.0.0.1:{endpoint.port}{CHAT}"
    assert post(url, token, headers={"host": "evil.example"}).json()["error"]["code"] == "unknown_host"
    assert post(url, token, headers={"host": f"localhost:{endpoint.port}"}).status_code == 200


def test_paths(serve: Serve):
    endpoint, _ = serve(lambda request: says("a"))
    session = endpoint.open_session(max_calls=9)
    with httpx2.Client(base_url=endpoint.anthropic_url) as http:
        # Agents look whether there is a server, before they have a token.
        assert (http.head("/").status_code, http.get("/").status_code) == (200, 200)
        assert http.get("/v1/models").status_code == 401
        http.headers["x-api-key"] = session.token
        assert http.get(CHAT).status_code == 405
        assert "there are /v1/chat/completions" in http.post("/v1/embeddings", json={}).json()["error"]["message"]
        counting = http.post(f"{MESSAGES}/count_tokens", json=BODY)
        assert (counting.status_code, counting.json()["error"]["type"]) == (404, "not_found_error")
        other = http.get("/v1/files", headers={"anthropic-version": "2023-06-01"})
        assert other.json()["error"]["type"] == "not_found_error"
    assert session.refused == {"method_not_allowed": 1, "not_found": 3}


def test_whether_a_request_was_sent_before(serve: Serve):
    endpoint, policy = serve(lambda request: says("a"))
    token = endpoint.open_session(max_calls=9).token
    for headers in ({}, {"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "2"}):
        assert post(f"{endpoint.openai_url}/chat/completions", token, headers=headers).status_code == 200
    assert policy.resent == [None, False, True]


def test_the_end_of_a_session_cancels_its_requests(threads: ThreadPoolExecutor):
    with ModelEndpoint(policy := Held()) as endpoint:
        ended, other = endpoint.open_session(max_calls=9), endpoint.open_session(max_calls=9)
        url = f"{endpoint.anthropic_url}{MESSAGES}"
        waiting = [threads.submit(post, url, ended.token) for _ in range(2)]
        stays = threads.submit(post, url, other.token)
        for _ in range(3):
            within(policy.begun)
        assert (ended.waiting, other.waiting) == (2, 1)
        endpoint.end_session(ended)
        # They are not asked any more when the session's end is told.
        assert (ended.waiting, ended.turns, other.waiting) == (0, 0, 1)
        assert policy.left.acquire(blocking=False)
        assert policy.left.acquire(blocking=False)
        answers = [one.result() for one in waiting]
        assert {(one.status_code, one.json()["error"]["code"]) for one in answers} == {(401, "session_ended")}
        assert not stays.done()
    assert stays.result().json()["error"]["code"] == "session_ended"


def test_a_client_that_leaves_is_not_answered():
    with ModelEndpoint(policy := Held()) as endpoint:
        session = endpoint.open_session(max_calls=9)
        with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
            client.sendall(head(session, 2) + b"{}"[:0] + b"{}")
            # An empty conversation is refused; this connection stays usable.
            assert b"400 Bad Request" in client.recv(65536)
            client.sendall(head(session, len(SENT)) + SENT)
            within(policy.begun)
        within(policy.left)
        endpoint.end_session(session)
        assert (session.turns, session.waiting) == (0, 0)


def head(session: ModelSession, length: int) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1", "Host: localhost", f"x-api-key: {session.token}", f"content-length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_flood_of_requests_is_told_to_wait(threads: ThreadPoolExecutor):
    with ModelEndpoint(policy := Held(), limits=EndpointLimits(waiting=2)) as endpoint:
        session, other = endpoint.open_session(max_calls=9), endpoint.open_session(max_calls=9)
        url = f"{endpoint.openai_url}/chat/completions"
        for _ in range(2):
            threads.submit(post, url, session.token)
            within(policy.begun)
        refused = post(url, session.token)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        threads.submit(post, url, other.token)
        within(policy.begun)
    assert session.refused["too_many_requests"] == 1


@pytest.mark.parametrize("fails", [False, True], ids=["left", "left by an error"])
def test_nothing_is_left_behind(fails: bool, threads: ThreadPoolExecutor):
    before = threading.active_count()
    policy = Held()

    def leave() -> None:
        with ModelEndpoint(policy) as endpoint:
            port.append(endpoint.port)
            session = endpoint.open_session(max_calls=9)
            running.append(threads.submit(post, f"{endpoint.openai_url}/chat/completions", session.token))
            within(policy.begun)
            idle, stalled = (socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(2))
            connections.extend((idle, stalled))
            stalled.sendall(head(session, 100) + b"{")
            if fails:
                raise KeyError("of the trainer")

    port: list[int] = []
    running: list[Any] = []
    connections: list[socket.socket] = []
    with pytest.raises(KeyError) if fails else nullcontext():
        leave()
    assert running[0].result().status_code == 401
    for connection in connections:
        with connection:
            connection.settimeout(patient(10))
            while connection.recv(65536):
                pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port[0]))
    assert not [thread for thread in threading.enumerate() if thread.name == "envport-model"]
    assert threading.active_count() <= before + 1


def test_a_client_that_does_not_read_its_answer_keeps_nothing_open():
    long = "a" * (16 << 20)
    with ModelEndpoint(ScriptedPolicy(lambda request: says(long))) as endpoint:
        client = socket.create_connection(("127.0.0.1", endpoint.port))
        client.sendall(head(endpoint.open_session(max_calls=9), len(SENT)) + SENT)
        client.recv(1)
    assert not [thread for thread in threading.enumerate() if thread.name == "envport-model"]
    received = 0
    with client, suppress(ConnectionResetError):
        client.settimeout(patient(10))
        while piece := client.recv(1 << 20):
            received += len(piece)
    assert received < len(long)


def test_an_endpoint_may_be_entered_again_and_needs_to_be(serve: Serve):
    endpoint = ModelEndpoint(ScriptedPolicy(lambda request: says("a")))
    with pytest.raises(RuntimeError, match="enter it first"):
        endpoint.open_session(max_calls=1)
    for _ in range(2):
        with endpoint:
            session = endpoint.open_session(max_calls=1)
            assert post(f"{endpoint.openai_url}/chat/completions", session.token).status_code == 200
        endpoint.end_session(session)


def test_a_port_in_use_and_an_address_of_all_are_refused(serve: Serve):
    endpoint, policy = serve(lambda request: says("a"))
    with pytest.raises(ConfigurationError, match=f"port {endpoint.port} of 127.0.0.1: Address already in use"):
        ModelEndpoint(policy, port=endpoint.port).__enter__()
    with pytest.raises(InvalidAccess):
        ModelEndpoint(policy, host="0.0.0.0")


def test_ipv6(serve: Serve):
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        endpoint, _ = serve(lambda request: says("a"), host="::1")
    except ConfigurationError as error:
        pytest.skip(str(error))
    token = endpoint.open_session(max_calls=1).token
    assert post(f"{endpoint.openai_url}/chat/completions", token).status_code == 200
