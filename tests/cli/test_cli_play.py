"""`envport play`: a person at an environment, through a pipe and at a terminal."""

from __future__ import annotations

import os
import re
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import SECONDS, TOKEN, Served, command, environment, envport, refused
from slow import slow

FORM = """
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from envport import Environment, Step, Task, ToolError, tool


class Point(BaseModel):
    x: int
    y: int = 0


class Form(Environment):
    \"\"\"Asks for one of each.\"\"\"

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "A form. \\x1b[31m"

    @tool
    def fill(
        self,
        kind: Literal["a", "b"],
        count: Annotated[int, Field(ge=1, le=9)],
        name: str | None = None,
        sure: bool = True,
        size: Literal[1, 5] = 5,
        ratio: float | None = 0.5,
        point: Point | None = None,
        numbers: list[int] = [],
        always: Literal["x"] = "x",
    ) -> Any:
        \"\"\"Fill it in.

        Args:
            kind: Which kind.
            count: How many.
        \"\"\"
        return repr([kind, count, name, sure, size, ratio, point, numbers])

    @tool
    def object_to(self) -> str:
        \"\"\"Object.\"\"\"
        raise ToolError("Objection noted.")

    @tool
    def crash(self) -> str:
        \"\"\"Break.\"\"\"
        raise RuntimeError("the inside of it")

    @tool
    def hand_in(self) -> Step[str]:
        \"\"\"End it.\"\"\"
        return Step("Thank you.", reward=0.25, terminated=True)
"""


SHORT = """
from typing import Any

from envport import Environment, Task, tool


class Short(Environment):
    \"\"\"Ends by its limit.\"\"\"

    max_steps = 2

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def go_on(self) -> Any:
        \"\"\"Go on.\"\"\"
        return AGAIN
"""


@pytest.fixture
def form(tmp_path: Path) -> Path:
    (tmp_path / "form.py").write_text(FORM)
    return tmp_path


def lines(*answers: str) -> str:
    return "".join(f"{answer}\n" for answer in answers)


def played(form: Path, *answers: str) -> str:
    done = envport("play", "form.py:Form", stdin=lines(*answers), cwd=form)
    assert done.returncode == 0, done
    assert done.stderr == ""
    return done.stdout


def test_a_game_is_played_to_its_end():
    done = envport("play", "catch?rows=3", "--seed", "3", "--task", "0", stdin=lines("1", "left"))
    assert done.returncode == 0, done
    assert "direction (1 left, 2 stay, 3 right): 1\n" in done.stdout
    assert re.search(r"\nThe episode is over\. It terminated after 2 steps\.\nReward: -?1\n$", done.stdout)


def test_the_same_task_and_seed_give_the_same_game(gateway: Served):
    words = ("play", "catch", "--split", "test", "--task", "1", "--seed", "7")
    answers = lines(*["stay"] * 9)
    here, there = envport(*words, stdin=answers), envport(*words, "--url", gateway.url, stdin=answers)
    assert here.returncode == there.returncode == 0
    assert here.stdout == there.stdout


def test_what_the_tool_refuses_is_asked_again_in_its_own_words():
    done = envport("play", "catch?rows=3", stdin=lines("up", "4", "stay", "stay"))
    assert 'Argument \'direction\' is "up"; it has to be one of "left", "stay", "right".' in done.stdout
    assert "Argument 'direction' is \"4\"" in done.stdout
    assert "after 2 steps" in done.stdout


def test_arguments_are_asked_for_by_their_schema(form: Path):
    given = played(form, "1", "2", "3", "Ada", "no", "1", "null", '{"x": 4}', "[1, 2]", "", "hand_in")
    assert "count (an integer at least 1, at most 9): 3" in given
    assert "kind: Which kind." in given
    assert "['b', 3, 'Ada', False, 1, None, Point(x=4, y=0), [1, 2]]" in given
    left_out = played(form, "fill", "a", "1", *[""] * 7, "4")
    assert "sure (a boolean) [true]: " in left_out
    assert "['a', 1, None, True, 5, 0.5, None, []]" in left_out
    assert left_out.endswith("The episode is over. It terminated after 2 steps.\nReward: 0.25\n")


