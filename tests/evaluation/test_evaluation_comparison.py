"""What two results must have in common to be compared, and what a comparison says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bubblewrap import needs_bubblewrap
from command_line import envport_here
from evaluating import CONTROL, address, calls, evaluate, scripted, secured
from harness import running
from inspect_ai.log import EvalLog, read_eval_log, write_eval_log

from envport import Environment, Step, Task, TaskSource, tool
from envport.episodes import Limits
from envport.errors import InvalidOption
from envport.registry import EnvironmentDefinition, load
from envport_bridges.evaluation.comparison import Comparison, compare_results
from envport_bridges.evaluation.results import Result

GUESSING = '''
from envport import Environment, Step, tool


class Guessing(Environment):
    """Guess a number."""

    def reset(self, *, seed, task):
        return "Guess a number."

    @tool
    def guess(self, number: int) -> Step[str]:
        """Guess."""
        return Step("Thanks.", reward=float(number % 2), terminated=True)
'''


class Guess(Environment):
    """Guess a number."""

    def splits(self) -> dict[str, TaskSource]:
        return {"train": [{"id": f"{place}", "prompt": "Guess."} for place in range(6)]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        assert task is not None
        return f"Number {task.id}"

    @tool
    def guess(self, number: int) -> Step[str]:
        """Guess."""
        return Step("Thanks.", reward=float(number), terminated=True)


class Reworded(Guess):
    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"{super().reset(seed=seed, task=task)}!" if task is not None and task.id == "3" else "Number"


def guess_of(number: int) -> Any:
    return scripted(lambda messages, tools: calls(("guess", {"number": number})))


@pytest.fixture(scope="module")
def guesses() -> Any:
    with running(EnvironmentDefinition("guess", Guess)) as gateway:
        yield address(gateway, "guess")


def played(env: str, **options: Any) -> Result:
    return Result.of(evaluate(env, model=guess_of(1), num_tasks=2, **options))


def refusal(a: Result, b: Result, **options: Any) -> str:
    with pytest.raises(InvalidOption) as refused:
        compare_results(a, b, **options)
    return str(refused.value)


def test_results_with_other_settings_are_compared_only_if_that_is_said(guesses: str):
    plain = played(guesses)
    limits = {"temperature": 0.5, "max_tokens": 100, "token_limit": 500, "message_limit": 50, "time_limit": 100}
    other = played(guesses, limits=limits, epochs=2, max_calls=5)
    names = [*limits, "epochs", "max_calls"]
    for name in names:
        said = refusal(plain, other, despite=[one for one in names if one != name])
        assert re.search(rf"cannot be compared: {name} is \S+ in A and \S+ in B;", said)
        assert said.endswith(f"; to compare them all the same: --despite {name}")
    found = compare_results(plain, other, despite=names)
    assert found.despite.keys() == set(names)
    assert found.despite["epochs"] == (1, 2)
    assert found.pairs == 2


def test_settings_that_a_kind_of_player_has_not_are_no_difference(guesses: str):
    model = played(guesses, limits={"temperature": 0.5, "token_limit": 500})
    policy = Result.of(evaluate(guesses, policy="noop", num_tasks=2))
    assert compare_results(policy, model).despite == {}


@needs_bubblewrap
def test_the_time_of_agents_is_compared_between_agents(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ENVPORT_TOKEN", CONTROL)
    with secured(EnvironmentDefinition("guess", Guess)) as gateway:
        env = address(gateway, "guess")
        agent = {"agent": "{python} -c pass", "num_tasks": 1}
        hasty, slow = (Result.of(evaluate(env, **agent, agent_seconds=seconds)) for seconds in (50, 60))
        policy = Result.of(evaluate(env, policy="noop", num_tasks=1))
    assert "agent_seconds is 50.0 in A and 60.0 in B" in refusal(hasty, slow)
    assert compare_results(hasty, policy).pairs == 1


def test_another_code_under_the_same_version_is_another_environment(tmp_path: Path):
    results: list[Result] = []
    for name, text in (("a", GUESSING), ("b", GUESSING.replace("number % 2", "number % 3")), ("c", GUESSING)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "guessing.py").write_text(text)
        with running(load(f"{tmp_path / name}/guessing.py:Guessing")) as gateway:
            results.append(Result.of(evaluate(address(gateway, "guessing"), policy="random", num_tasks=2)))
    first, changed, same = results
    assert first.identity.version == changed.identity.version
    assert "cannot be compared: source is " in refusal(first, changed)
    assert compare_results(first, changed, despite=["source"]).pairs == 2
    assert compare_results(first, same).unknown == ()


def test_other_limits_of_the_environment_are_another_measurement():
    results: list[Result] = []
    for limits in (Limits(), Limits(max_seconds=50), Limits(call_seconds=7), Limits(max_episodes=50)):
        with running(load("catch"), limits=limits) as gateway:
            results.append(Result.of(evaluate(address(gateway, "catch"), policy="noop", num_tasks=1)))
    plain, shorter, hastier, smaller = results
    assert "max_seconds is None in A and 50.0 in B" in refusal(plain, shorter)
    assert "call_seconds is 600.0 in A and 7.0 in B" in refusal(plain, hastier)
    assert compare_results(plain, smaller).pairs == 1


def test_a_sample_that_showed_another_text_is_another_sample():
    results: list[Result] = []
    for cls in (Guess, Reworded):
        with running(EnvironmentDefinition("guess", cls)) as gateway:
            results.append(Result.of(evaluate(address(gateway, "guess"), policy="noop")))
    said = refusal(*results, despite=["source"])
    assert "sample 'train/0' was played with different texts" in said
    assert said.endswith("--despite texts")
    assert set(compare_results(*results, despite=["source", "texts"]).despite) == {"texts"}


def test_a_condition_that_is_none_is_refused(guesses: str):
    result = played(guesses)
    assert "'temprature' is no condition of these results; allowed: " in refusal(result, result, despite=["temprature"])


def older(log: EvalLog) -> EvalLog:
    """The log as an older version of envport wrote it."""
    old = read_eval_log(log.location)
    assert old.eval.metadata is not None
    for name in ("source", "limits"):
        del old.eval.metadata["envport"][name]
    for sample in old.samples or []:
        for score in (sample.scores or {}).values():
            assert score.metadata is not None
            del score.metadata["texts"]
    return old


def test_an_older_log_is_read_and_a_comparison_says_what_it_cannot_tell(guesses: str, tmp_path: Path):
    log = evaluate(guesses, policy="noop", num_tasks=2)
    write_eval_log(older(log), str(tmp_path / "old.eval"))
    old = Result.read(tmp_path / "old.eval")
    assert (old.identity.source, old.identity.limits, old.played[0].texts) == (None, None, None)
    assert compare_results(old, Result.read(log.location)).unknown == ("source", "limits", "texts")
    shown = envport_here("compare", "old.eval", log.location)
    assert "Not checked, because a log does not say: source, limits, texts." in shown.stdout


def paired(guesses: str, first: list[int], second: list[int]) -> Comparison:
    """The comparison of players with these rewards in the tasks."""
    results: list[Result] = []
    for rewards in (first, second):
        result = Result.of(evaluate(guesses, model=guess_of(0)))
        episodes = [
            replace(one, reward=float(reward), success=reward >= 1)
            for one, reward in zip(result.played, rewards, strict=True)
        ]
        results.append(replace(result, played=tuple(episodes), by_sample={}))
    return compare_results(*results)


def test_a_comparison_tests_the_signs_and_says_what_could_have_been_seen(guesses: str):
    found = paired(guesses, [0] * 6, [1] * 6)
    assert (found.sign_test.better, found.sign_test.p) == (6, 2 / 64)
    difference = found.success.difference
    assert difference.mean == 1.0
    assert difference.low is not None
    assert difference.high == 1.0
    assert found.success.smallest is not None
    assert 0.3 < found.success.smallest < 0.9
    assert found.steps.smallest is None


def test_the_command_shows_them(guesses: str):
    logs = [evaluate(guesses, model=guess_of(number), limits={"temperature": number}) for number in (0, 1)]
    words = ["compare", *(log.location for log in logs)]
    refused = envport_here(*words)
    assert refused.returncode == 2
    assert "temperature is 0.0 in A and 1.0 in B; to compare them all the same: --despite temperature" in refused.stderr
    shown = envport_here(*words, "--despite", "temperature")
    assert shown.returncode == 0, shown.stderr
    assert "By task: better on 6, equal on 0, worse on 0; sign test p = 0.0312." in shown.stdout
    assert "Compared despite temperature: 0.0 in A, 1.0 in B." in shown.stdout
    assert "smallest found at 80% power" in shown.stdout
    found = json.loads(envport_here(*words, "--despite", "temperature", "--json").stdout)
    assert found["sign_test"] == {"better": 6, "equal": 0, "worse": 0, "p": 0.03125}
    assert found["despite"] == {"temperature": [0.0, 1.0]}
    assert found["success"]["smallest"] > 0
