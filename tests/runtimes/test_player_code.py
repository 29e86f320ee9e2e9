"""What the player's code does is an observation. It reaches neither the environment nor the reward."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import player_escapes
import pytest
from bubblewrap import needs_bubblewrap
from opening import close_episode, open_episode
from patience import patient
from player_environments import (
    AsyncCoder,
    Coder,
    SandboxedCoder,
    SlowToBegin,
    ThreadedAsyncCoder,
    ThreadedCoder,
    Unable,
)
from player_escapes import CODER, attempt
from runtimes import descendants, serving
from slow import slow
from users import run_as_nobody

from envport import Environment, PlayerLimits, PlayerRun
from envport.episodes import Episode
from envport.errors import ConfigurationError, EpisodeFailed, EpisodeOver, InvalidEnvironment
from envport.player_code import require_player_code
from envport.registry import EnvironmentDefinition
from envport.runtimes import kind_for, runtime_for

pytestmark = needs_bubblewrap


def defined(cls: type[Environment]) -> EnvironmentDefinition:
    return EnvironmentDefinition("coder", cls)


async def start(episode: Episode, *argv: str, stdin: str = "") -> dict[str, Any]:
    result = await episode.call("start", {"argv": list(argv), "stdin": stdin})
    assert (result.is_error, episode.outcome) == (False, None)
    assert result.observation.structured_content is not None
    return result.observation.structured_content


# Each body as one of the users, and `make test-slow` has the others.
@pytest.mark.parametrize(
    ("user", "body"),
    [
        ("ordinary", "reading"),
        ("root", "reaching"),
        ("root", "taking"),
        ("ordinary", "keeping"),
        *slow([("root", "reading"), ("ordinary", "reaching"), ("ordinary", "taking"), ("root", "keeping")]),
    ],
)
async def test_a_hostile_player_gets_nowhere(user: str, body: str):
    if user == "root" and os.geteuid() != 0:
        pytest.skip("this user is not root")
    if user == "root" or os.geteuid() != 0:
        await getattr(player_escapes, body)()
    else:
        await asyncio.to_thread(run_as_nobody, "player_escapes", body)


@pytest.mark.parametrize("cls", [SandboxedCoder, ThreadedAsyncCoder, *slow([Coder, AsyncCoder, ThreadedCoder])])
async def test_whatever_the_code_does_is_an_observation(cls: type[Environment]):
    async with serving(defined(cls)) as episodes:
        episode = await open_episode(episodes, "coder")
        raised = await attempt(episode, "import sys\nprint('before')\nraise KeyError('mine')")
        assert (raised["code"], raised["out"], raised["signal"]) == (1, "before\n", None)
        assert "KeyError: 'mine'" in raised["err"]
        crashed = await attempt(episode, "import os; os.abort()")
        assert (crashed["code"], crashed["signal"]) == (None, "SIGABRT")
        late = await episode.call("run", {"code": "while True: pass", "timeout": 0.3})
        assert late.observation.structured_content is not None
        assert (late.observation.structured_content["late"], episode.outcome) == (True, None)
        assert (await start(episode, "no-such-program"))["code"] == 127
        assert (await start(episode, "/work"))["code"] == 126
        assert (await start(episode, "echo", "a\0b"))["code"] == 126
        assert (await start(episode, "cat", stdin="both ways\n"))["out"] == "both ways\n"
        assert (await start(episode, "printf", "\\377a"))["out"] == "\ufffda"
        assert (await attempt(episode, "print('fine')"))["out"] == "fine\n"
        assert episode.info().status == "running"


async def test_the_folder_stays_as_long_as_the_episode():
    async with serving(CODER) as episodes:
        one, other = [await open_episode(episodes, "coder") for _ in range(2)]

        async def keep(episode: Episode, *argv: str, **write: str) -> str:
            result = await episode.call("keep", {"argv": list(argv), "write": write})
            return (result.observation.structured_content or {})["out"]

        assert await keep(one, "sh", "-c", "cat given; echo made > made", given="from outside\n") == "from outside\n"
        assert await keep(one, "ls") == "given\nmade\n"
        assert (await one.call("take", {"path": "made"})).observation.text == "made\n"
        # What cannot be read is the player's affair too.
        await keep(one, "sh", "-c", "mkfifo pipe; ln -s /etc/shadow link; head -c 200 /dev/zero > large; mkdir folder")
        wrong = {"absent": "No such file", "pipe": "no file", "link": "No such file", "folder": "no file"}
        for path, why in {**wrong, "large": "larger than 100"}.items():
            refused = await one.call("take", {"path": path})
            assert (refused.is_error, why in refused.observation.text) == (True, True), refused.observation.text
        await keep(one, "truncate", "-s", "17M", "huge")
        refused = await one.call("take", {"path": "huge", "most": None})
        assert "larger than 16777216 bytes" in refused.observation.text
        await keep(one, "truncate", "-s", "60M", "huge")
        refused = await one.call("take", {"path": "huge", "most": 2**26})
        assert "larger than 50282496" in refused.observation.text
        assert await keep(one, "cat", "made") == "made\n"
        # A new run has nothing of it, and neither has another episode.
        assert (await start(one, "ls"))["out"] == ""
        assert await keep(other, "ls") == ""
        before = len(descendants(os.getpid()))
        await close_episode(episodes, one)
        await until(lambda: len(descendants(os.getpid())) < before)
    assert descendants(os.getpid()) == []


async def fails(episode: Episode, seconds: float = 100.0) -> str:
    """Code of the player runs until the episode is lost. The answer of the call."""
    result = await episode.call("run", {"code": "import time; time.sleep(1000)", "timeout": seconds})
    assert result.is_error
    assert result.outcome == episode.outcome
    return result.observation.text


def ended(episode: Episode) -> tuple[str, str, str | None]:
    assert episode.outcome is not None
    return episode.status, episode.outcome.reason, episode.outcome.fault


@pytest.mark.parametrize("cls", [AsyncCoder, ThreadedCoder, *slow([Coder, SandboxedCoder, ThreadedAsyncCoder])])
async def test_a_deadline_while_the_players_code_runs_is_the_players(cls: type[Environment]):
    async with serving(defined(cls), call_seconds=patient(1.0)) as episodes:
        episode = await open_episode(episodes, "coder")
        assert "limit of" in await fails(episode)
        assert ended(episode) == ("failed", "deadline", "player")
        assert episode.info().outcome.lost is False  # type: ignore[union-attr]
        with pytest.raises(EpisodeOver) as over:
            await episode.call("start", {"argv": ["true"]})
        assert over.value.fault == "player"


async def test_a_deadline_of_the_environment_itself_is_the_environments():
    async with serving(CODER, call_seconds=patient(1.0)) as episodes:
        episode = await open_episode(episodes, "coder")
        await start(episode, "true")
        with pytest.raises(EpisodeFailed):
            await episode.call("own", {"how": "hang"})
        assert ended(episode) == ("failed", "deadline", "environment")


async def test_before_its_first_call_nothing_is_the_players():
    async with serving(defined(SlowToBegin), reset_seconds=patient(1.0)) as episodes:
        with pytest.raises(EpisodeFailed) as failed:
            await open_episode(episodes, "coder")
        assert failed.value.fault == "environment"


async def test_orphans_that_have_ended_take_no_room():
    code = (
        "import os, time\nfor _ in range(40):\n    pid = os.fork()\n    if pid == 0:\n        os.fork()\n"
        "        os._exit(0)\n    os.waitpid(pid, 0)\n    time.sleep(0.05)\nprint('done')"
    )
    async with serving(CODER) as episodes:
        done = await attempt(await open_episode(episodes, "coder"), code, "small")
        assert (done["out"], done["err"]) == ("done\n", "")


@pytest.mark.parametrize("how", ["crash beside", "raise beside"])
async def test_a_crash_of_the_environment_beside_the_players_code_is_the_environments(how: str):
    async with serving(CODER) as episodes:
        episode = await open_episode(episodes, "coder")
        with pytest.raises(EpisodeFailed):
            await episode.call("own", {"how": how})
        assert ended(episode) == ("failed", "worker_lost", "environment")


async def lose(episode: Episode, pid: int) -> asyncio.Task[Any]:
    """Kill a process as soon as code of the player runs in an episode."""
    call = await running(episode)
    os.kill(pid, signal.SIGKILL)
    return call


async def running(episode: Episode) -> asyncio.Task[Any]:
    """A call in which code of the player is running, and does not end."""
    call = asyncio.create_task(episode.call("run", {"code": "import time; time.sleep(1000)", "timeout": 1000}))
    worker = int(episode.first_observation.text.split()[0])
    await until(lambda: any(b"main.py" in _command(child) for child, _ in descendants(worker)))
    return call


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_a_process_that_is_killed_while_the_players_code_runs_is_the_players_loss():
    async with serving(CODER) as episodes:
        episode = await open_episode(episodes, "coder")
        result = await (await lose(episode, int(episode.first_observation.text.split()[0])))
        assert (result.is_error, result.reward) == (True, None)
        assert ended(episode) == ("failed", "worker_lost", "player")


async def test_the_loss_of_the_zygote_is_never_the_players():
    async with serving(CODER) as episodes:
        episode = await open_episode(episodes, "coder")
        with pytest.raises(EpisodeFailed) as failed:
            await (await lose(episode, int(episode.first_observation.text.split()[1])))
        assert failed.value.fault == "infrastructure"
        assert ended(episode) == ("failed", "worker_lost", "infrastructure")


async def test_a_machine_without_memory_is_never_the_players_loss():
    async with serving(CODER) as episodes:
        episode = await open_episode(episodes, "coder")
        call = await running(episode)
        await asyncio.to_thread(_exhaust)
        os.kill(int(episode.first_observation.text.split()[0]), signal.SIGKILL)
        with pytest.raises(EpisodeFailed):
            await call
        assert ended(episode) == ("failed", "worker_lost", "infrastructure")


def _exhaust() -> None:
    """Have the kernel kill a process for its memory, in a control group (v1 or v2) with little of it."""
    v1 = Path("/sys/fs/cgroup/memory")
    group = (v1 if v1.is_dir() else v1.parent) / f"envport-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(32 * 2**20))
    except OSError:
        pytest.skip("no memory control group can be made here")
    script = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} -c 'bytearray(200 << 20)'"
    try:
        assert subprocess.run(["sh", "-c", script], check=False).returncode == -signal.SIGKILL
    finally:
        group.rmdir()


async def test_where_it_cannot_run_the_environment_is_refused_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    for cls in (Coder, ThreadedCoder):
        with pytest.raises(ConfigurationError, match=r"environment 'coder' cannot run: .*apt-get install bubblewrap"):
            await runtime_for(cls.runtime).prepare(defined(cls))
    async with serving(CODER) as episodes:
        episode = await open_episode(episodes, "coder")
        with pytest.raises(EpisodeFailed) as failed:
            await episode.call("start", {"argv": ["true"]})
        assert failed.value.fault == "infrastructure"
        assert ended(episode) == ("failed", "upstream", "infrastructure")


async def test_what_is_not_declared_is_not_there():
    async with serving(EnvironmentDefinition("unable", Unable)) as episodes:
        episode = await open_episode(episodes, "unable")
        with pytest.raises(EpisodeFailed):
            await episode.call("run", {})


def test_what_can_be_declared():
    with pytest.raises(InvalidEnvironment, match="needs runtime = 'process' or 'thread'"):

        class Inline(Environment):
            runs_player_code = True

    assert kind_for(CODER, "inline") == "process"
    assert kind_for(CODER, "thread") == "thread"
    with pytest.raises(ValueError, match=r"PlayerLimits\.processes is 0"):
        PlayerLimits(processes=0)
    with pytest.raises(ValueError, match="output_bytes is 16777217; allowed: at most 16777216"):
        PlayerLimits(output_bytes=2**24 + 1)
    with pytest.raises(InvalidEnvironment, match="set runs_player_code = True"):
        _ = Unable().player_code
    require_player_code()


def test_how_a_run_ended_is_said_below_what_it_wrote():
    assert str(PlayerRun(3, stdout="out\n", stderr="err\n")) == "out\nerr\n(exit code 3.)"
    assert str(PlayerRun(None, "SIGKILL", output_cut=True)) == "(ended by SIGKILL. Its output was cut.)"
