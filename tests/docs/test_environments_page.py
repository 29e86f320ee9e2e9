"""The page about writing environments: its blocks are run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command_line import envport
from documents import block, blocks_in
from opening import open_episode
from runtimes import serving

from envport.checker import examine
from envport.registry import load

PAGE = "envs/README.md"
GUESS, PAINT = blocks_in(PAGE, "python")


@pytest.fixture
def guess(tmp_path: Path) -> Path:
    (tmp_path / "guess.py").write_text(GUESS)
    return tmp_path


def test_the_environment_has_under_25_lines():
    assert len(GUESS.splitlines()) < 25


def test_the_environment_is_checked_and_played_as_the_page_says(guess: Path):
    check, serve, play = block(PAGE, "envport check ./guess.py:Guess").splitlines()
    assert serve == "envport serve ./guess.py:Guess"
    done = envport(*shlex.split(check)[1:], cwd=guess)
    assert done.returncode == 0, done.stderr + done.stdout
    done = envport(*shlex.split(play)[1:], "--seed", "3", cwd=guess, stdin="50\n" * 7)
    assert done.returncode == 0, done.stderr
    assert "I have a number in mind." in done.stdout
    assert done.stdout.count("Too high.") == 7
    assert "It was truncated at its limit of 7 steps." in done.stdout


async def test_the_environment_with_tasks_has_their_tools_prompts_and_scores(tmp_path: Path):
    (tmp_path / "paint.py").write_text(PAINT)
    spec = load(f"{tmp_path}/paint.py:Paint")
    report = await examine(spec)
    assert report.findings == []
    async with serving(spec) as episodes:
        for number, (answer, names) in enumerate([("red", ["name"]), ("blue", ["hint", "name"])]):
            episode = await open_episode(episodes, "paint", task=number)
            assert [it["name"] for it in episode.start.tools.listing] == names
            assert [block["type"] for block in episode.first_observation.content] == ["text", "image"]
            await episode.call("name", {"colour": answer})
            await episode.finish()
            assert episode.info().reward == 1.0
