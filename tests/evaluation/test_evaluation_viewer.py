"""Inspect's viewer shows what policies and agents called, as it shows the calls of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bubblewrap import needs_bubblewrap
from evaluating import CONTROL, address, evaluate, secured
from harness import RunningGateway
from inspect_ai.event import ToolEvent
from inspect_ai.log import EvalLog, read_eval_log

from envport.registry import load

AGENT = Path(__file__).parents[2] / "examples" / "evaluate_catch" / "agent.py"
POLICY = """
LEFT, STAY = ("move", {"direction": "left"}), ("move", {"direction": "stay"})
CALLS = [LEFT, ("move", {"direction": "up"}), ("fly", {"to": (1, 2)}), STAY]


def policy(view):
    return CALLS[len(view.history)] if len(view.history) < len(CALLS) else None


async def waiting(view):
    if view.history:
        import anyio

        await anyio.sleep_forever()
    return CALLS[0]
"""


@pytest.fixture(scope="module")
def gateway() -> Any:
    with secured(load("catch")) as serving:
        yield serving


@pytest.fixture(autouse=True)
def policies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENVPORT_TOKEN", CONTROL)
    (tmp_path / "policies.py").write_text(POLICY)


def events(log: EvalLog) -> list[ToolEvent]:
    """The calls that the viewer reads from the log's file."""
    (sample,) = read_eval_log(log.location, resolve_attachments=True).samples or []
    return [event for event in sample.events if isinstance(event, ToolEvent)]


def text(event: ToolEvent) -> str:
    assert isinstance(event.result, list)
    return "\n".join(part.text for part in event.result if part.type == "text")


def test_a_policy_s_calls_are_shown_with_their_answers(gateway: RunningGateway):
    found = events(evaluate(address(gateway, "catch"), policy="./policies.py:policy", num_tasks=1))
    assert [(event.function, event.arguments) for event in found] == [
        ("move", {"direction": "left"}),
        ("move", {"direction": "up"}),
        ("fly", {"to": [1, 2]}),
        ("move", {"direction": "stay"}),
    ]
    assert [event.error is not None for event in found] == [False, True, True, False]
    assert "Argument 'direction' is \"up\"" in (found[1].error.message if found[1].error else "")
    assert "Ball in column" in text(found[0])
    assert len({event.id for event in found}) == 4
    assert all(event.completed is not None and event.timestamp <= event.completed for event in found)


@needs_bubblewrap
def test_an_agent_s_calls_are_shown(gateway: RunningGateway):
    agent = f"{{python}} {AGENT} {{mcp_url}}"
    found = events(evaluate(address(gateway, "catch"), agent=agent, split="test", num_tasks=1))
    assert [event.function for event in found] == ["move"] * 9
    assert all("direction" in event.arguments for event in found)
    assert "reward" not in str([event.model_dump() for event in found])


def test_a_player_that_is_stopped_has_its_calls_shown(gateway: RunningGateway):
    log = evaluate(address(gateway, "catch"), policy="./policies.py:waiting", num_tasks=1, limits={"time_limit": 2})
    assert [event.function for event in events(log)] == ["move"]
