"""Tasks of reasoning-gym by `reasoning_gym:TASK`: questions by number, and answers scored in another process."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from slow import slow

pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym is not installed")

import reasoning_gym
from opening import open_episode
from patience import patient

from envport.checker import check_environment
from envport.episodes import Episode, Episodes
from envport.errors import (
    ConfigurationError,
    EnvironmentNotFound,
    InvalidArguments,
    InvalidOption,
    InvalidRequest,
    MissingExtra,
)
from envport.registry import load
from envport_envs.reasoning_gym.library import Questions
from envport_envs.reasoning_gym.scoring import score, scoring

SIX = "chain_sum,leg_counting,mini_sudoku,prime_factorization,self_reference,simple_equations"


@asynccontextmanager
async def table(text: str) -> AsyncIterator[Episodes]:
    episodes = Episodes({"it": load(f"reasoning_gym:{text}", "it")})
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, split: str, task: int, seed: int = 0) -> Episode:
    return await open_episode(episodes, "it", split=split, task=task, seed=seed)


def entry(name: str, number: int, size: int = 1200, seed: int = 0, **settings: Any) -> Any:
    made = reasoning_gym.create_dataset(name, size=size, seed=seed, **settings)
    return made, made[number]


@pytest.mark.slow
def test_it_passes_the_checker_without_a_warning() -> None:
    report = check_environment(f"reasoning_gym:{SIX}", seeds=range(3), steps=2, another_process=False)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []


async def test_questions_and_scores_are_those_of_reasoning_gym() -> None:
    async with table(SIX) as episodes:
        seen: Counter[str] = Counter()
        for split, first in (("test", 0), ("train", 200)):
            for task in range(5):
                for answers in (lambda it: it["answer"], lambda it: "0", lambda it: ""):
                    episode = await opened(episodes, split, task)
                    assert episode.start.task is not None
                    name, number = (episode.start.task.metadata[key] for key in ("task", "question"))
                    made, wanted = entry(name, number)
                    assert number == first + task
                    assert episode.first_observation.text == wanted["question"]
                    answer = answers(wanted)
                    result = await episode.call("submit_answer", {"answer": answer})
                    assert (result.terminated, result.is_error) == (True, False)
                    assert result.observation.text == "Your answer has been submitted."
                    assert episode.reward == float(answer != "" and reasonable(made, answer, wanted) == 1)
                    seen[name] += 1
        assert len(seen) > 3


def reasonable(made: Any, answer: str, wanted: Any) -> float:
    try:
        return float(made.score_answer(answer, wanted))
    except ValueError:
        return 0.0


def test_splits_are_apart_and_as_large_as_asked_for() -> None:
    splits = load("reasoning_gym:chain_sum?train_size=30&test_size=7&seed=5").prototype.splits()
    asked = {name: [task.metadata["question"] for task in tasks] for name, tasks in splits.items()}
    assert asked == {"test": [*range(7)], "train": [*range(7, 37)]}
    # No question is made before it is asked for.
    assert len(load("reasoning_gym:futoshiki?train_size=1000000").prototype.splits()["train"]) == 1_000_000


def test_a_mixture_draws_by_its_weights_and_the_same_in_every_process() -> None:
    tasks = load("reasoning_gym:chain_sum,leg_counting,gcd?weights=[2,1,1]").prototype.splits()["train"]
    drawn = Counter(task.metadata["task"] for task in tasks)
    assert drawn.keys() == {"chain_sum", "leg_counting", "gcd"}
    assert 430 < drawn["chain_sum"] < 570
    assert [task.id for task in tasks[:4]] == ["chain_sum-200", "gcd-201", "chain_sum-202", "chain_sum-203"]


async def test_the_seed_chooses_the_question_where_there_is_no_task() -> None:
    environment: Any = load("reasoning_gym:chain_sum").make()
    texts = []
    for seed in (1, 2, 1):
        environment.rng = random.Random(seed)
        texts.append(environment.reset(seed=seed, task=None))
    assert texts[0] == texts[2] != texts[1]


async def test_settings_parts_and_what_is_no_answer() -> None:
    config = {"leg_counting": {"min_animals": 5, "max_animals": 6}}
    # One process that scores serves both.
    async with table(f"leg_counting?partial=true&seed=90&config={json.dumps(config)}") as episodes:
        await parts_are_earned(episodes)
        await what_is_no_task_and_no_answer_is_refused(episodes)


async def parts_are_earned(episodes: Episodes) -> None:
    made, wanted = entry("leg_counting", 3, seed=90, min_animals=5, max_animals=6)
    half = wanted["answer"] + "," * len(wanted["answer"])
    assert made.score_answer(half, wanted) == 0.5
    for answer, reward in ((wanted["answer"], 1.0), (half, 0.5), (f"{half}{' ' * 100}", 0.0), ("", 0.0)):
        episode = await opened(episodes, "test", 3)
        # The settings and the seed have made another question.
        assert episode.first_observation.text == wanted["question"] != entry("leg_counting", 3)[1]["question"]
        await episode.call("submit_answer", {"answer": answer})
        assert episode.reward == reward


async def what_is_no_task_and_no_answer_is_refused(episodes: Episodes) -> None:
    for number in (-1, 1200, "3", None, True, 1.0):
        with pytest.raises(InvalidRequest, match=r"it has to be a number from 0 to 1199"):
            await open_episode(episodes, "it", task={"id": "mine", "metadata": {"question": number}})
    episode = await opened(episodes, "test", 0)
    for answer in (5, None, ["4"], {"a": 1}, True, "x" * 20_001):
        with pytest.raises(InvalidArguments, match="'answer'"):
            await episode.call("submit_answer", {"answer": answer})
    assert episode.live
    assert not (await episode.call("submit_answer", {"answer": "4"})).is_error


HOSTILE = Questions(("boxnet", "binary_matrix", "prime_factorization", "spell_backward"), (1.0, 1.0, 1.0, 1.0), 400)


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    """A process that scores tasks whose scorers execute the answer, which no reference can name."""
    with scoring(HOSTILE, seconds=round(patient(1))) as address:
        yield address


def first(name: str) -> int:
    return next(number for number in range(HOSTILE.size) if HOSTILE.name(number) == name)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        *slow([("binary_matrix", "9**9**9")]),
        ("binary_matrix", "__import__('os')._exit(0)"),
        ("binary_matrix", "__import__('os').abort()"),
        ("binary_matrix", "[0] * 10**10"),
        ("prime_factorization", "no number"),
        ("prime_factorization", "\x00\ud800"),
    ],
)
def test_an_answer_that_cannot_be_scored_earns_nothing_and_the_next_one_is_scored(
    hostile: str, task: str, answer: str
) -> None:
    number = first(task)
    assert score(hostile, number, answer) == 0.0
    _, wanted = entry(task, number, size=HOSTILE.size)
    assert score(hostile, number, wanted["answer"]) == 1.0


def test_an_answer_is_scored_with_little_memory(hostile: str) -> None:
    number = first("binary_matrix")
    made, wanted = entry("binary_matrix", number, size=HOSTILE.size)
    solution = [[int(cell) for cell in line.split()] for line in wanted["answer"].splitlines()]
    earned = made.score_answer(repr(solution), wanted)
    assert earned > 0.05
    limit = "__import__('resource').getrlimit(__import__('resource').RLIMIT_AS)[0]"
    assert score(hostile, number, f"{solution} if {limit} == 4 * 2**30 else []") == pytest.approx(earned)


def test_more_than_the_full_score_is_no_score(hostile: str) -> None:
    made = HOSTILE.dataset("spell_backward")
    for number in [number for number in range(HOSTILE.size) if HOSTILE.name(number) == "spell_backward"]:
        wanted = made[number]
        longer = wanted["answer"] + "x"
        if made.score_answer(longer, wanted) > 1:
            assert score(hostile, number, longer) == 0.0
            return
    pytest.fail("no scorer gives more than 1: the check can go")


def test_a_scorer_that_is_broken_is_a_fault_and_no_zero(hostile: str) -> None:
    number = first("binary_matrix")
    with pytest.raises(RuntimeError, match=f"question {number} could not be scored: .* was killed"):
        score(hostile, number, "__import__('os').kill(__import__('os').getpid(), 9)")
    number = first("boxnet")
    with pytest.raises(RuntimeError, match=f"question {number} could not be scored: TypeError"):
        score(hostile, number, "1e999")


@pytest.mark.slow
def test_the_process_ends_with_the_gateway() -> None:
    with scoring(Questions(("chain_sum",), (1.0,), 10)) as address:
        assert os.path.exists(address)
    assert not os.path.exists(address)
    with pytest.raises(OSError, match="No such file"):
        score(address, 0, "1")


@pytest.mark.slow
def test_the_process_ends_when_the_gateway_is_killed() -> None:
    code = """
