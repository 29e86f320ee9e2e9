"""Progress of defined tools, and refusals with content, in each runtime."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from harness import ERAS, Era, RunningGateway, running, seat, texts
from telling_environments import PNG, Telling, TellingByTask

from envport.registry import EnvironmentDefinition

TELLING = EnvironmentDefinition("telling", Telling)
BY_TASK = EnvironmentDefinition("by_task", TellingByTask)


@pytest.fixture(scope="module", params=["inline", "thread", "process"])
def gateway(request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    with running(TELLING, BY_TASK, runtime=request.param) as serving:
        yield serving


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["telling", "by_task"])
async def test_a_defined_tool_reports_progress(gateway: RunningGateway, era: Era, name: str):
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with seat(gateway, "episode", era, name) as player:
        loud = await player.call("toil", {"steps": 3}, progress_callback=hear)
        silent = await player.call("toil", {"steps": 2})
    assert heard == [1, 2, 3]
    assert texts(loud) == ["toil {'steps': 3}"]
    assert texts(silent) == ["toil {'steps': 2}"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_shows_its_content_after_its_message(gateway: RunningGateway, era: Era):
    async with seat(gateway, "episode", era, "telling") as player:
        refused = await player.call("refuse")
        assert refused.is_error
        kinds: list[Any] = [block.type for block in refused.content]
        assert kinds == ["text", "image", "text"]
        assert texts(refused) == ["The door is locked.", "See the lock?"]
        assert base64.b64decode(refused.content[1].data) == PNG
        # The episode goes on.
        assert texts(await player.call("toil", {"steps": 0})) == ["toil {'steps': 0}"]


async def test_content_that_nobody_can_be_shown_is_a_fault(gateway: RunningGateway, caplog: pytest.LogCaptureFixture):
    async with seat(gateway, "episode", "modern", "telling") as player:
        failed = await player.call("refuse_badly")
    assert failed.meta["envport/error"] == "episode_failed"
    assert "an observation cannot be a object" in caplog.text
