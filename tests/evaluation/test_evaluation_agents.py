"""Whole agents: started, bounded, scored, and gone; and what they cannot reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from bubblewrap import needs_bubblewrap
from evaluating import CONTROL, address, evaluate, result_of, secured
from harness import RunningGateway
from inspect_ai.log import EvalLog
from patience import patient
from slow import slow
from wire import recording

from envport import Environment, Step, Task, tool
from envport.client import Client
from envport.registry import EnvironmentDefinition, load
from envport_bridges.agents.programs.agents import PRESETS, Agent
from envport_bridges.agents.programs.missions import Mission
from envport_bridges.agents.programs.rooms import Rooms
from envport_bridges.evaluation.results import Result

EXAMPLE = Path(__file__).parents[2] / "examples" / "evaluate_catch"
sys.path.insert(0, str(EXAMPLE))

from agent import play  # noqa: E402

AGENT = EXAMPLE / "agent.py"
pytestmark = needs_bubblewrap

ROGUE = Path(__file__).with_name("rogue.py")
GOOD = f"{{python}} {AGENT} {{mcp_url}}"
# Values that stand in no other place than a reward.
FIRST, SECOND = 0.123456789, 0.5432198765


class Telltale(Environment):
    """Gives rewards that cannot be mistaken."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._steps = 0
        return "Ball in column 1, paddle in column 1"

    @tool
    def move(self, direction: str) -> Step[str]:
        """Move."""
        self._steps += 1
        over = self._steps == 2
        return Step("Ball in column 1, paddle in column 1", reward=SECOND if over else FIRST, terminated=over)


@pytest.fixture(scope="module")
def gateway() -> Any:
    with secured(load("catch"), EnvironmentDefinition("telltale", Telltale, {})) as serving:
        yield serving


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVPORT_TOKEN", CONTROL)


def rogue(gateway: RunningGateway, *words: str, **options: Any) -> EvalLog:
    command = " ".join(["{python}", str(ROGUE), *words])
    return evaluate(address(gateway, "catch"), agent=command, num_tasks=1, **options)


def said(log: EvalLog) -> str:
    assert log.samples
    return log.samples[0].output.completion


def test_an_agent_that_speaks_mcp_is_scored(gateway: RunningGateway):
    result = result_of(address(gateway, "catch"), agent=GOOD, split="test", num_tasks=1)
    assert [one.reward for one in result.played] == [1.0]
    assert {one.stopped for one in result.played} == {"the agent exited with 0"}
    assert result.player == "agent {python} agent.py {mcp_url}"


def test_the_plain_client_plays(gateway: RunningGateway):
    (played,) = result_of(address(gateway, "catch"), agent="mcp", num_tasks=1).played
    assert (played.outcome, played.steps) == ("terminated", 9)


@pytest.mark.slow
def test_an_environment_started_in_place_is_evaluated():
    result = result_of("catch?rows=3", agent=GOOD, split="test", num_tasks=2)
    assert [one.steps for one in result.played] == [2, 2]
    assert result.identity.options == {"rows": 3}


@pytest.mark.parametrize(
    ("mode", "stopped"), [("ignore", "the agent exited with 0"), ("fail", "the agent exited with 3")]
)
def test_an_agent_that_does_not_play_is_scored_with_a_reason(gateway: RunningGateway, mode: str, stopped: str):
    log = rogue(gateway, mode)
    (played,) = Result.of(log).played
    assert (played.stopped, played.steps, played.reward) == (stopped, 0, 0.0)
    assert said(log) in ("I know better than to use tools.\n", "something is wrong\n")


def test_an_agent_that_hangs_is_stopped(gateway: RunningGateway):
    result = Result.of(rogue(gateway, "hang", agent_seconds=1.5))
    (played,) = result.played
    assert (result.stopped_by_limits, played.reward) == ({"the agent was stopped after 1.5 seconds": 1}, 0.0)
    assert played.seconds < patient(30)


