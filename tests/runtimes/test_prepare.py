"""What is costly is set up once for all episodes, and ended with the gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from harness import running
from opening import open_episode
from patience import patient
from prepared_environments import Asks, Loads, Lock, Starts, Undecorated, Waits
from runtimes import KINDS, serving

from envport import Client
from envport.checker import check_environment
from envport.clock import ManualClock
from envport.environment import RuntimeKind
from envport.errors import EpisodeFailed
from envport.registry import EnvironmentDefinition
from envport.runtimes.prepared import PreparedEnvironments

Make = Callable[[type[Any]], EnvironmentDefinition]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    (tmp_path / "pid").write_text(str(os.getpid()))
    return lambda cls: EnvironmentDefinition(cls.__name__.lower(), cls, {"notes": str(tmp_path)})


def noted(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_prepared_once_and_reaches_every_episode(kind: RuntimeKind, make: Make, tmp_path: Path):
    async with serving(make(Loads), make(Starts), runtime=kind) as episodes:
        for _ in range(3):
            assert (await open_episode(episodes, "loads")).first_observation.text == "300000"
            episode = await open_episode(episodes, "starts")
            assert episode.first_observation.text == "http://there"
            assert (await episode.call("look", {})).observation.text == "http://there"
        assert sorted(noted(tmp_path)) == ["loaded in the gateway: True", "started"]
    # In the end, the episodes are closed before what they stand on.
    assert noted(tmp_path)[2:8] == ["closed"] * 6
    assert sorted(noted(tmp_path)[8:]) == ["stopped", "unloaded in the same thread: True"]


async def test_what_a_thread_sets_up_after_the_end_goes_too():
    prepared, limit = PreparedEnvironments(), patient(10)
    entering = asyncio.create_task(prepared.value(EnvironmentDefinition("waits", Waits)))
    assert await anyio.to_thread.run_sync(Waits.begun.wait, limit)
    ending = asyncio.create_task(prepared.end())
    await asyncio.wait({entering})
    Waits.go.set()
    await ending
    assert await anyio.to_thread.run_sync(Waits.unloaded.wait, limit)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gateway_is_not_ready_while_it_fails(
    kind: RuntimeKind, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "fail").touch()
    clock = ManualClock()
    with running(make(Loads), runtime=kind, clock=clock) as gateway, Client(gateway.url) as control:
        while (answer := httpx2.get(f"{gateway.url}/readyz")).json()["status"] == "preparing":
            pass
        assert answer.status_code == 503
        assert answer.json()["environments"]["loads"]["status"] == "failed"
        assert "OSError while it was being prepared" in answer.json()["environments"]["loads"]["reason"]
        assert "no license" in caplog.text
        with pytest.raises(EpisodeFailed):
            control.open("loads")
        (tmp_path / "fail").unlink()
        gateway.run(lambda: clock.advance(30))
        while httpx2.get(f"{gateway.url}/readyz").status_code != 200:
            pass
        assert control.open("loads").observation.text == "300000"
    assert noted(tmp_path)[0] == "loaded in the gateway: True"
    assert noted(tmp_path)[-1] == "unloaded in the same thread: True"


@pytest.mark.parametrize(
    ("cls", "kind", "says"),
    [
        (Lock, "process", "cannot be pickled: TypeError: cannot pickle '_thread.lock' object. Yield plain data"),
        (Undecorated, "inline", "prepare() returned a coroutine; it has to return a context manager"),
        (Undecorated, "process", "prepare() returned a coroutine; it has to return a context manager"),
    ],
)
def test_what_is_wrong_with_it_is_said(cls: type[Any], kind: RuntimeKind, says: str, make: Make):
    with running(make(cls), runtime=kind) as gateway:
        while (answer := httpx2.get(f"{gateway.url}/readyz").json())["status"] == "preparing":
            pass
        assert says in answer["environments"][cls.__name__.lower()]["reason"]


async def test_in_the_gateways_process_nothing_is_copied(make: Make):
    async with serving(make(Lock)) as episodes:
        assert "lock object" in (await open_episode(episodes, "lock")).first_observation.text


def test_the_checker_prepares_too(make: Make, tmp_path: Path):
    assert check_environment(make(Starts)).ok
    assert noted(tmp_path).count("started") == noted(tmp_path).count("stopped") > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_it_has_the_secrets_of_the_file_and_nothing_else_keeps_them(
    kind: RuntimeKind, make: Make, tmp_path: Path
):
    spec = replace(make(Asks), secrets={"KEY": "hush"})
    async with serving(spec, make(Starts), runtime=kind) as episodes:
        assert (await open_episode(episodes, "asks")).first_observation.text == "4"
    assert not spec.prototype.secrets
