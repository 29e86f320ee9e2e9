"""The environment `workspace`: a shell and a Python that keep their state, and hidden tests that nobody can forge."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bubblewrap import needs_bubblewrap
from opening import open_episode
from patience import patient
from runtimes import descendants

from envport import PlayerCode
from envport.checker import check_environment
from envport.episodes import Episode, Episodes
from envport.errors import EnvportError, InvalidOption
from envport.registry import load
from envport_envs.workspace import operations
from envport_envs.workspace.cheats import DAEMON, FUNCTION_CHEATS, SHELL_CHEATS
from envport_envs.workspace.measure import measure
from envport_envs.workspace.tasks import KINDS, NUMBERS, exercise_of

pytestmark = needs_bubblewrap

SPLITS = load("workspace").splits


@asynccontextmanager
async def table(options: str = "") -> AsyncIterator[Episodes]:
    # In threads, because processes take longer to begin with. The checker plays it in processes.
    episodes = Episodes({"it": load(f"workspace{options}", "it")}, runtime="thread")
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, split: str = "function", task: int = 0) -> Episode:
    return await open_episode(episodes, "it", split=split, task=task, seed=0)


async def said(episode: Episode, tool: str, **arguments: str) -> str:
    result = await episode.call(tool, arguments)
    assert not result.is_error, result.observation.text
    return result.observation.text


def metadata(split: str, index: int) -> Mapping[str, Any]:
    task = SPLITS[split][index]
    return task["metadata"] if isinstance(task, Mapping) else task.metadata


async def earned(episodes: Episodes, split: str, task: int, files: Mapping[str, str], *commands: str) -> float | None:
    """The reward of an episode in which these files are written and these commands run."""
    episode = await opened(episodes, split, task)
    for path, content in files.items():
        await said(episode, "write_file", path=path, content=content)
    for command in commands:
        await said(episode, "bash", command=command)
    result = await episode.call("submit", {})
    # The last answer does not say what the work is worth.
    assert (result.terminated, result.observation.text) == (True, "Submitted.")
    return await reward_of(episodes, episode)


async def reward_of(episodes: Episodes, episode: Episode) -> float | None:
    """The reward of an episode, which is ended if need be."""
    return (await episodes.finish(episode.handle, episode.principal)).reward


@pytest.mark.slow
def test_it_passes_the_checker_and_its_reference_solutions_are_right() -> None:
    report = check_environment("workspace", seeds=[0], steps=6, another_process=False)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []
    assert report.solved == 8


async def test_the_shell_and_the_interpreter_keep_their_state() -> None:
    async with table() as episodes:
        episode, other = await opened(episodes), await opened(episodes)
        await said(episode, "bash", command="mkdir sub; cd sub; word=kept; export MORE=exported; f() { echo $1$1; }")
        assert await said(episode, "bash", command="pwd; echo $word; sh -c 'echo $MORE'; f a") == (
            "/work/sub\nkept\nexported\naa\n(exit code 0.)"
        )
        await said(episode, "python", code="import math\nnumbers = [1, 2]\ndef double(x):\n    return x * 2")
        assert await said(episode, "python", code="numbers.append(3)\ndouble(numbers)") == (
            "[1, 2, 3, 1, 2, 3]\n(exit code 0.)"
        )
        assert await said(episode, "bash", command="ls /proc/self/fd") == "0\n1\n2\n3\n(exit code 0.)"
        assert await said(episode, "bash", command="false") == "(exit code 1.)"
        # They share the files with each other and with the other tools, and nothing with another episode.
        await said(episode, "write_file", path="sub/data.txt", content="été\n")
        assert await said(episode, "bash", command="cat data.txt") == "été\n(exit code 0.)"
        assert await said(episode, "python", code="open('sub/data.txt').read()") == "'été\\n'\n(exit code 0.)"
        assert await said(episode, "read_file", path="sub/data.txt") == "été\n"
        assert await said(other, "bash", command="ls; echo [$word]") == "[]\n(exit code 0.)"
        assert "NameError: name 'numbers' is not defined" in await said(other, "python", code="numbers")


async def test_what_the_interpreter_shows_is_what_a_programmer_expects() -> None:
    async with table() as episodes:
        episode = await opened(episodes)
        assert await said(episode, "python", code="x = 1\nNone") == "(exit code 0.)"
        assert await said(episode, "python", code="") == "(exit code 0.)"
        assert await said(episode, "python", code="def f():\n    return 1 / 0\nf()") == (
            'Traceback (most recent call last):\n  File "<call 3>", line 3, in <module>\n    f()\n'
            '  File "<call 3>", line 2, in f\n    return 1 / 0\n           ~~^~~\n'
            "ZeroDivisionError: division by zero\n(exit code 1.)"
        )
        assert "SyntaxError" in await said(episode, "python", code="if")
        await said(episode, "write_file", path="mine.py", content="import sys\nvalue = sys.modules['__main__'].x\n")
        assert await said(episode, "python", code="import mine\nmine.value") == "1\n(exit code 0.)"
        gone = await said(episode, "python", code="import sys\nprint('last')\nsys.exit(3)")
        assert gone == (
            "last\n(exit code 3.)\n"
            "The interpreter has ended, and its variables are gone. The next call starts another one."
        )
        assert "NameError" in await said(episode, "python", code="x")


async def test_a_call_that_takes_too_long_is_interrupted() -> None:
    async with table(f"?seconds={patient(0.5)}") as episodes:
        episode = await opened(episodes)
        assert await said(episode, "bash", command="word=kept; echo $word") == "kept\n(exit code 0.)"
        assert "it took too long" in await said(episode, "bash", command="sleep 1000")
        assert await said(episode, "bash", command="echo $word") == "kept\n(exit code 0.)"
    async with table(f"?seconds={patient(2.0)}") as episodes:
        episode = await opened(episodes)
        await said(episode, "python", code="x = 1")
        late = await said(episode, "python", code="while True:\n    pass")
        assert ("KeyboardInterrupt" in late, "it took too long" in late) == (True, True)
        assert await said(episode, "python", code="x") == "1\n(exit code 0.)"


async def test_bad_input_is_refused_with_the_reason() -> None:
    async with table() as episodes:
        episode = await opened(episodes)
        await said(episode, "bash", command="head -c 70000 /dev/zero > large; printf '\\377' > binary; mkdir folder")
        for path, why in {
            "absent": "No such file",
            "large": "larger than 65536 bytes",
            "binary": "no text in UTF-8",
            "folder": "no file",
            "/etc/shadow": "No such file",
            "a\0b": "null byte",
        }.items():
            result = await episode.call("read_file", {"path": path})
            assert (result.is_error, why in result.observation.text) == (True, True), result.observation.text
        for tool, arguments in (("bash", {"command": "\0"}), ("python", {"code": "\0"})):
            assert "null byte" in (await episode.call(tool, arguments)).observation.text
        assert "Read-only" in (await episode.call("write_file", {"path": "/etc/x", "content": ""})).observation.text
    with pytest.raises(InvalidOption, match="seconds"):
        load("workspace?seconds=0")


@pytest.mark.parametrize("task", [{"kind": "poem", "number": 1}, {"kind": "repair", "number": 240}, {"kind": "repair"}])
async def test_a_task_that_there_is_not_is_refused(task: dict[str, Any]) -> None:
    async with table() as episodes:
        with pytest.raises(EnvportError, match=r"the task's (kind|number) is"):
            await open_episode(episodes, "it", task={"id": "x", "prompt": "", "metadata": task})


def honest(split: str, task: int) -> tuple[str, str]:
    exercise = exercise_of(metadata(split, task))
    return exercise.path, exercise.solution


async def test_the_final_state_is_scored_however_the_episode_ends() -> None:
    async with table() as episodes:
        path, solution = honest("function", 0)
        for content, reward in ((solution, 1.0), (f"{solution}\nsolve = len\n", 0.0)):
            episode = await opened(episodes)
            await said(episode, "write_file", path=path, content=content)
            assert await reward_of(episodes, episode) == reward
        assert await reward_of(episodes, await opened(episodes)) == 0.0


async def test_a_sandbox_that_is_lost_is_no_fault_of_the_environment() -> None:
    async with table() as episodes:
        path, solution = honest("function", 0)
        others = {pid for pid, _ in descendants(os.getpid())}
        episode = await opened(episodes)
        await said(episode, "write_file", path=path, content=solution)
        await said(episode, "bash", command="true")
        for pid in {pid for pid, _ in descendants(os.getpid())} - others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert "The sandbox was ended." in await said(episode, "bash", command="true")
        for tool, arguments in (
            ("bash", {"command": "true"}),
            ("python", {"code": "1"}),
            ("read_file", {"path": path}),
        ):
            result = await episode.call(tool, arguments)
            assert (result.is_error, "ended" in result.observation.text) == (True, True), result.observation.text
        assert (await reward_of(episodes, episode), episode.outcome and episode.outcome.fault) == (0.0, None)


# What does not solve the task, and tries to look as if it did: the audit plays the others for each task.
LOOKING_RIGHT = {
    **FUNCTION_CHEATS,
    "floods": "import os\nfor _ in range(100):\n    os.write(1, b'[' * 65536)\nos._exit(0)\n",
    "cannot be read": "def solve(values):\n    for _ in range(900):\n        values = [values]\n    return values\n",
    "is no text": "\udcff",
}


SELDOM = ("exits", "leaves when called", "cannot be read", "is no text")


@pytest.mark.parametrize(
    "how", [pytest.param(it, marks=pytest.mark.slow) if it in SELDOM else it for it in LOOKING_RIGHT]
)
async def test_a_function_that_only_looks_right_earns_nothing(how: str) -> None:
    async with table() as episodes:
        assert await earned(episodes, "function", 0, {"solution.py": LOOKING_RIGHT[how]}) == 0.0


async def test_what_is_left_running_or_lying_about_changes_no_verdict() -> None:
    async with table() as episodes:
        path, solution = honest("function", 0)
        wrong = "def solve(values):\n    return 'wrong'\n"
        daemon = DAEMON.format(path=path)
        episode = await opened(episodes)
        await said(episode, "write_file", path="good.py", content=wrong)
        await said(episode, "write_file", path=path, content=wrong)
        await said(episode, "bash", command=daemon)
        await said(episode, "submit")
        assert await reward_of(episodes, episode) == 0.0
        # Nor does it harm who is right.
        assert await earned(episodes, "function", 0, {path: solution}, daemon.partition("\n")[2]) == 1.0
        for instead in ("mkfifo", "mkdir", "ln -s /dev/zero", "ln -s /etc/passwd"):
            assert await earned(episodes, "function", 0, {}, f"{instead} solution.py") == 0.0


async def test_the_hidden_cases_are_nowhere_in_reach() -> None:
    async with table() as episodes:
        episode = await opened(episodes, "pipeline", 0)
        assert await said(
            episode, "bash", command="find /work /tmp /dev/shm /run /home -type f 2> /dev/null; true"
        ) == ("/work/sample.log\n(exit code 0.)")
        # The answer to what is shown is not the answer to what is hidden.
        shown = exercise_of(metadata("pipeline", 0)).prompt.partition("the report is:\n")[2].partition("\nOnly")[0]
        assert await earned(episodes, "pipeline", 0, {"pipeline.sh": f"echo '{shown}'\n"}) == 0.0
        for cheat in ("rm pipeline.sh; mkdir pipeline.sh\n", *SHELL_CHEATS.values(), ""):
            assert await earned(episodes, "pipeline", 0, {"pipeline.sh": cheat}) == 0.0
        assert await earned(episodes, "repair", 0, {"program.py": "print('1')\n"}) == 0.0


async def test_every_kind_has_cheats_that_an_audit_plays_and_that_earn_nothing() -> None:
    spec = load("workspace")
    task = spec.task("repair", 0)
    cheats = spec.prototype.cheats(task)
    assert {"leaves", "says that it passed", "leaves a daemon", "leaves a link"} <= cheats.keys()
    async with table() as episodes:
        for name in ("says that it passed", "leaves a daemon"):
            episode = await opened(episodes, "repair", 0)
            for tool, arguments in cheats[name]:
                await said(episode, tool, **arguments)
            assert await reward_of(episodes, episode) == 0.0
    for kind in KINDS:
        assert len(spec.prototype.cheats(spec.task(kind, 1))) > 4


def test_what_it_costs_can_be_measured() -> None:
    assert min(measure(episodes=1, calls=1).values()) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_the_tasks_is_solved_by_its_reference_solution(kind: str) -> None:
    assert solved(kind, NUMBERS - 1) == (True, False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_every_task_is_solved_by_its_reference_solution(kind: str) -> None:
    assert [number for number in range(NUMBERS) if solved(kind, number) != (True, False)] == []
    assert len({exercise_of({"kind": kind, "number": number}).prompt for number in range(NUMBERS)}) == NUMBERS


def solved(kind: str, number: int) -> tuple[bool, bool]:
    """Whether the reference solution passes, and whether what is there at the beginning does."""
    exercise = exercise_of({"kind": kind, "number": number})
    first = exercise.files.get(exercise.path, "")
    contents = [exercise.solution.encode(), first.encode()]
    right, wrong = [exercise.test.passes(PlayerCode(), exercise.path, content) for content in contents]
    return right, wrong


def test_the_tasks_are_many_different_and_the_same_every_time() -> None:
    assert {name: len(tasks) for name, tasks in SPLITS.items()} == {
        "function": 192,
        "repair": 192,
        "pipeline": 192,
        "test": 144,
    }
    numbers = {name: {json.dumps(dict(metadata(name, it))) for it in range(0, len(SPLITS[name]), 6)} for name in SPLITS}
    assert not any(numbers["test"] & others for name, others in numbers.items() if name != "test")
    for kind in KINDS:
        # Of these, every one; of all, in the slow test.
        exercises = [exercise_of({"kind": kind, "number": number}) for number in range(0, NUMBERS, 8)]
        assert len({exercise.prompt for exercise in exercises}) == len(exercises)
        # The harder ones say more.
        lengths = [len(exercise.solution) for exercise in exercises]
        assert sum(lengths[:8]) < sum(lengths[11:19]) < sum(lengths[22:])


# What a player is told of an operation, worked out by hand.
BY_HAND: list[tuple[str, list[Any], list[Any]]] = [
    ("keep_multiples", [[0, 3, 4, -6], 3], [0, 3, -6]),
    ("drop_multiples", [[0, 3, 4, -6], 3], [4]),
    ("keep_above", [[2, 3, 4], 3], [4]),
    ("add", [[1, -1], -2], [-1, -3]),
    ("multiply", [[1, -2], -3], [-3, 6]),
    ("running_sums", [[1, 2, 3]], [1, 3, 6]),
    ("differences", [[5, 7, 4]], [2, -3]),
    ("differences", [[5]], []),
    ("sort_up", [[2, -1, 2]], [-1, 2, 2]),
    ("sort_down", [[2, -1, 2]], [2, 2, -1]),
    ("digit_sums", [[-38, 0, 101]], [11, 0, 2]),
    ("negate_even_places", [[1, 2, 3, -4]], [1, -2, 3, 4]),
    ("window_largest", [[1, 3, 2, 0], 2], [3, 3, 2]),
    ("window_largest", [[1], 2], []),
    ("remainders", [[-1, 7], 3], [2, 1]),
    ("clamp", [[-9, 2, 9], 5], [-5, 2, 5]),
    ("merge_equal", [[1, 1, 2, 1]], [1, 2, 1]),
    ("reverse_list", [[1, 2]], [2, 1]),
    ("drop_repeats", [["b", "a", "b"]], ["b", "a"]),
    ("every_nth", [[1, 2, 3, 4, 5], 2], [1, 3, 5]),
    ("rotate_left", [[1, 2, 3], 4], [2, 3, 1]),
    ("rotate_left", [[], 4], []),
    ("drop_first", [[1, 2, 3], 2], [3]),
    ("reverse_each", [["ab", "c"]], ["ba", "c"]),
    ("keep_longer", [["abc", "abcd"], 3], ["abcd"]),
    ("remove_letter", [["banana"], "a"], ["bnn"]),
    ("keep_with", [["ab", "cd"], "a"], ["ab"]),
    ("sort_words", [["b", "a3", "a"]], ["a", "a3", "b"]),
    ("sort_by_length", [["ccc", "b", "a"]], ["b", "a", "ccc"]),
    ("shift_letters", [["xyz3"], 2], ["zab3"]),
    ("append_length", [["fox", ""]], ["fox3", "0"]),
    ("double_vowels", [["ocean"]], ["ooceeaan"]),
    ("rotate_each", [["abc", ""], 2], ["cab", ""]),
]
FINALS_BY_HAND: list[tuple[str, list[Any], Any]] = [
    ("the_list", [1], [1]),
    ("how_many", [1, 1], 2),
    ("total", [], 0),
    ("spread", [3, -1, 2], 4),
    ("spread", [], 0),
    ("most_common", [2, 1, 2, 1, 3], 1),
    ("most_common", [], None),
    ("alternating_sum", [5, 2, 1], 4),
    ("hyphenated", ["a", "b"], "a-b"),
    ("occurrences", ["a", "b", "a"], {"a": 2, "b": 1}),
    ("longest", ["a", "bb", "cc"], "bb"),
    ("longest", [], ""),
    ("initials", ["ab", "", "c"], "ac"),
]


def test_operations_do_what_their_words_say() -> None:
    every = {it.function.__name__: it.function for items in operations.OPERATIONS.values() for it in items}
    finals = {it.function.__name__: it.function for items in operations.FINALS.values() for it in items}
    assert ({name for name, *_ in BY_HAND}, {name for name, *_ in FINALS_BY_HAND}) == ({*every}, {*finals})
    for name, arguments, result in BY_HAND:
        assert every[name](*arguments) == result, name
    for name, values, result in FINALS_BY_HAND:
        assert finals[name](values) == result, name
