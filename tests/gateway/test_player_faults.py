"""An episode that its player broke: what the player, the control plane and the metrics say of it."""

import httpx2
import pytest
from bubblewrap import needs_bubblewrap
from harness import ERAS, Era, connect, running
from player_environments import Hasty

from envport import AsyncClient
from envport.registry import EnvironmentDefinition

HASTY = EnvironmentDefinition("hasty", Hasty)

pytestmark = needs_bubblewrap


@pytest.mark.parametrize("era", ERAS)
async def test_an_episode_that_its_player_broke_has_failed_and_is_not_lost(era: Era):
    with running(HASTY) as gateway:
        async with AsyncClient(gateway.url) as control:
            opened = await control.open("hasty", reward_in_meta=True)
            async with connect(opened.mcp_url, era) as client:
                await client.call_tool("earn", {})
                broken = await client.call_tool("run", {"code": "import time; time.sleep(1000)", "timeout": 1000.0})
                after = await client.call_tool("run", {"code": "pass"})
            state = await control.episode(opened.episode_id)
            steps = (await control.trajectory(opened.episode_id)).steps
        metrics = httpx2.get(f"{gateway.url}/metrics").text
    assert broken.is_error
    assert "The code that you had run was the cause" in broken.content[0].text
    # A client that knows no owners takes it for an episode that is over, and not for one to leave out.
    told = {"envport/outcome": "deadline", "envport/fault": "player"}
    assert broken.meta is not None
    assert {key: broken.meta.get(key) for key in told} == told
    assert not broken.meta.keys() & {"envport/error", "envport/infrastructure"}
    assert after.meta is not None
    assert (after.meta["envport/error"], after.meta["envport/fault"]) == ("episode_over", "player")
    assert state.outcome is not None
    assert (state.status, state.outcome.reason, state.outcome.fault) == ("failed", "deadline", "player")
    assert "counts as a failure of the player" in state.outcome.message
    assert (state.reward, state.rewards, state.steps) == (1.5, [1.5, None], 2)
    assert [step.error for step in steps] == [None, "tool_error"]
    assert 'fault="player",reason="deadline",status="failed"} 1.0' in metrics
