"""The agents that people use, as they are installed, with a scripted policy behind the model's address."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from harness import RunningGateway, running
from node_clients import executable
from patience import patient
from scripted_policy import ScriptedPolicy, Serve, catches, names_of

from envport import Client
from envport.blocks import text_of
from envport.registry import load
from envport_bridges.agents.model.endpoint import ModelEndpoint
from envport_bridges.agents.model.sessions import ModelSession

Started = tuple[list[str], dict[str, str]]
"""The words of a command, and its environment variables."""
Agent = Callable[[ModelEndpoint, str, str], Started]


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(load("catch")) as gateway:
        yield gateway


def run(words: list[str], folder: Path, variables: Mapping[str, str]) -> str:
    """Run an agent to its end, in a home of its own. What it printed."""
    home = folder / "home"
    home.mkdir()
    (work := folder / "work").mkdir()
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    path = os.pathsep.join([str(Path(words[0]).parent), os.environ["PATH"]])
    done = subprocess.run(
        words,
        cwd=work,
        env={**kept, "HOME": str(home), "PATH": path, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patient(90),
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def played(gateway: RunningGateway, serve: Serve, folder: Path, agent: Agent) -> tuple[ModelSession, ScriptedPolicy]:
    """Let an agent play one episode of catch to its end."""
    endpoint, policy = serve(catches)
    session = endpoint.open_session(max_calls=50)
    with Client(gateway.url) as control:
        episode = control.open("catch", seed=3)
        words, variables = agent(endpoint, session.token, episode.mcp_url)
        (board,) = map(text_of, episode.observation.content)
        printed = run([word.replace("{prompt}", f"Play. {board}") for word in words], folder, variables)
        info = control.finish(episode.episode_id)
    assert (info.steps, info.errors, info.reward) == (9, 0, 1.0), printed
    return session, policy


def assert_one_conversation(policy: ScriptedPolicy, tool: str) -> None:
    """Each request of the work extends the one before by the reply, and by what the tool returned."""
    (work,) = [one for one in policy.conversations() if tool in names_of(one[0][0])]
    assert len(work) == 10
    for (before, reply), (request, _) in pairwise(work):
        (call,) = reply.tool_calls
        added = request.messages[len(before.messages) + 1 :]
        assert [(one["role"], one.get("tool_call_id"), one.get("name")) for one in added] == [("tool", call.id, tool)]


def claude_code(endpoint: ModelEndpoint, token: str, mcp_url: str) -> Started:
    claude = executable("@anthropic-ai/claude-code", "claude")
    server = json.dumps({"mcpServers": {"envport": {"type": "http", "url": mcp_url}}})
    words = ["-p", "{prompt}", "--mcp-config", server, "--strict-mcp-config", "--allowedTools", "mcp__envport"]
    return [str(claude), *words], {
        "ANTHROPIC_BASE_URL": endpoint.anthropic_url,
        "ANTHROPIC_API_KEY": token,
        "ENABLE_TOOL_SEARCH": "false",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def codex(endpoint: ModelEndpoint, token: str, mcp_url: str) -> Started:
    provider = f'{{name="policy",base_url="{endpoint.openai_url}",env_key="MODEL_TOKEN",wire_api="responses"}}'
    settings = [
        "model=policy",
        "model_provider=policy",
        f"model_providers.policy={provider}",
        f'mcp_servers.envport={{url="{mcp_url}"}}',
    ]
    words = [word for setting in settings for word in ("-c", setting)]
    program = str(executable("@openai/codex", "codex"))
    return [program, "exec", "--skip-git-repo-check", *words, "{prompt}"], {"MODEL_TOKEN": token}


def opencode(endpoint: ModelEndpoint, token: str, mcp_url: str) -> Started:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": endpoint.openai_url, "apiKey": token},
        "models": {"policy": {}},
    }
    settings = {
        "model": "policy/policy",
        "provider": {"policy": provider},
        "mcp": {"envport": {"type": "remote", "url": mcp_url}},
    }
    program = str(executable("opencode-ai", "opencode"))
    return [program, "run", "{prompt}"], {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }


def test_claude_code_plays_in_one_conversation(gateway: RunningGateway, serve: Serve, tmp_path: Path):
    session, policy = played(gateway, serve, tmp_path, claude_code)
    assert_one_conversation(policy, "mcp__envport__move")
    assert session.refused == {}
    assert session.ignored == {"context_management": 10, "output_config.effort": 10}


def test_codex_plays_in_one_conversation(gateway: RunningGateway, serve: Serve, tmp_path: Path):
    session, policy = played(gateway, serve, tmp_path, codex)
    assert_one_conversation(policy, "mcp__envport__move")
    assert session.refused == {}
    assert session.ignored == {"reasoning": 10, "tools.web_search": 10}


@pytest.mark.slow  # six seconds of CPU time
def test_opencode_plays_in_one_conversation_beside_that_of_the_title(
    gateway: RunningGateway, serve: Serve, tmp_path: Path
):
    session, policy = played(gateway, serve, tmp_path, opencode)
    assert_one_conversation(policy, "envport_move")
    assert sorted(len(one[0][0].tools) > 0 for one in policy.conversations()) == [False, True]
    assert session.refused == {}
