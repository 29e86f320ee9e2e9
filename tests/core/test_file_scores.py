"""`score` and `score-seconds` of an `envport.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest
from opening import open_episode

from envport.episodes import Episodes
from envport.errors import ConfigurationError, EnvironmentNotFound
from envport.registry import load
from envport.types import EpisodeInfo

JUDGES = """
import asyncio

from envport import Environment, tool


class Counts(Environment):
    \"\"\"Counts.\"\"\"

    def __init__(self, start: int = 0):
        self.count = start

    def reset(self, *, seed, task):
        return "ready"

    @tool
    def count_on(self) -> str:
        \"\"\"Count.\"\"\"
        self.count += 1
        return str(self.count)

    def final_state(self):
        return {"count": self.count}


def tenfold(*, task, trajectory, final_state):
    return 10.0 * final_state["count"]


async def never(*, task, trajectory, final_state):
    await asyncio.sleep(3600)
"""

FILE = """
[environments.judged]
reference = "./judges.py:Counts"
options = { start = 2 }
score = "./judges.py:tenfold"

[environments.plain]
reference = "./judges.py:Counts"

[environments.slow]
reference = "./judges.py:Counts"
score = "./judges.py:never"
limits = { score-seconds = 0.05 }

[environments.lost]
reference = "./judges.py:Counts"
score = "./judges.py:nothing"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "judges.py").write_text(JUDGES)
    (tmp_path / "envport.toml").write_text(FILE)
    return tmp_path / "envport.toml"


async def ended(reference: str, score: str | None = None) -> EpisodeInfo:
    spec = load(reference, score=score)
    table = Episodes({spec.name: spec})
    async with table.run():
        episode = await open_episode(table, spec.name)
        await episode.call("count_on", {})
        return await table.finish(episode.handle, episode.principal)


async def test_the_score_of_a_file_is_the_reward(file: Path):
    info = await ended(f"{file}:judged")
    assert (info.reward, info.outcome is not None and info.outcome.fault) == (30.0, None)
    assert load(f"{file}:judged").scored
    assert not load(f"{file}:plain").scored


async def test_a_score_on_the_command_line_scores_what_has_none(file: Path):
    assert (await ended(f"{file}:plain", f"{file.parent}/judges.py:tenfold")).reward == 10.0


async def test_a_score_that_exceeds_the_limit_of_the_file_is_a_fault(file: Path):
    info = await ended(f"{file}:slow")
    assert info.outcome is not None
    assert (info.status, info.outcome.reason, info.reward) == ("failed", "deadline", None)
    assert "0.05 s" in info.outcome.message


def test_a_score_that_is_not_there_is_said_when_the_environment_is_loaded(file: Path):
    with pytest.raises((ConfigurationError, EnvironmentNotFound), match="nothing"):
        load(f"{file}:lost")


@pytest.mark.parametrize("seconds", ["-1", '"soon"', "0", "true", "nan"])
def test_a_score_limit_that_is_none_is_refused(file: Path, seconds: str):
    file.write_text(FILE.replace("0.05", seconds))
    with pytest.raises(ConfigurationError, match="score-seconds"):
        load(f"{file}:slow")
