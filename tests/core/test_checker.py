"""The checker finds what breaks the contract, and says where."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envport import Environment, Observation, Step, Task, ToolDefinition, ToolError, tool
from envport.checker import CheckReport, check_environment, examine
from envport.errors import EnvironmentNotFound, InvalidEnvironment

SHOP = """
from envport import Environment, tool

class Shop(Environment):
    "Buy."

    def reset(self, *, seed, task):
        return str(len(self.secrets["KEY"]))

    @tool
    def buy(self) -> str:
        "Buy."
        return "Bought."
"""


class Good(Environment):
    """Does nothing wrong."""

    def splits(self) -> dict[str, Any]:
        return {"train": [{"id": str(number)} for number in range(3)]}

    def reset(self, *, seed: int, task: Task | None) -> Any:
        return str(self.rng.random())

    @tool
    def act(self, x: int) -> Any:
        """Act."""
        return str(self.rng.random() + x)


class GlobalRandom(Good):
    """Draws from the global random state."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        random.seed(seed)
        return "ready"

    @tool
    def act(self, x: int) -> str:
        """Act."""
        return str(random.random())


class Shared(Good):
    """Keeps state on the class."""

    count = 0

    @tool
    def act(self, x: int) -> str:
        """Act."""
        type(self).count += 1
        return str(type(self).count)


class Unseeded(Good):
    """Begins differently each time."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return str(id(self))


class Breaks(Good):
    """Breaks now and then."""

    @tool
    def act(self, x: int) -> str:
        """Act."""
        if x > 0:
            raise KeyError("x")
        return "fine"


class BreaksInReset(Good):
    """Breaks in reset."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        raise KeyError("r")


class BadReward(Good):
    """Rewards with NaN."""

    @tool
    def act(self, x: int) -> Step:
        """Act."""
        return Step("", reward=float("nan"))


class BadObservation(Good):
    """Shows a block that is none."""

    @tool
    def act(self, x: int) -> Observation:
        """Act."""
        return Observation(content=({"type": "nonsense"},))


class BadClose(Good):
    """Closes only what was reset."""

    def close(self) -> None:
        self.rng.random()


class Prints(Good):
    """Prints."""

    @tool
    def act(self, x: int) -> str:
        """Act."""
        print("thinking")
        return "fine"


class BadName(Good):
    """Has a tool whose name has a space."""

    @tool(name="act now")
    def act(self, x: int) -> str:
        """Act."""
        return "fine"


class EmptySplit(Good):
    """Has a split without tasks."""

    def splits(self) -> dict[str, Any]:
        return {"train": []}


class SameId(Good):
    """Has two tasks of one id."""

    def splits(self) -> dict[str, Any]:
        return {"train": [{"id": "a"}, {"id": "a"}]}


class Shuffles(Good):
    """Has other tasks each time."""

    def splits(self) -> dict[str, Any]:
        class Tasks(Sequence[Any]):
            def __len__(self) -> int:
                return 1

            def __getitem__(self, index: Any) -> Any:
                return {"id": str(random.random())}

        return {"train": Tasks()}


class UnreadableTask(Good):
    """Has tasks that cannot be read."""

    def splits(self) -> dict[str, Any]:
        return {"train": [3]}


class Unlike(Good):
    """Lists another tool in each instance."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self._name = f"tool_{type(self).made}"

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return "fine"

    def tool_definitions(self) -> list[ToolDefinition]:
        return [ToolDefinition(self._name, {"properties": {}}, "call", "Acts.")]


class BadScore(Good):
    """Scores in words."""

    def score(self) -> str:
        return "good"


class BrokenPromise(Good):
    """Promises a model and returns a text."""

    @tool
    def act(self, x: int) -> Task:
        """Act."""
        return "no task"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("cls", "check", "complaint"),
    [
        (GlobalRandom, "reproducibility", "the reply of act"),
        (Shared, "reproducibility", "the reply of act"),
        (Unseeded, "reproducibility", "the first observation"),
        (Breaks, "call", "KeyError: 'x'"),
        (BreaksInReset, "reset", "KeyError: 'r'"),
        (BadReward, "call", "finite"),
        (BadObservation, "observation", "MCP cannot carry"),
        (BadClose, "close", "where reset"),
        (Prints, "stdout", "'thinking"),
        (BadName, "name", "'act now'"),
        (EmptySplit, "splits", "empty"),
        (SameId, "splits", "same id"),
        (Shuffles, "splits", "different tasks"),
        (UnreadableTask, "splits", "cannot be read"),
        (Unlike, "listing", "other tools"),
        (BrokenPromise, "observation", "output schema"),
        (BadScore, "score", "not 'good'"),
    ],
)
def test_each_breach_is_found_and_named(cls: type[Environment], check: str, complaint: str) -> None:
    with pytest.raises(InvalidEnvironment) as caught:
        check_environment(cls)
    assert f"error [{check}]" in str(caught.value)
    assert complaint in str(caught.value)


def test_a_good_environment_passes_and_the_report_says_what_was_done() -> None:
    report = check_environment(Good, seeds=range(4), steps=10)
    assert report.ok
    assert report.findings == []
    # Three instances for each seed: two that have to agree, and one that plays in between.
    assert (report.episodes, report.calls) == (12, 120)
    assert report.refused > 0
    assert str(report).startswith("Good: passed (12 episodes, 120 calls, ")


def test_what_only_makes_life_harder_is_a_warning() -> None:
    class Curt(Environment):
        def reset(self, *, seed: int, task: Task | None) -> None: ...

        @tool
        def act(self, x: int = "zero") -> None: ...  # type: ignore[assignment]

    report = check_environment(Curt)
    assert report.ok
    assert [finding.check for finding in report.findings] == ["description", "description", "default"]


def test_refusing_in_words_is_no_breach() -> None:
    class Refuses(Good):
        """Refuses."""

        @tool
        def act(self, x: int) -> str:
            """Act."""
            if x % 2:
                raise ToolError(f"not {x}")
            return "even"

    assert check_environment(Refuses).findings == []


def test_what_is_not_found_is_said_as_the_registry_says_it() -> None:
    with pytest.raises(EnvironmentNotFound):
        check_environment("nonsense")


def test_it_plays_with_the_secrets_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "hush")
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "envport.toml").write_text(
        "[environments.shop]\nreference = './shop.py:Shop'\nsecrets = {KEY = {variable = 'SHOP_KEY'}}\n"
    )
    assert check_environment(f"{tmp_path}/envport.toml:shop").ok
    with pytest.raises(InvalidEnvironment, match="KeyError: 'KEY'"):
        check_environment(f"{tmp_path}/shop.py:Shop")


async def test_it_runs_within_an_event_loop_too() -> None:
    report = await examine(Breaks)
    assert isinstance(report, CheckReport)
    assert not report.ok
