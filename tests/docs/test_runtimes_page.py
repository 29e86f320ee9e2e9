"""The page on where environments run: its environments run."""

from __future__ import annotations

from pathlib import Path

from bubblewrap import needs_bubblewrap
from documents import blocks_in
from opening import open_episode
from runtimes import play, serving

from envport.checker import check_environment
from envport.registry import load

RISKY, SHOP = blocks_in("gateway/envport/runtimes/README.md", "python")


@needs_bubblewrap
async def test_the_environment_that_runs_its_players_code_takes_a_crash_for_an_observation(tmp_path: Path):
    (tmp_path / "risky.py").write_text(RISKY)
    async with serving(load(f"{tmp_path}/risky.py:Risky")) as episodes:
        episode = await open_episode(episodes, "risky")
        assert "ZeroDivisionError" in await play(episode, "run", code="1 / 0")
        assert "SIGKILL" in await play(episode, "run", code="import os; os.kill(os.getpid(), 9)")
        assert episode.outcome is None
        assert (await episode.call("submit", {"code": "print(101)"})).reward == 1.0


def test_the_environment_that_is_prepared_has_what_was_prepared(tmp_path: Path):
    (tmp_path / "shop.py").write_text(SHOP)
    spec = load(f"{tmp_path}/shop.py:Shop")
    assert check_environment(spec).ok
