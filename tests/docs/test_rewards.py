"""The examples of "What a reward means" give what the page says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import Served
from harness import connect, running

from envport import Client
from envport.registry import load

PAGE = Path(__file__).parents[2] / "bridges/envport_bridges/REWARDS.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
SHELF, JUDGED, FINISH, RUBRIC, SERVE = (body for _, body in BLOCKS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shelf.py").write_text(f"{SHELF}\n\n{JUDGED}")
    (tmp_path / "rubric.py").write_text(RUBRIC)
    return tmp_path


async def put_in_order(books: list[str], mcp_url: str) -> list[Mapping[str, Any]]:
    """Sort by swaps; returns what the player is shown of each."""
    shown: list[Mapping[str, Any]] = []
    async with connect(mcp_url, "modern") as player:
        for place in range(len(books)):
            least = min(range(place, len(books)), key=books.__getitem__)
            if least != place:
                books[place], books[least] = books[least], books[place]
                result = await player.call_tool("swap", {"left": place, "right": least})
                shown.append({"text": result.content[0].text, "meta": result.meta or {}})
    return shown


@pytest.mark.parametrize("name", ["Shelf", "JudgedShelf"])
async def test_the_score_is_added_or_is_the_reward(folder: Path, name: str):
    with running(load(f"{folder / 'shelf.py'}:{name}", "shelf")) as gateway, Client(gateway.url) as control:
        assert control.environment("shelf").scored
        episode = control.open("shelf", seed=3, reward_in_meta=True)
        shown = await put_in_order(episode.observation.text.split(), episode.mcp_url)
        told: list[Any] = []
        exec(FINISH, {"control": control, "episode": episode, "print": lambda *words: told.extend(words)})
    moves = -0.1 * len(shown)
    assert shown
    assert told[:2] == ["finished", 1.0]
    assert told[2] == pytest.approx(moves + 1.0 if name == "Shelf" else 1.0)
    # The player is shown the rewards of its steps, as asked for, and never the score.
    assert all(one["meta"]["envport/reward"] == -0.1 for one in shown)


async def test_a_gateway_is_told_how_to_score(folder: Path):
    (line,) = SERVE.splitlines()
    arguments = line.removeprefix("envport serve ").split()
    with Served(*arguments, cwd=folder) as gateway, Client(gateway.url) as control:
        quick, slow = (control.open("shelf", seed=3) for _ in range(2))
        await put_in_order(slow.observation.text.split(), slow.mcp_url)
        states = [control.finish(episode.episode_id) for episode in (quick, slow, slow)]
    assert [state.score for state in states] == [1.0, 1.0 if states[1].steps <= 3 else 0.5, states[1].score]