def test_what_was_right_is_kept_when_asked_again(form: Path):
    said = played(form, "fill", "b", "many", "Ada", *[""] * 6, "", "7", "", *[""] * 6, "hand_in")
    assert "Argument 'count' is \"many\"; it has to be an integer at least 1, at most 9." in said
    assert "[b]: " in said
    assert "[Ada]: " in said
    assert "['b', 7, 'Ada', True, 5, 0.5, None, []]" in said


def test_a_person_goes_back_to_the_argument_before_and_to_the_choice_of_the_tool(form: Path):
    said = played(form, "fill", "b", "<", "a", "3", "<", "5", *[""] * 7, "fill", "a", "<", "<", "hand_in")
    assert "\n< goes back.\n" in said
    # What was answered before is suggested again.
    assert "(1 a, 2 b) [b]: a" in said
    assert "at most 9) [3]: 5" in said
    assert "['a', 5, None, True, 5, 0.5, None, []]" in said
    assert said.endswith("It terminated after 2 steps.\nReward: 0.25\n")


def test_the_sign_for_going_back_can_be_an_argument(form: Path):
    said = played(form, "fill", "a", "1", '"<"', *[""] * 6, "hand_in")
    assert "['a', 1, '<', True, 5, 0.5, None, []]" in said


@pytest.mark.parametrize("data", [False, True], ids=["text", "data"])
def test_an_end_by_a_limit_is_shown_once(form: Path, data: bool):
    again = '{"said": "again"}' if data else '"again"'
    (form / "short.py").write_text(SHORT.replace("AGAIN", again))
    done = envport("play", "short.py:Short", stdin=lines("", ""), cwd=form)
    assert done.returncode == 0, done
    assert done.stdout.count("limit of 2 steps") == 1
    assert done.stdout.endswith("\nNo reward was given.\n")


def test_an_unknown_tool_and_a_tools_objection_go_on(form: Path):
    said = played(form, "nope", "9", "object_to", "hand_in")
    assert "There is no tool 'nope': fill, object_to, crash, hand_in" in said
    assert "Objection noted." in said
    assert "after 2 steps" in said


def test_nothing_that_is_shown_controls_the_terminal(form: Path):
    assert "\x1b" not in played(form, "hand_in")


