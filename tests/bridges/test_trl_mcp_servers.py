"""GRPO on MCP servers: the scheme in one word, its options as keyword arguments, and faults that are not rewards."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest
import upstream_server
from bubblewrap import needs_bubblewrap
from test_trl_training import DONE, logged, train
from tiny_model import calls

from envport.errors import ConfigurationError, InvalidOption
from envport_bridges.trl import EnvironmentSpec

SERVER = f'mcp:"{{python}} {upstream_server.__file__} --tools write,die"'


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    file = tmp_path / "tasks.toml"
    file.write_text('[[tasks]]\nprompt = "Write yes to a."\nscore = { files = { a = "yes" } }\n')
    return file


@needs_bubblewrap
def test_a_server_trains_and_its_death_is_left_out(tmp_path: Path, tasks: Path):
    spec = EnvironmentSpec(SERVER, tasks=tasks, indices=[0, 0])
    listed = [tool for tool in upstream_server.Server("", [], False).listing() if tool["name"] in ("write", "die")]
    shown = [dict(getattr(spec.environment_factory(), tool["name"])) for tool in listed]
    assert [tool["function"]["parameters"] for tool in shown] == [tool["inputSchema"] for tool in listed]
    rollouts = count()

    def script(text: str, turn: int) -> str:
        if turn:
            return DONE
        number = next(rollouts)
        if number == 3:
            return calls(("die", "{}"))
        return calls(("write", json.dumps({"path": "a", "text": "yes" if number == 0 else "no"})))

    trainer = train(tmp_path, spec, script)
    # One of the seven that are left wrote what was asked for.
    assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx(1 / 7)]
    assert logged(trainer, "envport/lost_episodes") == [1 / 8]


def test_options_are_checked_and_are_the_gateway_s_at_a_gateway():
    with pytest.raises(InvalidOption, match="has no option 'cols'; its options are: rows"):
        _ = EnvironmentSpec("catch", cols=3).info
    assert EnvironmentSpec("catch", rows=5).info.name == "catch"
    with pytest.raises(InvalidOption, match="given twice"):
        _ = EnvironmentSpec("catch?rows=5", rows=6).info
    with pytest.raises(ConfigurationError, match="which has its options already: rows cannot be given"):
        EnvironmentSpec("http://127.0.0.1:1/environments/catch", rows=5)
