"""Both clients of `openreward` play our environments: synchronous and asynchronous, with the URL changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import RunningGateway, running
from ors_player import OrsPlayer, shared_player

from envport.registry import load
from envport_bridges.ors import ors_root_surface
from envport_bridges.rollouts import Rollouts

PAGE = Path(__file__).parents[2] / "bridges/envport_bridges/ors/README.md"
MOVES = ["left", "left", "right", "right", "right", "stay", "right", "left", "right"]


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(load("echo"), load("catch"), root_surface=ors_root_surface) as serving:
        yield serving


@pytest.fixture(scope="module")
def player() -> OrsPlayer:
    return shared_player()


def test_the_page_s_program_plays(gateway: RunningGateway, player: OrsPlayer) -> None:
    source = PAGE.read_text().split("```python\n")[1].split("```")[0]
    printed = player.ask("run", url=gateway.url, source=source)
    assert "Ball in column" in printed
    assert printed.splitlines()[-1] in ("1.0", "-1.0")


def test_each_client_sees_what_every_other_way_shows(gateway: RunningGateway, player: OrsPlayer) -> None:
    where = {"url": gateway.url, "name": "catch", "split": "train", "index": 5}
    calls = [("move", {"direction": move}) for move in MOVES]
    asynchronous = player.ask("asynchronous", calls=calls, **where)
    with player.session(**where) as seat:
        outputs = [seat.call(name, **arguments) for name, arguments in calls]
        assert asynchronous == {"prompt": seat.opened["prompt"], "outputs": outputs}
    with Rollouts("catch").open(split="train", task=5, seed=5) as rollout:
        assert seat.text == f"{rollout.prompt}\n\n{rollout.observation.text}"
        for output, (name, arguments) in zip(outputs, calls, strict=True):
            assert [block["text"] for block in output["blocks"]] == [rollout.call(name, arguments).content[0]["text"]]
        assert [output["reward"] for output in outputs] == [None] * 8 + [rollout.finish()]
