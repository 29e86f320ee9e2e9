"""When what runs an environment begins and ends: loading, limits of time, closing, and the end of the gateway."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from harness import reply, running, seat, texts
from opening import open_episode, start_over
from patience import patient
from runtime_environments import Blocking, Closing, Drawing, Everything, Faulty, Lingering, Slumbering, Stubborn
from runtimes import KINDS, descendants, play, serving
from slow import slow
from users import PYTHONPATH

from envport import Client, Environment, Step, Task, tool
from envport.checker import check_environment
from envport.clock import ManualClock
from envport.episodes import EpisodeTable, OpenRequest
from envport.errors import EpisodeFailed, InvalidEnvironment
from envport.registry import EnvironmentDefinition, load
from envport.runtimes import kind_for, runtime_for


class Timed(Environment):
    """Lasts for a minute."""

    max_seconds = 60.0
    runtime = "thread"
    held: ClassVar[threading.Event] = threading.Event()
    inside: ClassVar[threading.Event] = threading.Event()
    closed: ClassVar[threading.Event] = threading.Event()

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "begun"

    @tool
    def step(self) -> Step[str]:
        """Take a step."""
        return Step("stepped", reward=1.0)

    @tool
    def wait(self) -> Step[str]:
        """Wait until the test says so."""
        type(self).inside.set()
        assert type(self).held.wait(patient(30))
        return Step("waited", reward=1.0)

    def close(self) -> None:
        type(self).closed.set()

    @classmethod
    def rearm(cls) -> None:
        for event in (cls.held, cls.inside, cls.closed):
            event.clear()


TIMED = EnvironmentDefinition("timed", Timed)


async def test_an_episode_is_truncated_at_its_limit_of_time():
    clock = ManualClock()
    async with serving(TIMED, runtime="inline", clock=clock) as episodes:
        episode = await open_episode(episodes, "timed")
        await clock.advance(59)
        assert (await episode.call("step", {})).outcome is None
        await clock.advance(10)
        assert episode.outcome is not None
        assert (episode.status, episode.outcome.reason) == ("truncated", "time_limit")
        assert not episode.outcome.lost
        assert episode.reward == 1.0
        assert episodes.live == 0
        await start_over(episodes, episode)
        await clock.advance(30)
        assert episode.status == "running", "a reset has its own time"


async def test_the_limit_of_time_can_be_set_when_serving():
    clock = ManualClock()
    async with serving(TIMED, runtime="inline", clock=clock, max_seconds=10.0) as episodes:
        episode = await open_episode(episodes, "timed")
        await clock.advance(11)
        assert episode.status == "truncated"


async def test_a_call_that_is_running_when_the_time_is_over_is_finished():
    Timed.rearm()
    clock = ManualClock()
    async with serving(TIMED, clock=clock) as episodes:
        episode = await open_episode(episodes, "timed")
        call = asyncio.create_task(episode.call("wait", {}))
        assert await asyncio.to_thread(Timed.inside.wait, patient(30))
        await clock.advance(61)
        assert episode.status == "truncated"
        Timed.held.set()
        result = await call
        assert result.truncated
        assert result.outcome is not None
        assert result.outcome.reason == "time_limit"
        assert result.observation.text.endswith("\n\nThe episode is over. It was truncated at its limit of 60 s.")
        assert (episode.reward, episode.info().steps) == (1.0, 1)
        assert episodes.live == 0


async def test_a_thread_past_its_deadline_is_left_behind_and_closes_what_it_had():
    Timed.rearm()
    async with serving(TIMED, call_seconds=0.1) as episodes:
        episode = await open_episode(episodes, "timed")
        with pytest.raises(EpisodeFailed, match=r"limit of 0\.1 s"):
            await episode.call("wait", {})
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.reward, episodes.live) == ("deadline", None, 0)
        assert not Timed.closed.is_set(), "it was closed while a call was running in it"
        Timed.held.set()
        assert await asyncio.to_thread(Timed.closed.wait, patient(30))


async def test_an_environment_is_closed_in_its_process_and_one_that_hangs_is_killed(tmp_path: Path):
    specs = [
        EnvironmentDefinition("closing", Closing, {"file": tmp_path / "a"}),
        EnvironmentDefinition("hanging", Closing, {"file": tmp_path / "b", "hang": True}),
    ]
    async with serving(*specs) as episodes:
        for spec in specs:
            episode = await open_episode(episodes, spec.name)
            result = await episode.call("finish", {})
            assert (result.reward, result.terminated) == (1.0, True)
            assert (episode.status, episode.reward) == ("terminated", 1.0)
        await until(lambda: episodes.live == 0)
        assert [(tmp_path / name).read_text() for name in "ab"] == ["closed", "closed"]


async def until(condition: Any) -> None:
    """Wait until something that runs beside the test has happened."""
    with anyio.fail_after(patient(30)):
        while not condition():  # noqa: ASYNC110 (nothing tells of it)
            await anyio.sleep(0.005)


@pytest.mark.parametrize(
    ("kind", "cls"),
    [(kind, Lingering) for kind in KINDS] + [("thread", Blocking), ("process", Blocking)],
)
async def test_the_last_answer_comes_before_the_environment_is_closed(tmp_path: Path, kind: Any, cls: type[Any]):
    async with serving(EnvironmentDefinition("lingering", cls, {"folder": tmp_path}), runtime=kind) as episodes:
        episode = await open_episode(episodes, "lingering")
        result = await episode.call("finish", {})
        assert (result.reward, result.terminated, episode.reward) == (1.0, True, 1.0)
        await until((tmp_path / "closing").exists)
        assert not (tmp_path / "closed").exists()
        assert episodes.live == 1, "its place went to others while it was being closed"
        (tmp_path / "may close").touch()
        await until(lambda: episodes.live == 0)
        assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reset_waits_for_the_close_before_it(tmp_path: Path, kind: Any):
    async with serving(EnvironmentDefinition("lingering", Lingering, {"folder": tmp_path}), runtime=kind) as episodes:
        episode = await open_episode(episodes, "lingering")
        await episode.call("finish", {})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start_over, episodes, episode)
            await until((tmp_path / "closing").exists)
            (tmp_path / "may close").touch()
        assert (tmp_path / "closed").exists()
        assert (episode.status, episodes.live) == ("running", 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_has_a_limit_of_its_own(tmp_path: Path, kind: Any):
    async with serving(EnvironmentDefinition("stubborn", Stubborn, {"folder": tmp_path}), runtime=kind) as episodes:
        episode = await open_episode(episodes, "stubborn")
        assert (await episode.call("finish", {})).terminated
        await until(lambda: episodes.live == 0)
        assert not (tmp_path / "closed").exists()
        assert (episode.status, episode.reward) == ("terminated", 1.0)


async def test_a_close_that_holds_up_the_gateway_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with serving(
        EnvironmentDefinition("slumbering", Slumbering, {"folder": tmp_path}), runtime="inline"
    ) as episodes:
        episode = await open_episode(episodes, "slumbering")
        await episode.call("finish", {})
    assert "environment slumbering blocked the event loop, and with it every other episode, for 0." in caplog.text
    assert "in close(). Make it async, or" in caplog.text


def test_declarations_are_checked():
    with pytest.raises(InvalidEnvironment, match="'inline', 'thread', 'process'"):
        type("Odd", (Faulty,), {"runtime": "fiber"})
    with pytest.raises(InvalidEnvironment, match="sandbox needs runtime = 'process'"):
        type("Odd", (Faulty,), {"runtime": "inline", "sandbox": True})


def test_whoever_serves_chooses_the_runtime_but_a_sandbox_stays_one():
    sandboxed = type("Sandboxed", (Faulty,), {"sandbox": True})
    for kind in KINDS:
        assert kind_for(EnvironmentDefinition("faulty", Faulty), kind) == kind
        assert kind_for(EnvironmentDefinition("sandboxed", sandboxed), kind) == "process"
    assert kind_for(EnvironmentDefinition("everything", Everything), None) == "inline"


async def test_an_environment_of_a_file_runs_in_a_process(tmp_path: Path):
    file = tmp_path / "own.py"
    file.write_text(
        "from envport import Environment, tool\n"
        "class Own(Environment):\n"
        "    '''Is in a file.'''\n"
        "    runtime = 'process'\n"
        "    def reset(self, *, seed, task):\n"
        "        return 'own'\n"
        "    @tool\n"
        "    def hello(self) -> str:\n"
        "        '''Greet.'''\n"
        "        return 'hello'\n"
    )
    spec = load(f"{file}:Own")
    async with serving(spec) as episodes:
        assert await play(await open_episode(episodes, "own"), "hello") == "hello"
    # What is loaded later is what was served, or nothing.
    file.write_text(file.read_text().replace("Greet.", "Greet twice."))
    async with serving(spec) as episodes:
        with pytest.raises(EpisodeFailed):
            await open_episode(episodes, "own")


async def test_an_environment_that_no_other_process_can_find_says_so(caplog: pytest.LogCaptureFixture):
    class Local(Faulty):
        pass

    async with serving(EnvironmentDefinition("local", Local)) as episodes:
        with pytest.raises(EpisodeFailed):
            await open_episode(episodes, "local")
    assert "move it to the top of its module" in caplog.text


async def test_the_first_episode_finds_its_zygote_waiting():
    runtime = runtime_for("process")
    spec = EnvironmentDefinition("faulty", Faulty)
    await runtime.prepare(spec)
    assert [len(descendants(os.getpid())), runtime.load().workers] == [1, 0]
    worker = await runtime.open(spec)
    await worker.reset(seed=1, task=None)
    call = asyncio.create_task(worker.call("sleep", {"seconds": 0.2}, None))
    await asyncio.sleep(0)
    assert (runtime.load().workers, runtime.load().busy) == (1, 1)
    await call
    await worker.close()
    assert runtime.load().workers == 0
    await runtime.drain()
    assert descendants(os.getpid()) == []


@pytest.mark.slow
def test_the_checker_plays_in_processes_too():
    report = check_environment(EnvironmentDefinition("drawing", Drawing), seeds=(0, 1), steps=5)
    assert (report.ok, report.episodes) == (True, 6)
    assert descendants(os.getpid()) == []


SCRIPT = """
import asyncio, os, sys
from envport import Environment, tool
from envport.episodes import Episodes
from envport.registry import EnvironmentDefinition
from opening import open_episode
from runtime_environments import Faulty

