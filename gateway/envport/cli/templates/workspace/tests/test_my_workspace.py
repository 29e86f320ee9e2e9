"""The environment follows envport's contract, and rewards a program only for what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from envport.checker import check_environment
from envport_bridges.rollouts import Rollouts

from my_workspace.environment import MyWorkspaceEnvironment

REFERENCE = f"{Path(__file__).parents[1]}/my_workspace/environment.py:MyWorkspaceEnvironment"
READ = "numbers = [int(word) for word in input().split()]\n"


def submitted(program: str, task: int = 0, split: str = "train") -> float | None:
    """The reward of a program."""
    with Rollouts(REFERENCE).open(split=split, task=task, seed=0) as episode:
        episode.call("write", {"path": "solution.py", "content": program})
        episode.call("submit", {})
        return episode.finish()


def test_it_keeps_the_contract() -> None:
    check_environment(MyWorkspaceEnvironment, seeds=[0])


@pytest.mark.parametrize(
    ("split", "task", "says"),
    [
        ("train", 0, "sum(numbers)"),
        ("test", 0, "max(numbers) - min(numbers)"),
    ],
)
def test_the_right_program_passes_all_tests(split: str, task: int, says: str) -> None:
    assert submitted(f"{READ}print({says})\n", task, split) == 1.0


@pytest.mark.parametrize("program", ["print(0)\n", "import os; os.kill(os.getppid(), 9)\n"])
def test_another_program_earns_nothing(program: str) -> None:
    assert submitted(program) == 0.0


def test_nothing_submitted_earns_nothing() -> None:
    with Rollouts(REFERENCE).open(split="train", task=0) as episode:
        assert episode.finish() == 0.0


def test_what_was_written_can_be_tried() -> None:
    with Rollouts(REFERENCE).open(split="train", task=0) as episode:
        episode.call("write", {"path": "solution.py", "content": f"{READ}print(sum(numbers))\n"})
        reply = episode.call("run", {"stdin": "1 2 3"})
    assert "6" in str(reply.content)
