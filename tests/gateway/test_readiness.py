"""`/readyz` says whether episodes can be opened, and what is in the way; `/healthz` only that the process answers."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from harness import running

from envport import Client
from envport.access import Access
from envport.clock import ManualClock
from envport.errors import Draining
from envport.registry import load
from envport.runtimes import limits_kept_by

TOKEN = "a-token-of-the-tests-0123456789"

# Loaded a second time, in the process that the episodes are forked from, it takes its time or fails.
LATE = """
import os
import time
from pathlib import Path

from envport import Environment, tool

folder = Path(__file__).parent
first = folder / "first"
if not first.exists():
    first.write_text(str(os.getpid()))
elif first.read_text() != str(os.getpid()):
    while (folder / "late").exists():
        time.sleep(0.01)
    if (folder / "broken").exists():
        raise RuntimeError("no license")


class Late(Environment):
    runtime = "process"

    def reset(self, *, seed, task):
        return "Ready."

    @tool
    def wait(self) -> str:
        return "waited"
"""


def ready(url: str, token: str | None = None) -> tuple[int, dict[str, object]]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = httpx2.get(f"{url}/readyz", headers=headers)
    assert httpx2.get(f"{url}/healthz").status_code == 200
    return answer.status_code, answer.json()


@pytest.fixture
def late(tmp_path: Path) -> Path:
    (tmp_path / "late.py").write_text(LATE)
    return tmp_path


def test_it_is_not_ready_while_an_environment_is_being_prepared(late: Path):
    (late / "late").touch()
    with running(load(f"{late}/late.py:Late"), load("counter")) as gateway:
        code, said = ready(gateway.url)
        assert (code, said["status"]) == (503, "preparing")
        assert said["reason"] == "1 of 2 environments are being prepared"
        assert said["environments"] == {
            "late": {"status": "preparing", "reason": None, "limits_kept_by": None},
            "counter": {"status": "ready", "reason": None, "limits_kept_by": None},
        }
        (late / "late").unlink()
        while (code := ready(gateway.url)[0]) != 200:
            assert code == 503
        code, said = ready(gateway.url)
        assert said["status"] == "ready"
        environments = said["environments"]
        assert isinstance(environments, dict)
        assert environments["late"]["limits_kept_by"] == limits_kept_by("process")


def test_it_is_not_ready_while_an_environment_cannot_be_run_and_tries_again(late: Path):
    (late / "broken").touch()
    clock = ManualClock()
    with running(load(f"{late}/late.py:Late"), load("counter"), clock=clock) as gateway:
        while (found := ready(gateway.url))[1]["status"] == "preparing":
            pass
        code, said = found
        assert (code, said["status"]) == (503, "unavailable")
        assert said["reason"] == "1 of 2 environments cannot be run"
        environments = said["environments"]
        assert isinstance(environments, dict)
        assert environments["late"]["status"] == "failed"
        assert "no license" in environments["late"]["reason"]
        assert environments["counter"]["status"] == "ready"
        with Client(gateway.url) as control:
            # The others are played all the same.
            control.open("counter")
        (late / "broken").unlink()
        gateway.run(lambda: clock.advance(30))
        while ready(gateway.url)[0] != 200:
            pass


def test_who_has_no_token_is_told_no_names():
    access = Access.load({"ENVPORT_TOKEN": TOKEN})
    with running(load("counter"), access=access) as gateway:
        assert "environments" not in ready(gateway.url)[1]
        environments = ready(gateway.url, TOKEN)[1]["environments"]
        assert environments == {"counter": {"status": "ready", "reason": None, "limits_kept_by": None}}


def test_it_is_not_ready_once_new_episodes_are_refused():
    with running(load("counter")) as gateway, Client(gateway.url) as control:
        episode = control.open("counter")

        async def take_no_more() -> None:
            gateway.gateway.table.take_no_more()

        gateway.run(take_no_more)
        code, said = ready(gateway.url)
        assert (code, said["status"], said["live"]) == (503, "draining", 1)
        with pytest.raises(Draining):
            control.open("counter")
        assert control.episode(episode.episode_id).status == "running"