class Own(Environment):
    '''Is defined in the script that is run.'''
    runtime = 'process'
    def reset(self, *, seed, task):
        return 'own'
    @tool
    def pid(self) -> str:
        '''Its process.'''
        return str(os.getpid())

async def main():
    specs = {'faulty': EnvironmentDefinition('faulty', Faulty), 'own': EnvironmentDefinition('own', Own)}
    episodes = Episodes(specs)
    async with episodes.run():
        own = await open_episode(episodes, 'own')
        pids = [(await own.call('pid', {})).observation.text]
        calls = []
        for tool in ('hold_the_gil', 'ignore_signals', 'orphan'):
            episode = await open_episode(episodes, 'faulty')
            pids.append(episode.first_observation.text)
            call = asyncio.create_task(episode.call(tool, {}))
            calls.append(call)
            if tool == 'orphan':
                pids.append((await call).observation.text)
        print(*pids, flush=True)
        await asyncio.gather(*calls)
        await asyncio.Event().wait()

if __name__ == '__main__':
    asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, *slow([signal.SIGTERM]), signal.SIGINT])
def test_nothing_survives_the_gateway(tmp_path: Path, number: signal.Signals):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environ = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, text=True
    ) as gateway:
        assert gateway.stdout is not None
        pids = [int(pid) for pid in gateway.stdout.readline().split()]
        assert len(pids) == 5
        zygotes = [pid for pid, _ in descendants(gateway.pid) if pid not in pids]
        watched = [os.pidfd_open(pid) for pid in (*pids, *zygotes)]
        gateway.send_signal(number)
        # SIGINT ends it in order, which takes until the calls that are running are given up.
        gateway.wait(patient(30))
    for pidfd in watched:
        assert select.select([pidfd], [], [], 10)[0], "a process survived"
        os.close(pidfd)


