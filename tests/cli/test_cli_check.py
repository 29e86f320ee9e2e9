"""`envport check` says what it is doing, and ends within its time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import envport
from patience import patient

LIMIT = f"{patient(0.3):g}"

HANGS = """
import time

from envport import Environment, tool


class Blocks(Environment):
    \"\"\"Blocks the event loop.\"\"\"

    def reset(self, *, seed, task):
        return "ready"

    @tool
    def act(self) -> str:
        \"\"\"Act.\"\"\"
        time.sleep(3600)


class InSplits(Blocks):
    \"\"\"Blocks when a task is read.\"\"\"

    def splits(self):
        return {"train": Slow()}


class Slow(list):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        time.sleep(3600)


class InThread(Blocks):
    \"\"\"Hangs in a thread.\"\"\"

    runtime = "thread"
    call_seconds = LIMIT


class InProcess(Blocks):
    \"\"\"Hangs in a process.\"\"\"

    runtime = "process"
    call_seconds = LIMIT
"""


@pytest.fixture
def hangs(tmp_path: Path) -> Path:
    (tmp_path / "hangs.py").write_text(HANGS.replace("LIMIT", LIMIT))
    (tmp_path / "slow_import.py").write_text("import time\ntime.sleep(3600)\n")
    return tmp_path


def test_a_call_that_blocks_is_told_named_and_left(hangs: Path) -> None:
    seconds = f"{patient(0.8):g}"
    done = envport("check", "./hangs.py:Blocks", "--seconds", seconds, cwd=hangs)
    assert done.returncode == 1
    stopped = f"error [coverage] stopped after {seconds} s, in the call act({{}}), which blocks and cannot be stopped"
    assert stopped in done.stdout
    assert "nothing was played" in done.stdout
    # While it hangs, on standard error.
    assert " s: playing seed 0 (1 of 3): the call act({})" in done.stderr
    assert "error: blocks breaks the authoring contract" in done.stderr


def test_tasks_that_cannot_be_read_in_time_are_named(hangs: Path) -> None:
    seconds = f"{patient(0.8):g}"
    done = envport("check", "./hangs.py:InSplits", "--seconds", seconds, cwd=hangs)
    assert done.returncode == 1
    what = "reading split 'train', task 1 of 10"
    assert f"error [coverage] stopped after {seconds} s, in {what}, which blocks" in done.stdout


@pytest.mark.parametrize("cls", ["InThread", "InProcess"])
def test_a_call_that_hangs_elsewhere_is_stopped(hangs: Path, cls: str) -> None:
    done = envport("check", f"./hangs.py:{cls}", "--seed", "0", cwd=hangs)
    assert done.returncode == 1
    assert f"error [call] act({{}}) hangs: The call took longer than its limit of {LIMIT} s." in done.stdout


def test_an_import_that_hangs_is_named(hangs: Path) -> None:
    done = envport("check", "./slow_import.py:Any", "--seconds", "0.5", cwd=hangs)
    assert done.returncode == 2
    assert " s: importing ./slow_import.py:Any" in done.stderr
    said = done.stderr.splitlines()[-1]
    assert (
        said == "error: ./slow_import.py:Any cannot be checked: importing ./slow_import.py:Any takes longer than 0.5 s"
    )


def test_a_short_check_says_only_its_result() -> None:
    done = envport("check", "counter")
    assert done.returncode == 0, done
    # On a slow machine it is not short.
    assert all(int(line.partition(" s: ")[0]) >= 3 for line in done.stderr.splitlines())


SOLVED = """
from envport import Environment, Solution, Step, tool


class Easy(Environment):
    \"\"\"Say yes.\"\"\"

    def reset(self, *, seed, task):
        return "ready"

    @tool
    def say(self, yes: bool) -> Step:
        \"\"\"Say it.\"\"\"
        return Step("Said.", reward=float(yes), terminated=True)

    def reference_solution(self, task):
        return Solution([("say", {"yes": True})])


class Hard(Easy):
    def reference_solution(self, task):
        return Solution([("say", {"yes": False})])
"""


def test_it_says_what_reference_solutions_and_doing_nothing_earn(tmp_path: Path) -> None:
    (tmp_path / "solved.py").write_text(SOLVED)
    done = envport("check", "./solved.py:Easy", "--steps", "1", cwd=tmp_path)
    assert done.returncode == 0
    # A busy machine may take long enough to be told what is being done.
    assert all(re.match(r"\d+ s: ", line) for line in done.stderr.splitlines())
    assert "Reference solutions and doing nothing earn what they have to, in 1 task.\n" in done.stdout
    done = envport("check", "./solved.py:Hard", "--steps", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "error [solution] the episode: the reference solution earns 0, and it has to earn 1\n" in done.stdout
