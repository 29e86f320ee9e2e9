"""Plain messages are answered without the SDK, exactly as the SDK answers them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from environments import Gate
from harness import ERAS, Era, Raw, RunningGateway, running
from mcp.server.streamable_http import StreamableHTTPServerTransport
from patience import patient

from envport import Client
from envport.clock import ManualClock
from envport.episodes import Episodes, Limits
from envport.registry import EnvironmentDefinition, load

GATE = EnvironmentDefinition("gate", Gate)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}

LONG = {"name": "x" * 2000, "version": "1"}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[RunningGateway, RunningGateway]]:
    """A gateway that answers plain messages itself, and one that leaves all to the SDK."""
    with ExitStack() as stack:
        direct, sdk = (
            stack.enter_context(running(load("showcase"), load("counter"), sdk_only=sdk_only))
            for sdk_only in (False, True)
        )
        yield direct, sdk


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    kind: str

    @classmethod
    def of(cls, response: httpx2.Response) -> Answer:
        text = response.text
        kind = response.headers.get("content-type", "").partition(";")[0]
        if kind == "text/event-stream":
            text = "".join(line[6:] for line in text.split("\r\n") if line.startswith("data: "))
        # Each episode has its own handle.
        text = re.sub(r"ep_[\w-]{32}", "ep_", text)
        try:
            return cls(response.status_code, json.loads(text), "json")
        except ValueError:
            return cls(response.status_code, text, kind)


Play = Callable[[Raw], list[Answer]]


def call(raw: Raw, name: str, arguments: Any = None, **more: Any) -> Answer:
    params = {"name": name, **({} if arguments is None else {"arguments": arguments}), **more}
    return Answer.of(raw.post("tools/call", params))


def every_tool(raw: Raw) -> list[Answer]:
    listed = Answer.of(raw.post("tools/list"))
    answers = [listed]
    for tool in listed.body["result"]["tools"]:
        if tool["name"] not in ("finish", "start_episode"):
            answers += [
                call(raw, tool["name"]),
                call(raw, tool["name"], {}),
                call(raw, tool["name"], {"text": "é\u2028"}),
            ]
    return [*answers, call(raw, "finish", {}), call(raw, "finish", {}), call(raw, "show_text", {})]


def what_is_refused(raw: Raw) -> list[Answer]:
    return [
        call(raw, "no_such_tool", {}),
        call(raw, "", {}),
        call(raw, "finish", {"more": 1}),
        call(raw, "finish", {"_meta": {"envport/call_id": 3}}),
        call(raw, "finish", {}, _meta={"envport/call_id": 3}),
        call(raw, "finish", {}, _meta={"envport/call_id": "x" * 201}),
        call(raw, "finish", {}, _meta={"com.example/more": {"a": [None]}, "envport/call_id": "one"}),
        call(raw, "finish", {}, _meta={"com.example/more": {"a": [None]}, "envport/call_id": "one"}),
    ]


def what_is_unusual(raw: Raw) -> list[Answer]:
    """Messages that are not plain. Those without an error are answered by the SDK as ever."""

    def params(**changed: Any) -> dict[str, Any]:
        of_era = {"_meta": META} if raw.era == "modern" else {}
        return {"name": "no_such_tool", "arguments": {}, **of_era, **changed}

    def message(**changed: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params(), **changed}

    bodies: list[Any] = [
        message(id="one"),
        message(id=None),
        message(id=1.5),
        message(id=True),
        message(id=[1]),
        message(id=10**30),
        message(jsonrpc="1.0"),
        message(more=1),
        message(params=None),
        message(params=[]),
        message(params=params(name=3)),
        message(params=params(name=None)),
        message(params=params(arguments=None)),
        message(params=params(arguments=[])),
        message(params=params(arguments="text")),
        message(params=params(_meta=None)),
        message(params=params(_meta=[])),
        message(params=params(more=1)),
        message(params=params(_meta={**META, "io.modelcontextprotocol/logLevel": "debug"})),
        message(params=params(_meta={**META, "io.modelcontextprotocol/clientInfo": {"name": 3}})),
        message(params=params(_meta={**META, "io.modelcontextprotocol/clientInfo": None})),
        message(
            params=params(_meta={**META, "io.modelcontextprotocol/clientInfo": {"name": "x" * 2000, "version": "1"}})
        ),
        message(params=params(_meta={**META, "io.modelcontextprotocol/clientCapabilities": 3})),
        message(params=params(_meta={**META, "io.modelcontextprotocol/protocolVersion": "2025-11-25"})),
        message(params=params(_meta={**META, "io.modelcontextprotocol/protocolVersion": None})),
        message(params=params(_meta={key: META[key] for key in list(META)[:1]})),
        message(method="tools/list", params={**({"_meta": META} if raw.era == "modern" else {}), "cursor": "x"}),
        message(method="tools/unknown"),
        [message()],
        [],
        3,
        b"",
        b"{",
        b'{"jsonrpc":"2.0","jsonrpc":"1.0","id":1,"method":"tools/call","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b"\xff\xfe{",
    ]
    return [Answer.of(raw.send(body, "tools/call", "no_such_tool")) for body in bodies]


def headers_that_are_wrong(raw: Raw) -> list[Answer]:
    wrong: list[dict[str, str]] = [
        {"Mcp-Name": "another"},
        {"Mcp-Name": "=?base64?ZmluaXNo?="},
        {"Mcp-Name": "=?base64?!?="},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "TOOLS/CALL"},
        {"Mcp-Param-Direction": "left"},
        {"Accept": "text/plain"},
        {"Accept": "application/json"},
        {"Accept": "*/*"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "Application/JSON; charset=utf-8"},
        {"MCP-Protocol-Version": "2024-01-01"},
        {"MCP-Protocol-Version": "2025-03-26"},
        {"Mcp-Session-Id": "nobody-s"},
    ]
    of_era = {"_meta": META} if raw.era == "modern" else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "undo", "arguments": {}, **of_era}}
    return [Answer.of(raw.send(body, "tools/call", "undo", **headers)) for headers in wrong]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("play", [every_tool, what_is_refused, what_is_unusual, headers_that_are_wrong])
@pytest.mark.parametrize("place", ["episode", "shared"])
def test_an_answer_is_that_of_the_sdk(both: tuple[RunningGateway, RunningGateway], era: Era, play: Play, place: str):
    answers: list[list[Answer]] = []
    for gateway in both:
        with Client(gateway.url) as control:
            opened = control.open("showcase", seed=4)
        url = opened.mcp_url if place == "episode" else f"{gateway.url}/environments/showcase/mcp"
        with Raw(url, era) as raw:
            if place == "shared":
                call(raw, "start_episode", {"seed": 4})
            answers.append(play(raw))
    for mine, theirs in zip(*answers, strict=True):
        assert mine == theirs


@pytest.mark.parametrize("era", ERAS)
def test_plain_messages_do_not_reach_the_sdk(
    both: tuple[RunningGateway, RunningGateway], era: Era, monkeypatch: pytest.MonkeyPatch
):
    async def broken(*_: Any) -> None:
        raise AssertionError

    direct, sdk = both
    found: list[list[int]] = []
    for gateway in (direct, sdk):
        with Client(gateway.url) as control:
            url = control.open("counter").mcp_url
        with Raw(url, era) as raw, monkeypatch.context() as without_the_sdk:
            without_the_sdk.setattr("mcp.server.streamable_http_manager.handle_modern_request", broken)
            without_the_sdk.setattr(StreamableHTTPServerTransport, "handle_request", broken)
            found.append([raw.post("tools/call", {"name": "count"}).status_code, raw.post("tools/list").status_code])
    assert found == [[200, 200], [500, 500]]


@pytest.mark.parametrize("sdk_only", [False, True])
def test_a_waiting_call_that_its_session_cancels_is_not_played(sdk_only: bool):
    Gate.rearm()
    episodes = Episodes({GATE.name: GATE})
    with (
        running(table=episodes, sdk_only=sdk_only) as gateway,
        Client(gateway.url) as control,
        ThreadPoolExecutor() as threads,
    ):
        opened = control.open("gate")
        episode = episodes.episode(opened.episode_id, "local")
        with Raw(opened.mcp_url, "legacy") as raw:
            first = threads.submit(raw.send, _waiting(2), "tools/call")
            assert Gate.entered.acquire(timeout=patient(30))
            second = threads.submit(raw.send, _waiting(3), "tools/call")
            until(lambda: episode.waiting == 1)
            notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
            assert raw.send(notice, "notifications/cancelled").status_code == 202
            answer = second.result(patient(30)).json()
            Gate.opened.set()
            assert first.result(patient(30)).json()["result"]["isError"] is False
        assert answer["error"]["message"] == "Request cancelled"
        assert control.episode(opened.episode_id).steps == 1


def _waiting(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + patient(30)
    while not true():
        assert time.monotonic() < limit


def test_a_session_lives_as_long_as_its_calls_do():
    clock = ManualClock()
    with (
        running(load("counter"), limits=Limits(idle_seconds=60), clock=clock) as gateway,
        Raw(f"{gateway.url}/environments/counter/mcp", "legacy") as raw,
    ):
        for _ in range(5):
            gateway.run(lambda: clock.advance(40))
            assert raw.post("tools/call", {"name": "count", "arguments": {}}).status_code == 200
