"""Requests of the Open Reward Standard, one by one, and what they are answered."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from harness import RunningGateway

from envport import Client

TASK = {"split": "train", "index": 0}
COUNT = {"name": "count", "input": {}}
Event = tuple[str, str]


def post(gateway: RunningGateway, path: str, sid: str | None, body: Any = None, **headers: str) -> httpx2.Response:
    named = headers if sid is None else {"X-Session-ID": sid, **headers}
    return httpx2.post(f"{gateway.url}{path}", headers=named, json={} if body is None else body)


def events(answer: httpx2.Response) -> list[Event]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    found: list[Event] = []
    for part in answer.text.split("\r\n\r\n")[:-1]:
        if not part.startswith(":"):
            event, data = part.split("\r\n")
            found.append((event.removeprefix("event: "), data.removeprefix("data: ")))
    return found


def told(answer: httpx2.Response) -> dict[str, Any]:
    """What a call came to."""
    first, *chunks = events(answer)
    assert first[0] == "task_id"
    assert [event for event, _ in chunks] == ["chunk"] * (len(chunks) - 1) + ["end"]
    return json.loads("".join(data for _, data in chunks))


def text(answer: httpx2.Response) -> str:
    return told(answer)["output"]["blocks"][0]["text"]


def live(gateway: RunningGateway, environment: str) -> int:
    with Client(gateway.url) as control:
        return sum(info.environment == environment and info.status == "running" for info in control.episodes())


def until_none_live(gateway: RunningGateway, environment: str) -> None:
    while live(gateway, environment):
        pass