def test_bytes_that_are_no_text_and_text_that_is_no_bytes_end_nothing():
    typed = envport("play", "echo", stdin="\udcff\n")
    assert typed.returncode == 0, typed
    assert "\n\N{REPLACEMENT CHARACTER}\n" in typed.stdout
    shown = envport("play", "showcase", stdin="show_text\n", fresh=True, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert shown.returncode == 0, shown
    assert "Gr??e" in shown.stdout


def test_an_environment_that_breaks_is_an_error_and_its_inside_is_shown_on_demand(form: Path):
    line = refused("play", "form.py:Form", stdin=lines("crash"), cwd=form)
    assert "The environment failed" in line
    assert line.rstrip().endswith("--debug shows why.")
    shown = envport("play", "form.py:Form", "--debug", stdin=lines("crash"), cwd=form)
    assert shown.returncode == 2
    assert "RuntimeError: the inside of it" in shown.stderr


@pytest.mark.parametrize("stdin", ["", "\n", "\n\n"])
def test_leaving_is_polite(gateway: Served, stdin: str):
    for words in ((), ("--url", gateway.url)):
        done = envport("play", "counter", *words, stdin=stdin)
        assert done.returncode == 0
        assert done.stderr == ""
        assert done.stdout.endswith("\nYou left; the episode is closed.\n")


def test_whoever_reads_the_game_may_leave(gateway: Served):
    for words in ((), ("--url", gateway.url)):
        with subprocess.Popen(
            command("play", "counter", *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            process.stdin.write(b"\n" * 20)
            process.stdin.close()
            assert process.stderr.read() == b""
            assert process.wait(SECONDS) == 0


def test_a_game_at_a_gateway_needs_only_a_token_of_the_control_plane(tmp_path: Path):
    file = tmp_path / "tokens.toml"
    file.write_text(f'[[tokens]]\nname = "trainer"\nscopes = ["control"]\ntoken = "{TOKEN}"\n')
    with Served("counter", "--token-file", str(file)) as served:
        done = envport("play", "counter", "--url", served.url, stdin="\n\n", ENVPORT_TOKEN=TOKEN)
    assert done.returncode == 0, done
    assert "\n2\n" in done.stdout


def test_refusals_and_crashes_are_the_same_at_a_gateway(form: Path):
    with Served("form.py:Form", cwd=form) as served:
        words = ("play", "form", "--url", served.url)
        done = envport(*words, stdin=lines("1", "c", "1", *[""] * 7, "1", "", *[""] * 7, "2", "hand_in"))
        assert done.returncode == 0, done
        assert "Argument 'kind' is \"c\"" in done.stdout
        assert "Objection noted." in done.stdout
        assert "Reward: 0.25" in done.stdout
        assert "The environment failed" in refused(*words, stdin=lines("crash"))


@pytest.mark.parametrize("at_gateway", [False, True])
def test_images_are_saved_where_the_path_says(gateway: Served, tmp_path: Path, at_gateway: bool):
    words = ("--url", gateway.url) if at_gateway else ()
    done = envport("play", "showcase", *words, stdin=lines("show_image", "2"), TMPDIR=str(tmp_path))
    saved = re.search(r"^\[image: (.*\.png)\]$", done.stdout, re.MULTILINE)
    assert saved, done
    path = Path(saved[1])
    assert path.is_relative_to(tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_text_that_is_embedded_is_shown_as_text():
    done = envport("play", "showcase", stdin=lines("show_resource"))
    assert done.returncode == 0, done
    assert "\n# A note\n" in done.stdout


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]):
        self._master = master
        self.process = process
        self.shown = ""

    def until(self, wanted: str, again: str = "") -> None:
        """Read until something is shown.

        Args:
            wanted: What has to be shown.
            again: A key that a person would press again after a while: Python's `input` forgets a Ctrl-C that
                comes in the very moment between showing the prompt and waiting for keys.
        """
        while wanted not in self.shown:
            ready, _, _ = select.select([self._master], [], [], 5 if again else SECONDS)
            assert ready or again, self.shown
            if not ready:
                os.write(self._master, again.encode())
                again = ""
                continue
            try:
                self.shown += os.read(self._master, 65536).decode()
            except OSError:  # The other end is closed.
                assert wanted in self.shown, self.shown

    def type(self, keys: str) -> None:
        self.shown = ""
        os.write(self._master, keys.encode())


@contextmanager
def terminal(*words: str, fresh: bool = False) -> Iterator[Terminal]:
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(
            command(*words, fresh=fresh),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(TERM="xterm", COLUMNS="80"),
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)
        with process:
            try:
                yield Terminal(master, process)
            finally:
                process.kill()
    finally:
        os.close(master)


def test_a_game_at_a_terminal():
    with terminal("play", "catch?rows=3") as at:
        at.until("3 right): ")
        at.type("2\r")
        at.until("1 move until the ball lands")
        at.until("3 right): ")
        at.type("2\r")
        at.until("Reward: ")
        assert at.process.wait(SECONDS) == 0


@pytest.mark.parametrize(
    ("key", "far"), [("\x03", True), *slow([("\x03", False)]), ("\x04", False)], ids=["ctrl-c far", "ctrl-c", "ctrl-d"]
)
def test_keys_that_leave(gateway: Served, key: str, far: bool):
    # A key that is a signal goes to a process that has the terminal.
    with terminal("play", "counter", *(("--url", gateway.url) if far else ()), fresh=key == "\x03") as at:
        at.until("(Enter calls it): ")
        at.type(key)
        at.until("You left; the episode is closed.", again=key)
        assert at.process.wait(SECONDS) == 0
        assert "Traceback" not in at.shown
