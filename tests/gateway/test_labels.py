"""Labels of episodes: who sets them, where they are seen, and how episodes are found by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from command_line import Served
from harness import RunningGateway, connect, running

from envport import AsyncClient, Client
from envport.errors import EnvportError, InvalidRequest
from envport.registry import load
from envport_bridges.rollouts import Rollouts, RolloutTarget


@pytest.fixture(scope="module")
def labelled() -> Iterator[RunningGateway]:
    with running(load("counter"), load("catch")) as gateway:
        yield gateway


def test_episodes_are_found_by_their_labels_the_newest_first(labelled: RunningGateway):
    with Client(labelled.url) as control:
        ids = [control.open("counter", labels={"run": "one", "sample": str(number)}).episode_id for number in range(3)]
        other = control.open("counter", labels={"run": "two", "note": "a=b é"})
        control.close_episode(ids[0])
        found = control.episodes(labels={"run": "one"})
        assert [it.episode_id for it in found] == ids[::-1]
        assert found[-1].status == "closed"
        assert [it.episode_id for it in control.episodes(labels={"run": "one"}, limit=1)] == ids[2:]
        assert [it.labels["sample"] for it in control.episodes(labels={"run": "one", "sample": "1"})] == ["1"]
        assert control.episodes(labels={"run": "three"}) == []
        assert control.episodes(labels={"note": "a=b é"})[0].episode_id == other.episode_id
        assert {it.episode_id for it in control.episodes()} >= {*ids, other.episode_id}
        assert control.trajectory(other.episode_id).episode.labels == {"run": "two", "note": "a=b é"}


async def test_the_player_never_sees_them(labelled: RunningGateway):
    async with AsyncClient(labelled.url) as control:
        opened = await control.open("counter", labels={"run": "only-for-trainers"}, reward_in_meta=True)
    async with connect(opened.mcp_url, "modern") as client:
        said = f"{await client.list_tools()} {await client.call_tool('count', {})} {client.instructions}"
    assert "only-for-trainers" not in said + opened.model_dump_json()


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        ({f"l{number}": "x" for number in range(17)}, "17 labels are given; allowed: at most 16"),
        ({"a b": "x"}, "'a b' cannot name a label: use letters"),
        ({"n" * 65: "x"}, "cannot name a label"),
        ({"run": "x" * 129}, "label 'run' has to be text of 1 to 128 characters"),
        ({"run": ""}, "label 'run' has to be text of 1 to 128"),
        ({"run": "two\nlines"}, "it has to be printable"),
        ({"run": 3}, "labels 'run': Input should be a valid string"),
    ],
)
def test_they_are_bounded(labelled: RunningGateway, labels: dict[str, str], complaint: str):
    with Client(labelled.url) as control, pytest.raises(InvalidRequest, match=complaint):
        control.open("counter", labels=labels)


@pytest.mark.parametrize("label", ["run", "=x&label==y", "run=a&label=run=b"])
def test_a_filter_that_cannot_be_read_is_refused(labelled: RunningGateway, label: str):
    answer = httpx2.get(f"{labelled.url}/episodes?label={label}")
    assert answer.status_code == 422
    assert "has to be NAME=VALUE, with each NAME once" in answer.text


def test_log_lines_have_them_and_metrics_do_not():
    with Served("counter", "--log-format", "json") as served:
        with Client(served.url) as control:
            opened = control.open("counter", labels={"run": "seventeen"})
            control.close_episode(opened.episode_id)
        assert "seventeen" not in httpx2.get(f"{served.url}/metrics").text
        lines = [json.loads(line) for line in served.log.splitlines()]
    (ended,) = [line for line in lines if line.get("episode_id") == opened.episode_id]
    assert ended["labels"] == {"run": "seventeen"}


def test_a_broken_environment_s_line_has_them(tmp_path: Path):
    (tmp_path / "own.py").write_text(
        "from envport import Environment, tool\n\n\nclass Own(Environment):\n"
        "    def reset(self, *, seed, task): ...\n\n    @tool\n    def crash(self) -> str:\n        raise OSError\n"
    )
    with Served("./own.py:Own", "--log-format", "json", cwd=tmp_path) as served:
        target = RolloutTarget(f"{served.url}/environments/own", labels=(("run", "mine"),))
        with Rollouts(target).open(seed=4) as rollout, pytest.raises(EnvportError):
            rollout.call("crash", {})
        lines = [json.loads(line) for line in served.log.splitlines()]
    assert [line["labels"] for line in lines if line["level"] == "error"] == [
        {"group": "seed=4", "sample": "0", "run": "mine"}
    ]
