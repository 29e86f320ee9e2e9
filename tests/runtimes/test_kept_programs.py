"""Programs of the player that stay from one request to the next: their state, their limits, and their end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bubblewrap import needs_bubblewrap
from patience import patient
from runtimes import descendants

from envport import KeptProgram, PlayerCode, PlayerLimits, ToolError, Workspace

pytestmark = needs_bubblewrap

SHELL = """
trap 'continue 999' INT
status=
while [ -z "$status" ] || echo "$status" >&4; status=130; IFS= read -r -d '' -u 3 request; do
  eval "$request" 3<&- 4>&-
  status=$?
done
"""


@contextmanager
def workspace(**limits: float) -> Iterator[Workspace]:
    with PlayerCode().workspace(limits=PlayerLimits(**limits)) as made:  # type: ignore[arg-type]
        yield made


def shell(made: Workspace) -> KeptProgram:
    return made.start(["bash", "-c", SHELL, "bash"])


def wrote(program: KeptProgram, text: str) -> str:
    run = program.ask(text, timeout=patient(20.0))
    assert program.live, run
    return run.stdout


def programs() -> list[str]:
    """The states of what runs in sandboxes below this process, without bubblewrap and the warden themselves."""
    return [state for _, state in descendants(os.getpid())][2:]


async def until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + patient(30.0)
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


def test_its_state_stays_and_its_outputs_are_in_order() -> None:
    with workspace() as made:
        program = shell(made)
        assert wrote(program, "word=kept; cd /tmp; f() { echo f of $1; }") == ""
        assert wrote(program, "echo $word; echo more >&2; f 1; pwd") == "kept\nmore\nf of 1\n/tmp\n"
        assert program.ask("(exit 7)", timeout=patient(20.0)).exit_code == 7
        # It sees neither of its ways to the sandbox's first process.
        assert wrote(program, "ls /proc/self/fd") == "0\n1\n2\n3\n"
        assert wrote(program, "cat") == ""


def test_several_share_the_files_and_nothing_else() -> None:
    with workspace() as made:
        one, other = shell(made), shell(made)
        wrote(one, "word=one; echo here > file")
        assert wrote(other, "echo [$word]; cat file") == "[]\nhere\n"
        assert made.read("file") == b"here\n"
        made.write({"file": "there\n"})
        assert wrote(one, "cat $PWD/file; echo $word") == "there\none\n"


async def test_between_requests_everything_stands_still() -> None:
    player_code = PlayerCode()
    with player_code.workspace() as made:
        program = shell(made)
        wrote(program, "echo > ticks; (while :; do echo >> ticks; done) & (setsid sh -c 'while :; do :; done' &)")
        await until(lambda: len(programs()) >= 3 and set(programs()) == {"T"})
        assert not player_code.running
        before = len(made.read("ticks"))
        assert len(made.read("ticks")) == before
        # They go on with the next request.
        wrote(program, f"while [ $(wc -l < ticks) -le {before + 10} ]; do :; done")


def test_what_takes_too_long_is_interrupted_and_the_state_stays() -> None:
    with workspace() as made:
        program = shell(made)
        wrote(program, "word=kept")
        for endless in ("sleep 1000", "while :; do :; done", "sleep 1000 | cat"):
            run = program.ask(endless, timeout=0.2)
            assert (run.timed_out, run.exit_code, program.live) == (True, 130, True)
        assert wrote(program, "echo $word") == "kept\n"


def test_what_ignores_the_interrupt_is_ended_with_all_others() -> None:
    with workspace() as made:
        program, other = shell(made), shell(made)
        wrote(other, "true")
        run = program.ask("trap '' INT; while :; do :; done", timeout=0.2)
        assert (run.timed_out, run.signal, program.live) == (True, "SIGKILL", False)
        assert other.ask("echo here", timeout=patient(20.0)).signal == "SIGKILL"
        assert not other.live
        with pytest.raises(ValueError, match="has ended"):
            other.ask("echo here", timeout=1.0)
        assert wrote(shell(made), "echo again") == "again\n"


def test_a_program_that_ends_says_how() -> None:
    with workspace() as made:
        for command, code, signal in (("exit 3", 3, None), ("kill -SEGV $$", None, "SIGSEGV")):
            program = shell(made)
            run = program.ask(f"echo last; {command}", timeout=patient(20.0))
            assert (run.stdout, run.exit_code, run.signal, program.live) == ("last\n", code, signal, False)
        absent = made.start(["no-such-program"])
        run = absent.ask("anything", timeout=patient(20.0))
        assert (run.exit_code, run.stdout) == (127, "no-such-program: No such file or directory\n")


def test_a_new_one_can_be_started_any_number_of_times() -> None:
    with workspace() as made:
        descriptors = ["sh", "-c", "ls /proc/self/fd | wc -l"]
        for _ in range(300):
            assert made.start(["true"]).ask("anything", timeout=patient(20.0)).exit_code == 0
        assert made.run(descriptors).stdout == made.run(descriptors).stdout


def test_a_forged_answer_only_confuses_its_own_player() -> None:
    with workspace() as made:
        program = shell(made)
        forged = (
            "for end in /proc/$$/fd/4 /proc/$PPID/fd/*; do (yes 0 | head -n 5000 > $end) 2> /dev/null; done; echo ok"
        )
        program.ask(forged, timeout=patient(20.0))
        made.write({"file": "text"})
        assert made.read("file") == b"text"
        assert made.run(["echo", "fine"]).stdout == "fine\n"


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("import mmap\nm = mmap.mmap(-1, 2**30)\nfor _ in range(500): m.write(bytes(2**20))", "out_of_memory"),
        ("import os, time\nfor _ in range(30):\n    if os.fork() == 0: time.sleep(1000)\ntime.sleep(1000)", ""),
    ],
)
def test_the_limits_hold_for_all_together(code: str, limit: str) -> None:
    with workspace(memory_mb=128, processes=12, output_bytes=1000) as made:
        program, other = shell(made), shell(made)
        wrote(other, "sleep 1000 &")
        made.write({"take.py": f"{code}\n"})
        run = program.ask("python3 take.py", timeout=patient(20.0))
        if limit:
            assert (getattr(run, limit), program.live, programs()) == (True, False, [])
        else:
            assert "BlockingIOError" in run.stdout


def test_its_output_is_bounded_for_each_request() -> None:
    with workspace(output_bytes=1000) as made:
        program = shell(made)
        for _ in range(2):
            loud = program.ask("seq 100000", timeout=patient(20.0))
            assert (len(loud.stdout), loud.output_cut) == (1000, True)
        assert wrote(program, "echo quiet") == "quiet\n"


async def test_what_takes_too_much_between_requests_is_ended_too() -> None:
    # On a quiet machine, it answers before anybody looks at its memory.
    take = (
        "import mmap, os, signal\nm, part = mmap.mmap(-1, 2**30), bytes(2**20)\nos.read(3, 100)\n"
        "for _ in range(64): m.write(part)\nos.write(4, b'0\\n')\nsignal.pause()"
    )
    with workspace(memory_mb=64) as made:
        program = made.start(["python3", "-c", take])
        program.ask("go", timeout=patient(20.0))
        await until(lambda: programs() == [])


def test_nothing_of_it_outlives_a_run_or_the_sandbox() -> None:
    with workspace() as made:
        program = shell(made)
        wrote(program, "setsid sleep 1000 & (setsid sleep 1000 &)")
        assert int(made.run(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"]).stdout) <= 4
        assert program.ask("true", timeout=patient(20.0)).signal == "SIGKILL"
        wrote(shell(made), "setsid sleep 1000 &")
    assert descendants(os.getpid()) == []
    gone = made.start(["bash"])
    assert not gone.live


def test_bad_requests_are_refused() -> None:
    with workspace() as made:
        program = shell(made)
        with pytest.raises(ValueError, match="null bytes"):
            program.ask("a\0b", timeout=1.0)
        for seconds in (0.0, float("inf")):
            with pytest.raises(ValueError, match="allowed: seconds above 0"):
                program.ask("true", timeout=seconds)
        with pytest.raises(ToolError, match="too large"):
            program.ask("x" * 2**26, timeout=1.0)
        with pytest.raises(ValueError, match="list of the program and its arguments"):
            made.start("bash")  # type: ignore[arg-type]
        assert wrote(program, "echo fine") == "fine\n"


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"links": {"app": "/work/app"}}, "'app' is to be in the sandbox .*; allowed: absolute paths"),
        ({"readable": {"data": "/usr"}}, "'data' is to be in the sandbox .*; allowed: absolute paths"),
        ({"readable": {"/data": "/no/such/folder"}}, "is to read /no/such/folder, which does not exist"),
    ],
)
def test_what_cannot_be_shown_is_refused(view: dict[str, dict[str, str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlayerCode().workspace(**view)  # type: ignore[arg-type]
