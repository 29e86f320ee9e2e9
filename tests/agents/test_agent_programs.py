"""An agent's program: how it is pointed at a model, what it gets of the user, and how long it may take."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import patient

from envport.errors import InvalidOption
from envport_bridges.agents.programs import credentials
from envport_bridges.agents.programs.agents import PRESETS, PRESETS_WITH_MODEL, Agent
from envport_bridges.agents.programs.deadlines import Deadline
from envport_bridges.agents.programs.missions import Mission, ModelAccess
from envport_bridges.agents.programs.rooms import Rooms
from envport_bridges.agents.programs.running import AgentRunner

MODEL = ModelAccess("http://127.0.0.1:8001", "session-token")
MISSION = Mission("http://h/episodes/e/mcp", "epk_secret", "Play.", MODEL)
OF_THE_USER = {
    "ANTHROPIC_AUTH_TOKEN": "sk-of-the-user",
    "ANTHROPIC_MODEL": "of-the-user",
    "AWS_SECRET_ACCESS_KEY": "sk-of-the-user",
    "DB_PASS": "sk-of-the-user",
    "GPG_PASSPHRASE": "sk-of-the-user",
    "PGPASSWORD": "sk-of-the-user",
    "STORE_CREDS": "sk-of-the-user",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "DATABASE_URL": "postgres://me:sk-of-the-user@host/base",
    "ENVPORT_TOKEN": "sk-of-the-control-plane",
    "GITHUB_PAT": "sk-of-the-user",
    "HF_TOKEN": "sk-of-the-user",
    "MISTRAL_API_KEY": "sk-of-the-user",
    "OPENAI_API_KEY": "sk-of-the-user",
    "OPENAI_ORG_ID": "sk-of-the-user",
    "SSH_AUTH_SOCK": "sk-of-the-user",
    "some_password": "sk-of-the-user",
}
HARMLESS = {
    "LANG": "C.UTF-8",
    "MY_MODE": "fast",
    "BYPASS": "1",
    "PYTHONKEYS": "1",
    "SSL_CERT_FILE": "/c.pem",
    "REPOSITORY": "ssh://g@h/r",
}
TELL = "import json, os; print(json.dumps(dict(os.environ)))"
LONG = "a.b" * 200


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (OF_THE_USER | HARMLESS).items():
        monkeypatch.setenv(name, value)


def told(agent: Agent, mission: Mission) -> dict[str, str]:
    ended = asyncio.run(AgentRunner(agent).run(mission, patient(60)))
    assert (ended.code, ended.broke) == (0, None), ended
    return json.loads(ended.output)


def test_an_agent_that_is_given_a_model_has_two_tokens_and_no_key_of_the_user():
    agent = Agent.named(f'{{python}} -c "{TELL}" {{model_url}}', given_model=True)
    variables = told(agent, MISSION)
    assert "of-the" not in json.dumps(variables)
    assert {name: value for name, value in variables.items() if value in (MODEL.token, MISSION.token)} == {
        "ENVPORT_TOKEN": "epk_secret",
        "ANTHROPIC_API_KEY": "session-token",
        "OPENAI_API_KEY": "session-token",
        "ENVPORT_MODEL_TOKEN": "session-token",
    }
    assert variables["OPENAI_BASE_URL"] == variables["ENVPORT_MODEL_URL"] == "http://127.0.0.1:8001/v1"
    assert (variables["ANTHROPIC_BASE_URL"], variables["ENVPORT_MODEL"]) == ("http://127.0.0.1:8001", "policy")
    assert {name: variables.get(name) for name in HARMLESS} == HARMLESS
    assert variables["PWD"]


def test_the_page_says_which_variables_an_agent_has_of_us_and_which_it_has_not_of_the_user(tmp_path: Path):
    page = (Path(__file__).parents[2] / "bridges/envport_bridges/agents/README.md").read_text("utf-8")
    agent = Agent.named("{python}", given_model=True)
    own = agent.variables(MISSION, Rooms(tmp_path)).keys() - agent.shared_variables().keys()
    rule = {*credentials._PROVIDERS, *credentials._WORDS, *credentials._ENDINGS, *credentials._FOLDERS}
    assert {name for name in own | rule if f"`{name}`" not in page} == set()


def test_an_agent_that_is_given_no_model_keeps_the_user_s_keys():
    variables = told(Agent.named(f'{{python}} -c "{TELL}"'), Mission("http://h/episodes/e/mcp", "epk_secret", "Play."))
    assert variables["OPENAI_API_KEY"] == "sk-of-the-user"
    assert variables["ENVPORT_TOKEN"] == "epk_secret"
    assert "OPENAI_BASE_URL" not in variables
    assert not [name for name in variables if name.startswith("ENVPORT_MODEL")]


def test_a_command_names_the_model_s_address(tmp_path: Path):
    agent = Agent.named("{python} --url={model_url}", given_model=True)
    assert agent.words(MISSION, Rooms(tmp_path)) == [sys.executable, "--url=http://127.0.0.1:8001/v1"]
    with pytest.raises(InvalidOption, match=r"names \{model_url\}, but it is given no model"):
        Agent.named("{python} --url={model_url}")


@pytest.mark.parametrize("name", ["{model_token}", "{mcp_token}", "{token}"])
def test_a_command_never_names_a_token(name: str):
    with pytest.raises(InvalidOption, match="other programs could read it"):
        Agent.named(f"{{python}} {name}", given_model=True)


def test_gemini_cannot_be_given_a_model():
    with pytest.raises(InvalidOption, match=r"'gemini' cannot be given a model.*claude-code, codex, opencode, mcp"):
        Agent.named("gemini", given_model=True)


@pytest.mark.parametrize("name", sorted(PRESETS_WITH_MODEL))
def test_presets_that_are_given_a_model_take_no_login_along_and_tell_no_token_in_words(name: str, tmp_path: Path):
    agent, rooms = PRESETS_WITH_MODEL[name], Rooms(tmp_path)
    assert agent.home == ()
    agent.brief(MISSION, rooms)
    words = " ".join(agent.words(MISSION, rooms))
    assert "epk_secret" not in words
    assert "session-token" not in words


def test_claude_code_is_pointed_by_variables(tmp_path: Path, programs: None):
    agent = Agent.named("claude-code", given_model=True)
    variables = agent.variables(MISSION, Rooms(tmp_path))
    assert variables["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8001"
    assert variables["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == variables["DISABLE_AUTOUPDATER"] == "1"
    assert variables["ENABLE_TOOL_SEARCH"] == "false"
    assert "ANTHROPIC_AUTH_TOKEN" not in variables


def test_codex_is_pointed_by_options(tmp_path: Path, programs: None):
    words = Agent.named("codex", given_model=True).words(MISSION, Rooms(tmp_path))
    assert words[-1] == "Play."
    assert 'model_provider="envport"' in words
    (provider,) = [word for word in words if word.startswith("model_providers.envport=")]
    assert provider == (
        'model_providers.envport={name="envport", base_url="http://127.0.0.1:8001/v1", '
        'env_key="ENVPORT_MODEL_TOKEN", wire_api="responses"}'
    )


def test_opencode_is_pointed_by_its_settings(tmp_path: Path, programs: None):
    def settings(given: bool) -> dict[str, Any]:
        mission = MISSION if given else Mission(MISSION.mcp_url, MISSION.token, MISSION.prompt)
        variables = Agent.named("opencode", given_model=given).variables(mission, Rooms(tmp_path))
        return json.loads(variables["OPENCODE_CONFIG_CONTENT"])

    pointed, own = settings(True), settings(False)
    assert pointed["provider"]["envport"]["options"] == {"baseURL": MODEL.openai_url, "apiKey": "session-token"}
    assert pointed["model"] == "envport/policy"
    assert pointed["mcp"]["envport"]["url"] == "http://h/episodes/e/mcp"
    assert pointed["mcp"]["envport"]["headers"] == {"Authorization": "Bearer epk_secret"}
    assert own["mcp"] == pointed["mcp"]
    assert "provider" not in own


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every program count as installed."""
    monkeypatch.setattr("shutil.which", lambda program: f"/bin/{program}")


