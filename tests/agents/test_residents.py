"""Programs that play one mission after another: reused, bounded, replaced and gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from bubblewrap import needs_bubblewrap
from patience import patient

from envport.errors import ConfigurationError, InvalidOption
from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.deadlines import Deadline
from envport_bridges.agents.programs.missions import Mission, ModelAccess
from envport_bridges.agents.programs.processes import Ended
from envport_bridges.agents.programs.resident_lines import mission_line
from envport_bridges.agents.programs.residents import ResidentPool
from envport_bridges.agents.programs.sandbox import AgentSandbox
from envport_bridges.rollouts.loop import BackgroundLoop

RESIDENT = Path(__file__).with_name("resident.py")
COMMAND = f"{{python}} {RESIDENT}"
HELPER = Path(__file__).parents[2] / "bridges" / "envport_bridges" / "agents" / "programs" / "resident_helper.py"
PAGE = (Path(__file__).parents[2] / "bridges/envport_bridges/agents/RESIDENT.md").read_text("utf-8")
ACCESS = ModelAccess("http://127.0.0.1:1", "session-token")
LONG = 60.0


@pytest.fixture
def pool() -> Iterator[ResidentPool]:
    made = ResidentPool(Agent.resident(COMMAND, given_model=True))
    yield made
    made.close()


def mission(prompt: str) -> Mission:
    return Mission("http://h/episodes/e/mcp", "epk_secret", prompt, ACCESS)


async def play(pool: ResidentPool, prompt: str, limit: float | Deadline | None = None) -> Ended:
    return await pool.run(mission(prompt), patient(LONG) if limit is None else limit)


async def told(pool: ResidentPool, more: str = "") -> dict[str, Any]:
    ended = await play(pool, f"tell {more}")
    assert (ended.code, ended.error) == (0, None), ended
    return json.loads(ended.output.removeprefix("told "))


async def test_a_process_plays_one_mission_after_another_with_what_each_line_says(pool: ResidentPool):
    first, second = await told(pool), await told(pool)
    assert (first["pid"], first["played"], second["played"]) == (second["pid"], 1, 2)
    # Its three streams, and the folder that it lists.
    assert first["descriptors"] == 4
    assert first["mission"].pop("id") != second["mission"]["id"]
    assert first["mission"] == {
        "prompt": "tell ",
        "mcp_url": "http://h/episodes/e/mcp",
        "mcp_token": "epk_secret",
        "model": "policy",
        "model_url": "http://127.0.0.1:1/v1",
        "anthropic_url": "http://127.0.0.1:1",
        "model_token": "session-token",
    }


async def test_missions_at_the_same_time_have_a_process_each_and_the_processes_are_used_again(pool: ResidentPool):
    both = await asyncio.gather(told(pool), told(pool))
    again = await asyncio.gather(told(pool), told(pool))
    assert len({one["pid"] for one in both}) == 2
    assert {one["pid"] for one in again} == {one["pid"] for one in both}


async def test_a_resident_gets_neither_our_keys_nor_the_user_s(pool: ResidentPool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ENVPORT_TOKEN", "of-the-control-plane")
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-user")
    variables = (await told(pool))["variables"]
    assert not [name for name in variables if name.startswith(("ENVPORT_", "OPENAI_"))]


async def test_a_mission_that_fails_says_why_and_the_process_stays(pool: ResidentPool):
    first = await told(pool)
    failed = await play(pool, "fail")
    assert (failed.code, failed.error) == (1, "{'why': 'I lost'}")
    assert failed.broke == "{'why': 'I lost'}. The end of its output: a reason in the log"
    assert (await told(pool))["pid"] == first["pid"]


@pytest.mark.parametrize(
    ("prompt", "code", "error"),
    [
        ("leave 3", 3, "it ended with exit code 3 before it was done"),
        ("leave 0", 0, "it ended with exit code 0 before it was done"),
        ("other", 1, "it answered for the mission 'another', which is not this one"),
    ],
)
async def test_a_process_that_breaks_its_mission_is_replaced(pool: ResidentPool, prompt: str, code: int, error: str):
    first = await told(pool)
    ended = await play(pool, prompt)
    assert (ended.code, ended.error) == (code, error)
    assert ended.broke
    assert (await told(pool))["pid"] != first["pid"]


async def test_a_process_that_closes_its_output_has_failed(pool: ResidentPool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("envport_bridges.agents.programs.resident_process._ENDING_SECONDS", 0.05)
    assert (await play(pool, "mute")).error == "it closed its standard output before it was done"


@pytest.mark.parametrize("prompt", ["garbage", "chatter"])
async def test_lines_that_are_no_answers_are_logs_of_which_the_end_is_kept(pool: ResidentPool, prompt: str):
    ended = await play(pool, prompt)
    assert (ended.code, ended.error) == (0, None)
    assert len(ended.output) <= 16_384


async def test_a_second_answer_for_a_mission_changes_nothing(pool: ResidentPool):
    first = await told(pool)
    for _ in range(3):
        assert (await play(pool, "twice")).code == 0
        assert (await play(pool, "late")).output == "still playing\n"
    assert (await told(pool))["pid"] == first["pid"]


async def test_an_answer_for_a_mission_that_was_never_given_costs_the_process(pool: ResidentPool):
    first = await told(pool)
    assert (await play(pool, "early")).code == 0
    # It is noticed before the next mission, or in it.
    ended = await play(pool, "long")
    assert ended.error in (None, "it answered for the mission 'the next', which is not this one")
    assert (await told(pool))["pid"] != first["pid"]


async def test_a_line_that_is_too_long_is_not_kept(pool: ResidentPool):
    ended = await play(pool, "long")
    assert (ended.code, ended.output) == (0, "")


async def test_an_answer_before_the_first_mission_is_a_fault(tmp_path: Path):
    pool = ResidentPool(Agent.resident(f"{COMMAND} early"))
    ended = await play(pool, "tell")
    pool.close()
    assert ended.error == "it answered for the mission 'none yet', which is not this one"


async def test_a_prompt_that_no_pipe_holds_arrives(pool: ResidentPool):
    assert (await told(pool, "x" * 1_000_000))["size"] == 1_000_005


async def test_a_program_that_reads_nothing_is_stopped_at_its_limit():
    pool = ResidentPool(Agent.resident(f"{COMMAND} deaf"))
    ended = await play(pool, "x" * 1_000_000, 0.3)
    pool.close()
    assert (ended.code, ended.broke) == (None, None)


class Fifo:
    """Tells when a program opens it, and when the last process is gone that has it open."""

    def __init__(self, folder: Path):
        self.path = folder / "fifo"
        os.mkfifo(self.path)
        self._end = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    async def said(self) -> bytes:
        with anyio.fail_after(patient(LONG)):
            await anyio.wait_readable(self._end)
        return os.read(self._end, 64)

    def is_closed(self) -> bool:
        try:
            return os.read(self._end, 64) == b""
        except BlockingIOError:
            return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans back to a subreaper")
async def test_a_cancelled_mission_takes_its_whole_tree_and_not_its_neighbours(pool: ResidentPool, tmp_path: Path):
    fifo = Fifo(tmp_path)
    hanging = asyncio.create_task(play(pool, f"hang {fifo.path}"))
    assert await fifo.said() == b"started"
    neighbour = await told(pool)
    assert not fifo.is_closed()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert fifo.is_closed()
    assert (await told(pool))["pid"] == neighbour["pid"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans back to a subreaper")
async def test_a_mission_that_exceeds_its_limit_is_killed_and_has_no_exit_code(pool: ResidentPool, tmp_path: Path):
    fifo = Fifo(tmp_path)
    times = [0.0]
    deadline = Deadline(0.05, clock=lambda: times[0])
    with deadline.paused():
        hanging = asyncio.create_task(play(pool, f"hang {fifo.path}", deadline))
        assert await fifo.said() == b"started"
        times[0] += 10.0
        assert deadline.left() == 0.05
    times[0] += 0.06
    assert (await hanging).code is None
    assert fifo.is_closed()


async def test_an_idle_process_ends_by_itself_and_the_next_mission_has_a_new_one(tmp_path: Path):
    pool, fifo = ResidentPool(Agent.resident(COMMAND), idle_seconds=0.1), Fifo(tmp_path)
    assert (await play(pool, f"hold {fifo.path}")).code == 0
    assert await fifo.said() == b"started"
    assert await fifo.said() == b""
    assert (await told(pool))["played"] == 1
    pool.close()


async def test_a_busy_process_does_not_end_as_an_idle_one():
    pool = ResidentPool(Agent.resident(COMMAND), idle_seconds=0.3)
    assert (await told(pool))["played"] == 1
    assert (await play(pool, "hang", 0.6)).code is None
    pool.close()


def test_processes_are_used_by_one_event_loop_after_another(pool: ResidentPool):
    pids = {asyncio.run(told(pool))["pid"] for _ in range(2)}
    loop = BackgroundLoop("of the test")
    pids.add(loop.run(told(pool))["pid"])
    loop.stop()
    assert len(pids) == 1


def test_no_process_outlives_ours(tmp_path: Path):
    source = (
        "import asyncio, sys\nsys.path.insert(0, sys.argv[1])\nimport test_residents as it\n"
        "from envport_bridges.agents.programs.agents import Agent\n"
        "from envport_bridges.agents.programs.residents import ResidentPool\n"
        "pool = ResidentPool(Agent.resident(it.COMMAND))\n"
        "asyncio.run(it.play(pool, 'hang ' + sys.argv[2]))\n"
    )
    os.mkfifo(tmp_path / "fifo")
    ours = subprocess.Popen(
        [sys.executable, "-c", source, str(RESIDENT.parent), str(tmp_path / "fifo")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    # Opens when the agent does, and ends when the last process is gone that had it.
    with (tmp_path / "fifo").open("rb", buffering=0) as pipe:
        assert pipe.read(7) == b"started"
        ours.kill()
        ours.wait()
        assert pipe.read() == b""


@needs_bubblewrap
async def test_a_resident_runs_in_the_sandbox_of_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    agent = Agent.resident(COMMAND, given_model=True)
    pool = ResidentPool(agent, AgentSandbox(agent))
    first, second = await told(pool), await told(pool)
    # Its own process identifiers, of which the first are bubblewrap's.
    assert first["pid"] == second["pid"] < 10
    assert first["variables"]["TMPDIR"] == "/tmp"
    assert (await play(pool, "leave 3")).code == 3
    assert (await play(pool, "hang", 0.3)).code is None
    pool.close()
    bin_folder, real = tmp_path / "bin", shutil.which("bwrap")
    bin_folder.mkdir()
    (bin_folder / "bwrap").write_text("#!/bin/sh\necho 'bwrap: out of namespaces' >&2; exit 1\n")
    (bin_folder / "bwrap").chmod(0o755)
    assert real
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    pool = ResidentPool(agent, AgentSandbox(agent))
    with pytest.raises(ConfigurationError, match="out of namespaces"):
        await play(pool, "tell")
    pool.close()


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini", "mcp", "opencode"])
def test_presets_cannot_stay(name: str):
    with pytest.raises(InvalidOption, match="started for each episode"):
        Agent.resident(name)


@pytest.mark.parametrize("placeholder", ["{mcp_url}", "{mcp_config}", "{prompt}", "{prompt_file}", "{model_url}"])
def test_a_program_that_stays_cannot_name_what_only_a_mission_has(placeholder: str):
    with pytest.raises(InvalidOption, match=f"cannot name \\{placeholder}"):
        Agent.resident(f"{COMMAND} {placeholder}")


async def test_the_helper_makes_a_program_of_a_function(tmp_path: Path):
    shutil.copy(HELPER, tmp_path / "resident_helper.py")
    (tmp_path / "mine.py").write_text(
        "import subprocess, sys\nfrom resident_helper import serve\n"
        "def play(mission):\n"
        '    print(\'{"done": "not the protocol"}\', flush=True)\n'
        "    subprocess.run(['cat'], check=True)\n"
        "    if mission['prompt'] == 'raise': raise ValueError('no')\n"
        "serve(play)\n"
    )
    pool = ResidentPool(Agent.resident(f"{{python}} {tmp_path / 'mine.py'}"))
    ended, failed, again = [await play(pool, prompt) for prompt in ("one", "raise", "two")]
    pool.close()
    assert [ended.code, failed.code, again.code] == [0, 1, 0]
    assert "not the protocol" in ended.output
    assert failed.error == "ValueError: no"
    assert "Traceback" in failed.output


def test_the_page_names_the_fields_of_a_mission():
    (example, *_) = re.findall(r"^```json\n(.*?)\n```$", PAGE, flags=re.MULTILINE)
    assert json.loads(example).keys() == json.loads(mission_line("a", mission("play"))).keys()
    without = mission_line("a", Mission("http://h/episodes/e/mcp", "epk_secret", "Play."))
    assert json.loads(without).keys() == {"id", "prompt", "mcp_url", "mcp_token"}


async def test_the_page_s_program_plays(tmp_path: Path):
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    shutil.copy(HELPER, tmp_path / "resident_helper.py")
    (tmp_path / "mine.py").write_text(program)
    pool = ResidentPool(Agent.resident(f"{{python}} {tmp_path / 'mine.py'}", given_model=True))
    ended = await play(pool, "Play.")
    pool.close()
    assert (ended.code, ended.output) == (0, "playing with http://127.0.0.1:1/v1 at http://h/episodes/e/mcp\n")
