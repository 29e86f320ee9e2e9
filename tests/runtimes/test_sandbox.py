"""A sandbox holds one episode: it gets out neither to the machine, nor to the gateway, nor to another episode."""

import os
import select
import signal
import subprocess
import sys

import escapes
import pytest
from bubblewrap import needs_bubblewrap
from opening import open_episode
from patience import patient
from runtime_environments import Nosy, Prisoner
from runtimes import descendants, play, serving
from users import PYTHONPATH, USERS, run_as_nobody, run_without_namespaces

from envport.errors import ConfigurationError, EpisodeFailed, EpisodeOver, InvalidEnvironment
from envport.registry import EnvironmentDefinition
from envport.runtimes.cgroups import ControlGroups
from envport.runtimes.origin import Origin
from envport.runtimes.sandbox_plan import SandboxPlan


async def run(user: str, function: str, *arguments: str) -> None:
    """Run a body of `escapes`: here, or as an ordinary user if this one is root."""
    if user == "ordinary" and os.geteuid() == 0:
        run_as_nobody("escapes", function, *arguments)
    else:
        await getattr(escapes, function)(*arguments)


@pytest.mark.parametrize("user", USERS)
async def test_no_episode_gets_out_of_its_sandbox(user: str):
    await run(user, "from_within")


@needs_bubblewrap
@pytest.mark.parametrize("user", USERS)
async def test_a_player_can_be_locked_up_within_a_sandbox(user: str):
    await run(user, "a_sandbox_in_a_sandbox")


@pytest.mark.parametrize("user", USERS)
async def test_what_an_episode_takes_is_counted_over_all_its_processes(user: str):
    if user == "root" and ControlGroups.find():
        await run(user, "more_than_is_allowed", "groups", "sandboxed")
    else:
        await run(user, "more_than_is_allowed", "looking", "sandboxed", "bare")


@pytest.mark.slow
async def test_without_a_sandbox_it_is_counted_in_control_groups_too():
    if os.geteuid() != 0 or not ControlGroups.find():
        pytest.skip("no control groups can be made here")
    await run("root", "more_than_is_allowed", "groups", "bare")


async def test_a_gateway_hides_its_secrets_from_processes_of_its_own_user():
    # From root, nothing can be hidden.
    await run("ordinary", "a_gateway_hides_its_secrets")


def test_nothing_survives_a_killed_gateway():
    source = "import asyncio, escapes; asyncio.run(escapes.until_killed())"
    environ = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, text=True
    ) as gateway:
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == "ready\n"
        watched = [os.pidfd_open(pid) for pid, _ in descendants(gateway.pid)]
        gateway.kill()
    # What waits for the zygote, the zygote, two episodes, and what each has left behind.
    assert len(watched) == 6
    for pidfd in watched:
        assert select.select([pidfd], [], [], patient(10))[0], "a process survived"
        os.close(pidfd)


@pytest.mark.parametrize("place", [0, 1], ids=["what waits for the zygote", "the zygote"])
async def test_the_loss_of_the_zygote_ends_its_episodes_and_the_next_one_has_another(place: int):
    async with serving(escapes.PRISONER) as episodes:
        episode = await open_episode(episodes, "prisoner")
        assert await escapes.attempt(episode, escapes.ORPHAN) == "None"
        os.kill(descendants(os.getpid())[place][0], signal.SIGKILL)
        with pytest.raises((EpisodeFailed, EpisodeOver)):
            await escapes.attempt(episode, "import time; time.sleep(600)")
        again = await open_episode(episodes, "prisoner")
        assert await escapes.attempt(again, "result = 1") == "1"
    assert descendants(os.getpid()) == []


async def test_a_death_in_a_sandbox_is_known_by_its_cause(caplog: pytest.LogCaptureFixture):
    async with serving(escapes.PRISONER) as episodes:
        for code, said in (("ctypes.string_at(0)", "SIGSEGV"), ("os.abort()", "SIG"), ("os._exit(3)", "exit code 3")):
            episode = await open_episode(episodes, "prisoner")
            with pytest.raises(EpisodeFailed, match=said):
                await escapes.attempt(episode, f"import ctypes, os, sys; print('last words', file=sys.stderr); {code}")
            assert "last words" in caplog.text
            caplog.clear()


def test_what_a_sandbox_shows_is_checked():
    missing = type("Missing", (Prisoner,), {"sandbox_paths": ("nowhere.txt",)})
    with pytest.raises(ConfigurationError, match=r"sandbox_paths names 'nowhere\.txt', but there is no /"):
        SandboxPlan.of(EnvironmentDefinition("missing", missing), Origin.of(escapes.PRISONER))
    for attributes, said in (
        ({"sandbox_variables": ("ENVPORT_TOKEN",)}, "'ENVPORT_TOKEN', which is the gateway's own"),
        ({"sandbox_variables": "HOME"}, "allowed: a sequence of names"),
        ({"sandbox_paths": "data"}, "allowed: a sequence of paths"),
        ({"max_processes": 0}, "max_processes is 0; allowed: "),
        ({"disk_mb": -1}, "disk_mb is -1; allowed: "),
        ({"memory_mb": 0}, "memory_mb is 0; allowed: "),
    ):
        with pytest.raises(InvalidEnvironment, match=said):
            type("Odd", (Prisoner,), attributes)
    # However little, it is a limit.
    type("Small", (Prisoner,), {"max_processes": 1, "disk_mb": 0.5, "memory_mb": 0.5, "cpu_seconds": 1})


def test_without_namespaces_it_says_what_to_allow():
    run_without_namespaces("escapes", "without_namespaces")


async def test_a_process_does_not_see_the_gateway_s_secrets(monkeypatch: pytest.MonkeyPatch):
    names = ("ENVPORT_TOKEN", "ENVPORT_SECRET", "OTEL_EXPORTER_OTLP_HEADERS")
    for name in names:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OF_THE_ENVIRONMENT", "kept")
    async with serving(EnvironmentDefinition("nosy", Nosy)) as episodes:
        episode = await open_episode(episodes, "nosy")
        assert [await play(episode, "variable", name=name) for name in names] == ["None"] * len(names)
        assert await play(episode, "variable", name="OF_THE_ENVIRONMENT") == "kept"
        assert await play(episode, "variable", name="PYTHONPATH") == str(os.environ.get("PYTHONPATH"))