@pytest.mark.parametrize("era", ["modern", *slow(["legacy"])])
async def test_stdio_is_not_disturbed_by_what_a_process_prints(era: Any):
    async with seat(None, "stdio", era, "everything", reference="runtime_environments:Printing") as player:  # type: ignore[arg-type]
        assert reply(await player.call("shout", {"text": "noise\n"})) == "shouted"
        assert texts(await player.call("say", {"text": "a"})) == ["a"]


def test_the_control_plane_tells_how_an_episode_ended():
    with running(EnvironmentDefinition("faulty", Faulty)) as gateway, Client(gateway.url) as control:
        opened = control.open("faulty")
        os.kill(int(opened.observation.text), signal.SIGKILL)
        gateway.run(lambda: _ended(gateway.gateway.table, opened.episode_id))
        info = control.episode(opened.episode_id)
    assert info.outcome is not None
    assert (info.status, info.outcome.reason, info.outcome.fault) == ("failed", "worker_lost", "environment")
    assert "SIGKILL" in info.outcome.message
    assert info.reward is None


async def _ended(table: EpisodeTable, handle: str) -> None:
    """Wait until the table knows of an end, by opening another episode, which the zygote does after telling of it."""
    while (await table.info(handle, "local")).status == "running":
        await table.close((await table.open(OpenRequest("faulty", "local"))).handle, "local")