class Fifo:
    """Says when the last process is gone that was given its writing end."""

    def __init__(self, path: Path):
        os.mkfifo(path)
        # Where root runs the tests, an agent in a sandbox is another user.
        path.chmod(0o666)
        self.path = path
        self.read = b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        self.read = self.path.read_bytes()

    def wait_for_the_last(self) -> bool:
        self._thread.join(patient(30))
        return not self._thread.is_alive() and self.read == b"started"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans back to a subreaper")
@pytest.mark.parametrize(
    ("mode", "seconds", "sandbox"),
    [
        ("fork", 30.0, True),
        ("fork", 30.0, False),
        # It has to have started by then.
        ("linger", 1.5, False),
        ("assassin", 30.0, True),
    ],
)
def test_no_process_of_an_agent_is_left_behind(
    gateway: RunningGateway, tmp_path: Path, mode: str, seconds: float, sandbox: bool
):
    fifo = Fifo(tmp_path / "fifo")
    reads = {"sandbox": sandbox, "agent_reads": [str(fifo.path)]}
    result = Result.of(rogue(gateway, mode, str(fifo.path), agent_seconds=patient(seconds), **reads))
    assert len(result.played) == 1
    assert fifo.wait_for_the_last()


RUNNING = """
import asyncio, sys
from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.missions import Mission
from envport_bridges.agents.programs.running import AgentRunner
from envport_bridges.agents.programs.sandbox import AgentSandbox

agent = Agent.named(sys.argv[2])
mission = Mission(sys.argv[1] + "/mcp", "a-token-of-nobody", "Play.")
asyncio.run(AgentRunner(agent, AgentSandbox(agent, sys.argv[3:])).run(mission, 3600))
"""
EVALUATING = """
import sys
from evaluating import evaluate

evaluate(sys.argv[1], agent=sys.argv[2], num_tasks=1, agent_reads=sys.argv[3:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans back to a subreaper")
@pytest.mark.parametrize("source", [RUNNING, *slow([EVALUATING])], ids=["what runs its agents", "whole"])
def test_no_process_of_an_agent_outlives_a_killed_evaluation(source: str, gateway: RunningGateway, tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "fifo").chmod(0o666)
    agent = f"{{python}} {ROGUE} linger {tmp_path / 'fifo'}"
    evaluation = subprocess.Popen(
        [sys.executable, "-c", source, address(gateway, "catch"), agent, str(tmp_path / "fifo")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    # Opens when the agent does, and ends when the last process is gone that had it.
    with (tmp_path / "fifo").open("rb", buffering=0) as pipe:
        assert pipe.read(7) == b"started"
        evaluation.kill()
        evaluation.wait()
        assert pipe.read() == b""


def test_an_agent_cannot_play_a_neighbour_s_episode(gateway: RunningGateway, tmp_path: Path):
    with Client(gateway.url) as control:
        mine = control.open("catch", mint_token=True)
        urls = [
            mine.mcp_url,
            f"{gateway.url}/episodes/ep_of_nobody/mcp",
            f"{gateway.url}/environments/catch/mcp",
            f"{gateway.url}/mcp",
        ]
        (tmp_path / "urls").write_text("\n".join(urls))
        log = rogue(gateway, "neighbour", str(tmp_path / "urls"))
        assert json.loads(said(log)) == [403] * 4
        assert control.episode(mine.episode_id).steps == 0


def test_every_route_of_the_control_plane_refuses_an_agent(gateway: RunningGateway, tmp_path: Path):
    with Client(gateway.url) as control:
        document = control._http.get("/openapi.json").json()
    routes = [(method.upper(), path) for path, item in document["paths"].items() for method in item]
    assert len(routes) > 8
    routes += [("GET", path) for path in ("/openapi.json", "/docs", "/metrics", "/", "/nothing")]
    (tmp_path / "routes").write_text(json.dumps(routes))
    log = rogue(gateway, "control", str(tmp_path / "routes"))
    answers = json.loads(said(log))
    assert len(answers) == len(set(routes))
    assert set(answers.values()) <= {401, 403}, answers
    # Its own attempts to reset or close changed nothing: it is scored as one that did not play.
    (played,) = Result.of(log).played
    assert (played.steps, played.stopped) == (0, "the agent exited with 0")


@pytest.mark.parametrize("in_place", [False, *slow([True])])
def test_an_agent_is_given_neither_reward_nor_the_control_token(
    gateway: RunningGateway, in_place: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=of-the-collector")
    env = "catch" if in_place else address(gateway, "catch")
    log = evaluate(env, agent=f"{{python}} {ROGUE} tell {{prompt}} {{mcp_config}} {{prompt_file}}", num_tasks=1)
    told = json.loads(said(log))
    assert CONTROL not in json.dumps(told)
    assert "of-the-collector" not in json.dumps(told)
    assert {name for name in told["variables"] if name.startswith("ENVPORT_")} == {
        "ENVPORT_MCP_URL",
        "ENVPORT_TOKEN",
        "ENVPORT_PROMPT_FILE",
    }
    assert told["variables"]["ENVPORT_TOKEN"].startswith("epk_")
    assert "Ball in column" in told["words"][2]
    (config,) = [json.loads(text) for name, text in told["files"].items() if name.endswith("mcp.json")]
    assert config["mcpServers"]["envport"]["url"] == told["variables"]["ENVPORT_MCP_URL"]


def test_no_byte_that_an_agent_receives_holds_its_reward(monkeypatch: pytest.MonkeyPatch):
    telltales = [repr(value)[:7].encode() for value in (FIRST, SECOND, FIRST + SECOND)]
    command = f"{{python}} {AGENT} {{mcp_url}}"
    with (
        recording() as proxy,
        secured(EnvironmentDefinition("telltale", Telltale, {}), public_url=proxy.url) as gateway,
    ):
        proxy.port = gateway.port
        (played,) = result_of(address(gateway, "telltale"), agent=command, num_tasks=1).played
        assert played.reward == FIRST + SECOND
        heard = bytes(proxy.sent)
        assert b"Ball in column 1" in heard
        assert b"envport/reward" not in heard
        assert not [value for value in telltales if value in heard]
        # The same bytes of a trainer's episode hold it: the search would find it.
        with Client(gateway.url) as control:
            opened = control.open("telltale", reward_in_meta=True, mint_token=True)
        anyio.run(play, opened.mcp_url, opened.token)
        heard = bytes(proxy.sent)
        assert [value for value in telltales if value in heard] == telltales[:2]


def test_a_command_is_split_before_its_placeholders_are_filled(tmp_path: Path):
    mission = Mission("http://h/episodes/e/mcp", "secret", "say 'hi' {mcp_url}; rm -rf / \"$HOME\"")
    words = Agent.named("{python} -c pass {prompt} --url={mcp_url} {other} '{\"json\": 1}'").words(
        mission, Rooms(tmp_path)
    )
    assert words[3:] == [mission.prompt, f"--url={mission.mcp_url}", "{other}", '{"json": 1}']


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini", "opencode"])
def test_presets_put_the_token_into_files_and_variables_not_into_words(name: str, tmp_path: Path):
    agent = PRESETS[name]
    rooms = Rooms(tmp_path)
    mission = Mission("http://h/episodes/e/mcp", "epk_secret", "Play.")
    agent.brief(mission, rooms)
    assert "epk_secret" not in " ".join(agent.words(mission, rooms))
    assert "Play." in agent.words(mission, rooms)
    assert json.loads(rooms.mcp_config.read_text())["mcpServers"]["envport"]["headers"] == mission.headers
    assert rooms.mcp_config.stat().st_mode & 0o077 == 0
    assert agent.variables(mission, rooms)["ENVPORT_TOKEN"] == "epk_secret"


def test_gemini_may_make_the_same_call_again_and_again(tmp_path: Path):
    PRESETS["gemini"].brief(Mission("http://h/episodes/e/mcp", "epk_secret", "Play."), Rooms(tmp_path))
    settings = json.loads((tmp_path / "work" / ".gemini" / "settings.json").read_text())
    assert settings["model"] == {"disableLoopDetection": True}
    assert settings["mcpServers"]["envport"]["httpUrl"] == "http://h/episodes/e/mcp"
