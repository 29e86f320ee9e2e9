"""The server is an environment that follows envport's contract, and its tasks can be solved."""

from __future__ import annotations

from pathlib import Path

import pytest
from envport.checker import check_environment
from envport_bridges.rollouts import Rollouts

FOLDER = Path(__file__).parents[1]
REFERENCE = "./envport.toml:my_server"
SOLUTIONS = {
    "deliver": [("add", {"name": "plum", "count": 3}), ("take", {"name": "apple", "count": 1})],
    "sell-out": [("take", {"name": "pear", "count": 2})],
    "double": [("add", {"name": "apple", "count": 10})],
}


@pytest.fixture(autouse=True)
def in_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the server is relative to this folder."""
    monkeypatch.chdir(FOLDER)


def test_it_keeps_the_contract() -> None:
    check_environment(REFERENCE, seeds=[0], steps=10)


def test_each_task_can_be_solved() -> None:
    rollouts = Rollouts(REFERENCE)
    for split in ("train", "test"):
        for number, task in enumerate(rollouts.tasks(split).tasks):
            with rollouts.open(split=split, task=number) as episode:
                for tool, arguments in SOLUTIONS[task.id]:
                    episode.call(tool, arguments)
                assert episode.finish() == 1.0, task.id


def test_what_is_not_there_cannot_be_taken_and_earns_nothing() -> None:
    with Rollouts(REFERENCE).open(split="train", task=0) as episode:
        assert episode.call("take", {"name": "apple", "count": 6}).is_error
        assert episode.finish() == 0.0