def test_presets_without_a_model_are_the_user_s(programs: None):
    assert Agent.named("claude-code").home == PRESETS["claude-code"].home != ()
    assert Agent.named("codex").command == (
        "codex exec --skip-git-repo-check -c 'mcp_servers.envport.url=\"{mcp_url}\"' "
        "-c 'mcp_servers.envport.bearer_token_env_var=\"ENVPORT_TOKEN\"' '{prompt}'"
    )


def test_seconds_in_which_the_model_writes_do_not_count():
    now = [100.0]
    deadline = Deadline(10.0, clock=lambda: now[0])
    now[0] += 4
    with deadline.paused():
        now[0] += 50
        with deadline.paused():
            now[0] += 50
        now[0] += 50
        assert (deadline.spent(), deadline.left()) == (4, 6)
    now[0] += 5
    assert (deadline.spent(), deadline.left()) == (9, 1)
    now[0] += 5
    assert (deadline.spent(), deadline.left()) == (14, 0)


async def test_a_program_is_stopped_when_its_time_outside_of_pauses_is_used_up(tmp_path: Path):
    now = [0.0]
    deadline = Deadline(0.05, clock=lambda: now[0])
    agent = Agent.named("{python} -c 'import time; time.sleep(3600)'")
    with deadline.paused():
        running = asyncio.create_task(AgentRunner(agent).run(MISSION, deadline))
        now[0] = 1_000.0
        done, _ = await asyncio.wait([running], timeout=0.15)
        assert not done
    now[0] += 0.06
    ended = await running
    assert (ended.code, ended.broke) == (None, None)


