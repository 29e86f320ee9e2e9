"""The Open Reward Standard in front of our environments, request by request."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx2
import pytest
from environments import Gate
from harness import RunningGateway, running
from ors_wire import COUNT, TASK, events, live, post, text, told
from patience import patient

from envport import Client, Environment, Step, Task, tool
from envport.access import Access, Principal, Scope
from envport.registry import EnvironmentDefinition, load
from envport_bridges.ors import ors_root_surface, ors_surface

TRAINER, OTHER, WATCHER, PLAYER = (f"{name}-0123456789abcdef" for name in ("trainer", "other", "watcher", "player"))
SCOPES: dict[str, frozenset[Scope]] = {
    TRAINER: frozenset({"control", "play"}),
    OTHER: frozenset({"control", "play"}),
    WATCHER: frozenset({"control"}),
    PLAYER: frozenset({"play"}),
}


class Many(Environment):
    """Has many tasks."""

    def splits(self) -> dict[str, Any]:
        return {"many": [{"id": str(n)} for n in range(10_001)]}

    def reset(self, *, seed: int, task: Task | None) -> None:
        return None

    @tool
    def nothing(self) -> str:
        """Do nothing."""
        return "done"


class Lingering(Environment):
    """Takes its time to end, and to close."""

    runtime = "thread"
    entered: ClassVar[threading.Semaphore] = threading.Semaphore(0)
    ending: ClassVar[threading.Event] = threading.Event()
    closing: ClassVar[threading.Event] = threading.Event()

    def reset(self, *, seed: int, task: Task | None) -> None:
        return None

    @tool
    def end(self) -> Step[str]:
        """End it."""
        type(self).entered.release()
        assert self.ending.wait(patient(30))
        return Step("ended", reward=1.0, terminated=True)

    def close(self) -> None:
        assert self.closing.wait(patient(30))


def definition(cls: type[Environment]) -> EnvironmentDefinition:
    return EnvironmentDefinition(cls.__name__.lower(), cls)


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    named = (load(name) for name in ("counter", "echo"))
    surfaces = {"environment_surfaces": {"ors": ors_surface}, "root_surface": ors_root_surface}
    with running(*named, *map(definition, (Gate, Many, Lingering)), **surfaces) as serving:
        yield serving


def test_an_id_is_given_and_a_session_lasts_until_it_is_deleted(gateway: RunningGateway):
    begun = events(post(gateway, "/create_session", None))
    sid = begun[0][1]
    assert begun == [("task_id", sid), ("end", "")]
    assert events(post(gateway, "/create_session", None, {"task_id": sid}))[0][1] != sid
    for path in ("/ping", "/counter/call"):
        assert post(gateway, path, sid, COUNT if path == "/counter/call" else None).status_code == 404
    created = post(gateway, "/create", sid, {**TASK, "env_name": "counter"}).json()
    assert created["sid"] == sid
    assert live(gateway, "counter") == 1
    # The client writes two slashes if its URL ends with one.
    for path in ("/ping", "//ping"):
        assert post(gateway, path, sid).json() == {"status": "ok"}
    assert text(post(gateway, "/call", sid, COUNT)) == "1"
    for path in ("/delete", "/delete", "/delete_session"):
        assert post(gateway, path, sid).json() == {"sid": sid}
    assert post(gateway, "/call", sid, COUNT).status_code == 404
    with Client(gateway.url) as control:
        assert control.episode(created["episode_id"]).status == "closed"


def test_an_answer_is_given_again_and_its_call_is_played_once(gateway: RunningGateway):
    for sid in ("again", "another"):
        post(gateway, "/create", sid, {**TASK, "env_name": "counter"})
    first = post(gateway, "/call", "again", COUNT)
    task_id = events(first)[0][1]
    again = post(gateway, "/call", "again", {**COUNT, "task_id": task_id})
    assert events(again) == events(first)
    assert text(post(gateway, "/call", "again", COUNT)) == "2"
    unknown = ("error", "unknown task_id: answers are kept for a minute")
    assert events(post(gateway, "/call", "another", {**COUNT, "task_id": task_id})) == [unknown]
    for sid in ("again", "another"):
        post(gateway, "/delete", sid)


def test_a_call_goes_on_when_its_stream_breaks(gateway: RunningGateway):
    Gate.rearm()
    post(gateway, "/create", "broken", {**TASK, "env_name": "gate"})
    call = {"name": "wait", "input": {}}
    headers = {"X-Session-ID": "broken"}
    with httpx2.stream("POST", f"{gateway.url}/gate/call", headers=headers, json=call) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: task_id"
        task_id = next(lines).removeprefix("data: ")
        Gate.entered.acquire()
    Gate.opened.set()
    assert text(post(gateway, "/gate/call", "broken", {**call, "task_id": task_id})) == "through"
    assert not Gate.entered.acquire(blocking=False)
    post(gateway, "/delete", "broken")


async def test_of_two_calls_at_once_one_brings_the_reward(gateway: RunningGateway):
    post(gateway, "/create", "both", {**TASK, "env_name": "lingering"})
    url, headers, end = f"{gateway.url}/lingering/call", {"X-Session-ID": "both"}, {"name": "end", "input": {}}
    async with httpx2.AsyncClient(timeout=patient(30)) as client:
        first = asyncio.create_task(client.post(url, headers=headers, json=end))
        await asyncio.to_thread(Lingering.entered.acquire)
        async with client.stream("POST", url, headers=headers, json=end) as second:
            # It waits for its turn.
            parts = second.aiter_text()
            said = await anext(parts)
            Lingering.ending.set()
            said += "".join([part async for part in parts])
        Lingering.closing.set()
        answers = [told(await first), told(httpx2.Response(200, headers=second.headers, text=said))]
    rewards = [answer["output"]["reward"] for answer in answers if answer["ok"]]
    assert [reward for reward in rewards if reward is not None] == [1.0]
    post(gateway, "/delete", "both")


@pytest.mark.slow
def test_a_long_call_shows_that_it_is_still_running(gateway: RunningGateway):
    Gate.rearm()
    post(gateway, "/create", "long", {**TASK, "env_name": "gate"})
    body = {"name": "wait", "input": {}}
    with httpx2.stream(
        "POST", f"{gateway.url}/gate/call", headers={"X-Session-ID": "long"}, json=body, timeout=patient(30)
    ) as stream:
        assert next(line for line in stream.iter_lines() if line.startswith(":")) == ": still running"
        Gate.opened.set()
    post(gateway, "/delete", "long")


def test_no_chunk_begins_with_white_space_or_is_longer_than_the_protocol_s(gateway: RunningGateway):
    post(gateway, "/create", "chunks", {**TASK, "env_name": "echo"})
    message = " \u2003" * 10_000
    said = {"name": "echo", "input": {"message": message}}
    answer = post(gateway, "/call", "chunks", said)
    assert text(answer) == message
    chunks = [data for _, data in events(answer)[1:]]
    assert len(chunks) == 5
    assert all(not data[0].isspace() and len(data) <= 4096 + 5 for data in chunks)
    post(gateway, "/delete", "chunks")


S = {"X-Session-ID": "wrong"}
WRONG: list[tuple[str, str, dict[str, str], Any, int, str]] = [
    ("POST", "/create", {}, TASK, 400, "X-Session-ID header is required"),
    ("POST", "/create", {"X-Session-ID": "x" * 201}, TASK, 400, "printable, of at most 200"),
    ("POST", "/create", S, {}, 422, "either task_spec is needed, or both split and index"),
    ("POST", "/create", S, {"split": "train"}, 422, "either task_spec"),
    ("POST", "/create", S, {**TASK, "task_spec": {}}, 422, "either task_spec"),
    ("POST", "/create", S, {**TASK, "seed": 4}, 422, "seed: Extra inputs"),
    ("POST", "/create", S, {"split": "train", "index": "1"}, 422, "index: Input should be a valid integer"),
    ("POST", "/create", S, "text", 422, "the body: Input should be an object"),
    ("POST", "/create", S, {**TASK, "split": "no"}, 400, "Invalid split: 'no'; the splits of 'counter' are: 'train'"),
    ("POST", "/create", S, {**TASK, "index": 1000}, 400, "Invalid index: 1000"),
    ("POST", "/create", S, {**TASK, "index": -1}, 400, "Invalid index: -1"),
    ("POST", "/create", S, {**TASK, "env_name": "no"}, 404, "there is no environment 'no'"),
    ("POST", "/create", S, {**TASK, "toolset_name": "codex"}, 400, "unknown toolset 'codex'"),
    ("POST", "/create", S, {"task_spec": {"seed": "1"}}, 400, "seed: Input should be a valid integer"),
    ("POST", "/create", S, {"task_spec": {"sede": 1}}, 400, "task_spec has id, split, task, seed, and not sede"),
    ("POST", "/create", S, {"task_spec": {"task": 1}}, 400, "has no tasks"),
    ("POST", "/create", {**S, "X-Secrets": "hush"}, TASK, 400, "X-Secrets has to be base64"),
    ("POST", "/create", {**S, "X-Secrets": base64.b64encode(b'{"a": "hush"}').decode()}, TASK, 400, "X-Secrets has"),
    ("POST", "/create_session", {}, {"env": {"KEY": "hush"}}, 400, "env cannot be overridden"),
    ("POST", "/counter/call", {**S, "X-Session-ID": "fine"}, {"name": "count"}, 422, "input: Field required"),
    ("POST", "/counter/score_group", {**S, "X-Session-ID": "fine"}, {}, 404, "does not implement score_group"),
    ("POST", "/tasks", {}, {"split": "no"}, 400, "Invalid split"),
    ("POST", "/many/tasks", {}, {"split": "many"}, 400, "10001 tasks cannot be listed at once"),
    ("POST", "/task", {}, {"split": "train", "index": 1000}, 400, "Invalid index"),
    ("GET", "/no/tools", {}, None, 404, "there is no environment 'no'"),
    ("GET", "/tools", {"X-Deployment": "owner/no"}, None, 404, "there is no environment 'no'"),
    ("GET", "/prompt", S, None, 404, "Active environment not found"),
]


def test_what_is_wrong_is_said_and_nothing_is_opened(gateway: RunningGateway):
    post(gateway, "/create", "fine", {**TASK, "env_name": "counter"})
    for method, path, headers, body, status, message in WRONG:
        answer = httpx2.request(method, f"{gateway.url}{path}", headers=headers, json=body)
        assert (answer.status_code, message in answer.text) == (status, True), (path, headers, body, answer.text)
        assert "hush" not in answer.text
    assert live(gateway, "counter") == 1
    post(gateway, "/delete", "fine")


def test_many_tasks_are_listed_in_parts(gateway: RunningGateway):
    part = post(gateway, "/many/task_range", None, {"split": "many", "start": -2}).json()
    assert [spec["task"] for spec in part["tasks"]] == [9_999, 10_000]
    assert post(gateway, "/many/num_tasks", None, {"split": "many"}).json() == {"num_tasks": 10_001}


def test_without_a_name_it_is_the_first_environment_or_the_one_that_the_client_was_made_for(gateway: RunningGateway):
    def first_tool(path: str, **headers: str) -> str:
        return httpx2.get(f"{gateway.url}{path}", headers=headers).json()["tools"][0]["name"]

    listed = httpx2.get(f"{gateway.url}/list_environments").json()
    assert listed[:3] == ["counter", "echo", "gate"]
    assert httpx2.get(f"{gateway.url}/health").json() == {"status": "ok"}
    assert first_tool("/tools") == "count"
    assert first_tool("/echo/tools") == "echo"
    assert (
        first_tool("/tools", **{"X-Deployment": "echo"})
        == first_tool("/tools", **{"X-Deployment": "me/echo"})
        == "echo"
    )


def test_below_its_path_each_environment_is_a_server_of_its_own(gateway: RunningGateway):
    base = "/environments/echo/ors"
    assert httpx2.get(f"{gateway.url}{base}/list_environments").json() == ["echo"]
    # A client that was made for any name finds it.
    for path in ("/tools", "/echo/tools"):
        found = httpx2.get(f"{gateway.url}{base}{path}", headers={"X-Deployment": "env"}).json()
        assert [tool["name"] for tool in found["tools"]] == ["echo"]
    assert httpx2.get(f"{gateway.url}{base}/counter/tools").status_code == 404
    assert httpx2.get(f"{gateway.url}/environments/no/ors/tools").status_code == 404
    post(gateway, f"{base}/create", "below", TASK)
    call = {"name": "echo", "input": {"message": "hello"}}
    assert text(post(gateway, f"{base}/echo/call", "below", call)) == "hello"
    assert post(gateway, "/call", "below", call).status_code == 404
    post(gateway, f"{base}/delete", "below")


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningGateway]:
    tokens = [
        (hashlib.sha256(token.encode()).digest(), Principal(token[:5], scopes)) for token, scopes in SCOPES.items()
    ]
    with running(load("counter"), access=Access(tokens), root_surface=ors_root_surface) as serving:
        yield serving


def test_it_is_for_trainers_alone_and_a_session_for_its_own(guarded: RunningGateway):
    post(guarded, "/create", "mine", TASK, **{"X-API-Key": TRAINER})
    with Client(guarded.url, token=TRAINER) as control:
        episode = control.open("counter", mint_token=True).token or ""
    for token, status in ((PLAYER, 403), (WATCHER, 403), (episode, 403), ("wrong-token-0123456789", 401)):
        for name, value in (("X-API-Key", token), ("Authorization", f"Bearer {token}")):
            for path in ("/ping", "/create_session"):
                assert post(guarded, path, "mine", **{name: value}).status_code == status, (name, path)
    assert post(guarded, "/ping", "mine", Authorization=f"Bearer {TRAINER}").status_code == 200
    assert post(guarded, "/ping", "mine", **{"X-API-Key": OTHER}).status_code == 404
    assert post(guarded, "/delete", "mine", **{"X-API-Key": OTHER}).status_code == 200
    assert text(post(guarded, "/call", "mine", COUNT, **{"X-API-Key": TRAINER})) == "1"
    # It is the token of surfaces alone.
    assert httpx2.get(f"{guarded.url}/environments", headers={"X-API-Key": TRAINER}).status_code == 401
