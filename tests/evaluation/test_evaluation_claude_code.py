"""A real agent program as it is installed: Claude Code, with a scripted model behind it instead of an account."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bubblewrap import needs_bubblewrap
from evaluating import CONTROL, address, result_of, secured
from node_clients import executable
from patience import patient
from scripted_policy import ScriptedPolicy, catches

from envport.registry import load
from envport_bridges.agents.model.endpoint import ModelEndpoint


@needs_bubblewrap
def test_claude_code_is_evaluated_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    claude = executable("@anthropic-ai/claude-code", "claude")
    with ModelEndpoint(ScriptedPolicy(catches)) as endpoint, secured(load("catch")) as gateway:
        settings = {
            "ENVPORT_TOKEN": CONTROL,
            "HOME": str(tmp_path),
            "PATH": os.pathsep.join([str(claude.parent), os.environ["PATH"]]),
            "ANTHROPIC_BASE_URL": endpoint.anthropic_url,
            "ANTHROPIC_API_KEY": endpoint.open_session(max_calls=20).token,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        env = address(gateway, "catch")
        result = result_of(env, agent="claude-code", split="test", num_tasks=1, agent_seconds=patient(60))
    assert result.lost == ()
    assert [(one.reward, one.steps, one.tool_errors) for one in result.played] == [(1.0, 9, 0)]
    assert {one.stopped for one in result.played} == {"the agent exited with 0"}