async def test_a_program_that_fails_says_how():
    ended = await AgentRunner(Agent.named("{python} -c 'print(5); raise SystemExit(3)'")).run(MISSION, patient(60))
    assert (ended.code, ended.broke) == (3, "exit code 3. The end of its output: 5")


async def test_a_program_that_writes_without_end_fills_no_disk(tmp_path: Path):
    flood = tmp_path / "flood.py"
    flood.write_text("""
import os, sys
for _ in range(32):
    sys.stdout.write("x" * 2**20)
files = [os.path.join(folder, name) for folder, _, names in os.walk("..") for name in names]
print("\\nkept:", sum(os.path.getsize(file) for file in files))
raise SystemExit(1)
""")
    ended = await AgentRunner(Agent.named(f"{{python}} {flood}")).run(MISSION, patient(60))
    assert len(ended.output) == 16_384
    assert int(ended.output.rpartition("x\nkept: ")[2]) < 2**16


def test_a_program_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "agents").mkdir()
    for name in ("player.py", "agents/player.py", "run"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    for make in (Agent.named, Agent.resident):
        command = make(f"{{python}} player.py ./agents/player.py run other.py {LONG}").command
        assert command == f"'{{python}}' {tmp_path}/player.py {tmp_path}/agents/player.py run other.py {LONG}"


@pytest.mark.parametrize(
    ("named", "resident", "allowed"),
    [
        ("{mcpurl}", False, "{mcp_url}, {mcp_config}, {model_url}, {prompt}, {prompt_file}, {python}"),
        ("--url={Model-URL}", False, "{mcp_url}, {mcp_config}, {model_url}, {prompt}, {prompt_file}, {python}"),
        ("{pyhton}", True, "{python}"),
    ],
)
def test_what_is_nearly_a_placeholder_is_refused(named: str, resident: bool, allowed: str):
    make = Agent.resident if resident else Agent.named
    for command in (f"{{python}} -c pass {named}", f"{named} agent.py"):
        with pytest.raises(InvalidOption) as refused:
            make(command, given_model=True)
        name = named.removeprefix("--url=")
        assert str(refused.value) == f"agent {command!r} names {name}, which is no placeholder; allowed here: {allowed}"
    with pytest.raises(InvalidOption, match=r"allowed here: \{mcp_url\}, \{mcp_config\}, \{prompt\},"):
        Agent.named("{python} -c pass {model_urls}")


def test_other_braces_are_the_command_s_own(tmp_path: Path):
    own = ["{print}", "{print $1}", '{"prompts": 1}', "${mcp_urls}", "{other}", "{}"]
    words = Agent.named(shlex.join(["{python}", "-c", "pass", *own]), given_model=True).words(MISSION, Rooms(tmp_path))
    assert words[3:] == own


@pytest.mark.parametrize("options", ["", "-u ", "-X dev -Wignore --check-hash-based-pycs never "])
def test_a_file_that_python_is_to_run_has_to_be_there(options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for make in (Agent.named, Agent.resident):
        with pytest.raises(InvalidOption, match=f"there is no file '{tmp_path}/my_agnet.py'"):
            make(f"{{python}} {options}my_agnet.py a.py")
    (tmp_path / "run").touch()
    assert Agent.named(f"{{python}} {options}run").command.endswith(f" {tmp_path}/run")


@pytest.mark.parametrize("rest", ["-c pass a.py", "-Im nothing a.py", "- a.py", "{prompt_file}", "-V", ""])
def test_a_python_that_runs_no_file_of_the_user_is_left_as_it_is(rest: str):
    assert Agent.named(f"{{python}} {rest}").command == shlex.join(["{python}", *rest.split()])


def test_a_preset_that_is_not_installed_says_which_program_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidOption, match="the preset codex needs the program 'codex', which is not on PATH"):
        Agent.named("codex", given_model=True)


@pytest.mark.parametrize(
    ("program", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)], ids=["ended", "killed", "stopped"]
)
def test_a_program_that_a_signal_has_ended_has_the_exit_code_of_shells(program: str, code: int):
    supervisor = [sys.executable, "-m", "envport_bridges.agents.programs.supervisor", "sh", "-c", program]
    with subprocess.Popen(supervisor, stdin=subprocess.PIPE) as running:
        assert running.wait(patient(30)) == code
