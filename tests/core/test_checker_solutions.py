"""The checker plays reference solutions, does nothing, and compares what both earn with what they have to."""

from __future__ import annotations

from typing import Any

import pytest

from envport import Environment, Solution, Step, Task, ToolError, tool
from envport.checker import examine


class Sum(Environment):
    """Add two numbers."""

    reward = "sum"

    def splits(self) -> dict[str, Any]:
        return {"train": [{"id": f"{number}", "number": number} for number in range(20)]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        self.number = task.metadata["number"] if task is not None else 1
        return str(self.number)

    @tool
    def answer(self, total: int) -> Step[str]:
        """Give the sum of the number and 1."""
        if total < 0:
            raise ToolError("it is not negative")
        return Step("Given.", reward=float(total == self.number + 1), terminated=True)

    def reference_solution(self, task: Task | None) -> Solution | None:
        assert task is not None
        return Solution([("answer", {"total": task.metadata["number"] + 1})])


class Last(Sum):
    """The last reward counts, and the final state is scored."""

    reward = "last"

    def score(self) -> float:
        return 0.5

    def reference_solution(self, task: Task | None) -> Solution | None:
        return Solution([("answer", {"total": 0})], reward=0.5, idle=0.5)


class Wrong(Sum):
    """Its solutions are wrong."""

    def reference_solution(self, task: Task | None) -> Solution | None:
        return Solution([("answer", {"total": 0})], idle=0.25)


class Refused(Sum):
    """Its solutions are refused."""

    def reference_solution(self, task: Task | None) -> Solution | None:
        return Solution([("answer", {"total": -1})])


class Raises(Sum):
    """It does not know its solutions."""

    def reference_solution(self, task: Task | None) -> Solution | None:
        raise KeyError("none")


class Unknown(Sum):
    """It has solutions of some tasks."""

    def reference_solution(self, task: Task | None) -> Solution | None:
        return None


async def found(cls: type[Environment]) -> tuple[int, list[str]]:
    report = await examine(cls, seeds=[0], steps=1, another_process=False)
    messages = [str(finding) for finding in report.findings if finding.check == "solution"]
    return report.solved, messages


@pytest.mark.parametrize(("cls", "solved"), [(Sum, 8), (Last, 8), (Unknown, 0)])
async def test_right_solutions_are_found_to_be_right(cls: type[Environment], solved: int) -> None:
    assert await found(cls) == (solved, [])


async def test_wrong_rewards_are_named_by_task() -> None:
    solved, messages = await found(Wrong)
    assert (solved, len(messages)) == (8, 16)
    assert {message.partition(": ")[2] for message in messages} == {
        "the reference solution earns 0, and it has to earn 1",
        "doing nothing earns 0, and it has to earn 0.25",
    }


async def test_what_cannot_be_played_is_an_error() -> None:
    _, messages = await found(Refused)
    assert all("the reference solution is refused: it is not negative" in message for message in messages)
    solved, messages = await found(Raises)
    assert (solved, len(messages)) == (0, 8)
    assert all("reference_solution() of task" in message for message in messages)