import os
from envport_envs.reasoning_gym import scoring as s
from envport_envs.reasoning_gym.library import Questions
with s.scoring(Questions(("chain_sum",), (1.0,), 10)) as address:
    print(open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
    os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline() if process.stdout else "0")
        process.wait()
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(child)
        assert select.select([descriptor], [], [], patient(30))[0]
        os.close(descriptor)


@pytest.mark.parametrize(
    ("text", "error", "complaint"),
    [
        ("chainsum", EnvironmentNotFound, "no task 'chainsum'. Near: chain_sum"),
        ("xyzzy", EnvironmentNotFound, "Its tasks are: ab, .*zebra_puzzles"),
        ("chain_sum,", EnvironmentNotFound, "no task ''"),
        ("countdown", ConfigurationError, "not served: its scorer executes the answer"),
        ("chain_sum,rubiks_cube", ConfigurationError, "rubiks_cube is not served: it has no known answer"),
        ("word_ladder", ConfigurationError, "other questions in another process"),
        ("complex_arithmetic", ConfigurationError, "full score for nan"),
        ("game_of_life?partial=true", ConfigurationError, "not served with partial=true: one wrong answer"),
        ("chain_sum,chain_sum", InvalidOption, "names a task twice"),
        ("chain_sum,gcd?weights=[1]", InvalidOption, r"weights is \[1.0\]; it has to be a number above 0 for each"),
        ("chain_sum,gcd?weights=[1,0]", InvalidOption, "a number above 0 for each of the tasks chain_sum, gcd"),
        ("chain_sum?weights=much", InvalidOption, "'weights' is 'much'"),
        ("chain_sum?train_size=0", InvalidOption, "'train_size' is '0'"),
        ("chain_sum?seed=-1", InvalidOption, "'seed' is '-1'"),
        ("chain_sum?size=5", InvalidOption, "no option 'size'; its options are: weights "),
        ('chain_sum?config={"gcd":{}}', InvalidOption, "config is for 'gcd', which is not among the tasks: chain_sum"),
        (
            'chain_sum?config={"chain_sum":{"terms":3}}',
            InvalidOption,
            "no setting 'terms'; its settings are: min_terms",
        ),
        ('chain_sum?config={"chain_sum":{"seed":3}}', InvalidOption, "cannot be among .*: use the option seed"),
        ('chain_sum?config={"chain_sum":{"min_terms":-3}}', InvalidOption, "refuses the settings .* AssertionError"),
    ],
)
def test_each_mistake_in_a_reference_is_named(text: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint) as caught:
        load(f"reasoning_gym:{text}")
    assert type(caught.value) is error


def test_without_the_extra_one_is_told_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("envport_envs.reasoning_gym")]:
        monkeypatch.delitem(sys.modules, loaded)
    for loaded in [name for name in sys.modules if name.startswith("reasoning_gym")]:
        monkeypatch.setitem(sys.modules, loaded, None)
    with pytest.raises(MissingExtra, match=r"References with reasoning_gym: .* pip install 'envport\[reasoning-gym\]'"):
        load("reasoning_gym:chain_sum")
