"""What `envport serve` logs: lines for people, or an object on each line that says whom and what it is about."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_line import TOKEN, Served
from harness import Era, Raw
from slow import slow

from envport import Client

HERE = Path(__file__).parent
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def opened(served: Served) -> dict[str, str]:
    answer = httpx2.post(f"{served.url}/episodes", json={"environment": "watched"}, headers=BEARER)
    assert answer.status_code == 201, answer.text
    return answer.json()


def call(url: str, era: Era, tool: str, **arguments: str) -> None:
    with Raw(url, era, BEARER) as raw:
        answer = raw.post("tools/call", {"name": tool, "arguments": arguments})
        assert answer.status_code == 200, answer.text


def entries(served: Served) -> list[dict[str, Any]]:
    """The log, of which every line is an object."""
    return [json.loads(line) for line in served.log.splitlines()]


def json_lines(*words: str) -> Served:
    return Served("watched.py:Watched", "--log-format", "json", *words, cwd=HERE, ENVPORT_TOKEN=TOKEN)


@pytest.mark.parametrize("era", ["legacy", *slow(["modern"])])
def test_each_line_is_an_object_that_says_whom_and_what_it_is_about(era: Era):
    begin = datetime.now(UTC) - timedelta(seconds=1)
    with json_lines() as served:
        episode = opened(served)
        call(episode["mcp_url"], era, "note", text="two\nlines, “quoted”")
        call(episode["mcp_url"], era, "warn")
        call(episode["mcp_url"], era, "crash")
        noted, warned, crashed = entries(served)
    about = {"principal": "default", "environment": "watched", "episode_id": episode["episode_id"]}
    for entry in (noted, warned, crashed):
        assert entry.items() >= about.items()
        assert begin <= datetime.fromisoformat(entry["time"]) <= datetime.now(UTC)
    assert (noted["level"], noted["logger"]) == ("warning", "watched")
    assert noted["message"] == "noted: two\nlines, “quoted”"
    assert "UserWarning: an odd function" in warned["message"]
    assert (crashed["level"], crashed["outcome"], crashed["fault"]) == ("error", "environment_error", "environment")
    assert "environment watched broke in tool 'crash'" in crashed["message"]
    assert "RuntimeError: hunter2 in an exception" in crashed["traceback"]
    assert "trace_id" not in crashed


def test_ends_are_logged_with_their_outcome():
    with json_lines() as served:
        finished, closed, left = (opened(served) for _ in range(3))
        call(finished["mcp_url"], "modern", "finish")
        for episode in (finished, closed):
            httpx2.delete(f"{served.url}/episodes/{episode['episode_id']}", headers=BEARER)
        assert served.stop() == 0
        ended = entries(served)
    assert [(it["level"], it["episode_id"], it["outcome"]) for it in ended] == [
        ("info", finished["episode_id"], "terminated"),
        ("info", closed["episode_id"], "closed"),
        ("info", left["episode_id"], "shutdown"),
    ]
    assert {(it["principal"], it["environment"]) for it in ended} == {("default", "watched")}


@pytest.mark.parametrize(
    ("options", "logged"), [((), False), (("--log-ends",), True), (("--log-level", "debug"), True)]
)
def test_for_people_ends_as_usual_are_logged_if_that_is_asked_for(options: tuple[str, ...], logged: bool):
    with Served("counter", "--drain-seconds", "0", *options) as served:
        with Client(served.url) as control:
            closed, left = control.open("counter"), control.open("counter")
            control.close_episode(closed.episode_id)
        assert served.stop() == 0
        ended = [line for line in served.log.splitlines() if " ended as " in line]
    assert [left.episode_id in line for line in ended] == ([False, True] if logged else [True])
    assert ended[-1].endswith("ended as closed: The gateway was shut down.")


def test_ends_are_not_logged_where_only_warnings_are():
    with json_lines("--log-level", "warning") as served:
        call(opened(served)["mcp_url"], "modern", "finish")
        assert served.stop() == 0
        assert served.log == ""


def test_a_warning_of_the_command_itself_is_an_object_too():
    names = ("--host", "0.0.0.0", "--allow-unauthenticated", "--allowed-host", "gateway.test")
    with Served("counter", "--log-format", "json", *names) as served:
        (entry,) = entries(served)
    assert entry["level"] == "warning"
    assert "Whoever reaches this address" in entry["message"]


def test_a_warning_of_python_is_a_record_for_people_too():
    with Served("watched.py:Watched", cwd=HERE, ENVPORT_TOKEN=TOKEN) as served:
        call(opened(served)["mcp_url"], "modern", "warn")
        lines = served.log.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (INFO|WARNING) |  \| ", line) for line in lines), lines
    assert any("WARNING py.warnings: " in line and "an odd function" in line for line in lines)


def test_lines_are_for_people_unless_told_otherwise():
    with Served("watched.py:Watched", cwd=HERE, ENVPORT_TOKEN=TOKEN) as served:
        episode = opened(served)
        call(episode["mcp_url"], "modern", "crash")
        first, *traceback = served.log.splitlines()
    pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ERROR envport\.\S+: episode (\S+): environment watched broke in .*"
    found = re.fullmatch(pattern, first)
    assert found, first
    assert found[1] == episode["episode_id"]
    assert traceback[-1] == "  | RuntimeError: hunter2 in an exception"


FORGED = "2026-01-01 00:00:00 ERROR envport.episodes: forged"
HOSTILE = f"a\n{FORGED}\r{FORGED}\u2028{FORGED}\x1b]0;title\x07\x1b[2J\x9b1m\u202eend"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")


def test_what_environments_write_forges_no_line_and_reaches_no_terminal():
    support = HERE.parent / "support" / "runtime_environments.py"
    with Served("watched.py:Watched", f"{support}:Faulty", cwd=HERE, ENVPORT_TOKEN=TOKEN) as served:
        for environment, tool, arguments in (
            ("watched", "note", {"text": HOSTILE}),
            ("faulty", "die", {"of": "SIGSEGV", "last_words": HOSTILE}),
        ):
            answer = httpx2.post(f"{served.url}/episodes", json={"environment": environment}, headers=BEARER)
            call(answer.json()["mcp_url"], "modern", tool, **arguments)
        log = served.log
    lines = [line for line in log.split("\n") if line]
    assert not UNSAFE.search(log.replace("\n", "")), log
    assert log.count("forged") == 6
    assert [line for line in lines if line.startswith(FORGED)] == []
    # Another one says what keeps the limits of processes.
    records = [line for line in lines if not line.startswith("  | ") and "limits on memory" not in line]
    assert [("noted: a" in line, "environment faulty was lost" in line) for line in records] == [
        (True, False),
        (False, True),
    ]
    assert r"forged\x1b]0;title\x07\x1b[2J\x9b1m\u202eend" in log


def test_json_lines_hold_no_character_that_a_terminal_obeys():
    with json_lines() as served:
        call(opened(served)["mcp_url"], "modern", "note", text=HOSTILE)
        log = served.log
    (entry,) = [json.loads(line) for line in log.split("\n") if line]
    assert entry["message"] == f"noted: {HOSTILE}"
    assert not UNSAFE.search(log.replace("\n", "")), log
