"""Every built-in environment keeps the contract that its users are held to."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from envport.checker import check_environment
from envport.classes import installed
from envport.registry import load

NEEDS = {"wordle": "textarena", "catch?render=image": "PIL", "catch?render=both": "PIL"}
# The others' own process is looked at by `make catalogue`: importing what they need takes seconds.
ELSEWHERE = ("catch", "maze", "showcase")
REFERENCES = [
    *(
        name
        for name, point in installed().items()
        # These take longer, and have tests of their own.
        if point.module.startswith("envport_envs.") and name not in ("sqlite", "workspace")
    ),
    "catch?rows=2&columns=2",
    pytest.param("catch?rows=100&columns=7", marks=pytest.mark.slow),
    "catch?render=image",
    pytest.param("catch?render=both", marks=pytest.mark.slow),
    "wordle?guesses=1",
    "sudoku?size=4&blanks=6",
    pytest.param("sudoku?blanks=55", marks=pytest.mark.slow),
    "maze?rows=3&columns=20",
    "maze?rows=3&columns=3&spare=8&render=words",
]


@pytest.mark.parametrize("reference", REFERENCES)
def test_it_passes_the_checker_without_a_warning(reference: str) -> None:
    needed = NEEDS.get(reference) or NEEDS.get(reference.partition("?")[0])
    if needed is not None and reference != "catch" and find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    report = check_environment(reference, seeds=range(10), steps=40, another_process=reference in ELSEWHERE)
    # How long a call took is the machine's affair here.
    assert [finding for finding in report.findings if finding.check != "runtime"] == []


@pytest.mark.parametrize("name", ["catch", "counter", "echo", "maze", "sudoku", "wordle"])
def test_what_only_plays_is_told_to_change_nothing_else(name: str) -> None:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    for tool in load(name).tools.values():
        hints = tool.hints
        assert hints.open_world is False
        assert hints.read_only or (hints.destructive is False and not hints.idempotent)
