"""The sandbox of agents: what they see of this machine, and what happens where it cannot be made."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bubblewrap import needs_bubblewrap
from command_line import envport_here
from evaluating import CONTROL, address, evaluate, logs_in, result_of, secured
from harness import RunningGateway
from inspect_ai.log import EvalLog
from patience import patient
from users import PYTHONPATH, run_as_nobody

from envport.errors import ConfigurationError, InvalidOption
from envport.registry import load
from envport_bridges.agents.programs.agents import PRESETS, Agent
from envport_bridges.evaluation.results import Result

pytestmark = needs_bubblewrap
ROGUE = Path(__file__).with_name("rogue.py")
NAMESPACES = ("pid", "mnt", "ipc", "user", "net")


@pytest.fixture(scope="module")
def gateway() -> Any:
    with secured(load("catch")) as serving:
        yield serving


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVPORT_TOKEN", CONTROL)


def rogue(gateway: RunningGateway, *words: str, **options: Any) -> EvalLog:
    agent = options.pop("agent", " ".join(["{python}", str(ROGUE), *words]))
    return evaluate(address(gateway, "catch"), agent=agent, num_tasks=1, **options)


def said(log: EvalLog) -> Any:
    assert log.samples
    return json.loads(log.samples[0].output.completion)


@pytest.mark.parametrize("sandbox", [True, False])
def test_an_agent_sees_no_other_process(gateway: RunningGateway, sandbox: bool):
    with subprocess.Popen(["sleep", "600"], env={"TOKEN": CONTROL}) as other:
        log = rogue(gateway, "spy", CONTROL[::-1], sandbox=sandbox)
        other.kill()
    told = said(log)
    assert bool(told["found"]) is not sandbox
    # The first process of the sandbox is bubblewrap's.
    assert (told["processes"] == 1) == sandbox


def test_an_agent_has_private_folders_and_reads_what_is_allowed(
    gateway: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("home/.login", "home/diary", "named", "hidden", "given/file"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    named, hidden, given = (f"{tmp_path}/{name}" for name in ("named", "hidden", "given/file"))
    command = f"{{python}} {ROGUE} look {shlex.quote(json.dumps([named, hidden, given]))} {named}"
    monkeypatch.setitem(PRESETS, "mine", Agent(command, home=(".login", ".not-there")))
    log = rogue(gateway, agent="mine", agent_reads=[f"{tmp_path}/given"])
    told = said(log)
    assert told["seen"] == {named: "named", given: "given/file"}
    assert told["written"] == []
    assert told["home"] == {".login": "home/.login", "mine": "mine"}
    assert told["of_user"] == str(tmp_path / "home")
    assert not [folder for folder in (tmp_path / "home", Path("/tmp"), Path("/dev/shm")) if (folder / "mine").exists()]
    # Its three streams, and the folder that it lists.
    assert (told["capabilities"], told["descriptors"]) == (["0" * 16], 4)
    # Root's id has rights that no namespace takes away.
    assert told["user"] != 0
    assert Result.of(log).sandboxed is True
    shared = [name for name in NAMESPACES if os.readlink(f"/proc/self/ns/{name}") == told["namespaces"][name]]
    assert shared == ["net"]


@pytest.mark.parametrize(
    ("reads", "says"),
    [
        ("nowhere", "nowhere, which does not exist"),
        ("/", "it has its own"),
        ("~", "it has its own"),
    ],
)
def test_what_an_agent_cannot_read_is_said(gateway: RunningGateway, reads: str, says: str):
    with pytest.raises(InvalidOption, match=says):
        rogue(gateway, "ignore", agent_reads=reads)


@pytest.mark.skipif(os.geteuid() != 0, reason="only where root evaluates, an agent is another user")
def test_what_is_closed_to_the_agent_s_user_is_said(gateway: RunningGateway, tmp_path: Path):
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(InvalidOption, match=r"closed to others .*chmod -R o\+rX"):
        rogue(gateway, "ignore", agent_reads=[str(tmp_path / "closed")])


def bubblewrap(folder: Path, script: str) -> str:
    """A folder for PATH with a `bwrap` that does what a script says."""
    (folder / "bin").mkdir()
    (folder / "bin" / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "bwrap").chmod(0o755)
    return str(folder / "bin")


def test_without_bubblewrap_the_sandbox_is_never_left_out_by_itself(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    words = ["eval", address(gateway, "catch"), "--agent", f"{{python}} {ROGUE} ignore", "--num-tasks", "2"]
    done = envport_here(*words)
    assert done.returncode == 2
    assert "bubblewrap, which is not installed: apt-get install bubblewrap" in done.stderr
    assert "--no-sandbox" in done.stderr


def test_a_result_says_that_its_agent_was_in_no_sandbox(gateway: RunningGateway):
    said = "The agent did not run in a sandbox."
    words = ["eval", address(gateway, "catch"), "--num-tasks", "1", "--agent", f"{{python}} {ROGUE} ignore"]
    done = envport_here(*words, "--no-sandbox", "--report", "report.html")
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert said in Path("report.html").read_text()
    (log,) = logs_in(Path("logs"))
    policy = result_of(address(gateway, "catch"), policy="noop", num_tasks=1)
    assert policy.document()["sandboxed"] is None
    done = envport_here("compare", policy.log, str(log))
    assert f"B: {said}" in done.stdout
    assert f"A: {said}" not in done.stdout
    assert json.loads(envport_here("compare", policy.log, str(log), "--json").stdout)["sandboxed"] == [None, False]


def test_where_namespaces_are_forbidden_it_is_said_what_to_allow(
    gateway: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = bubblewrap(tmp_path, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(
        ConfigurationError, match=r"create new namespace\. Allow namespaces: .* --no-sandbox \(in Python"
    ):
        rogue(gateway, "ignore")


def test_a_sandbox_that_cannot_be_made_is_no_score(
    gateway: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = shutil.which("bwrap")
    script = (
        f"[ -e {tmp_path}/tried ] && {{ echo 'bwrap: out of namespaces'; exit 1; }}\n"
        f'touch {tmp_path}/tried; exec {real} "$@"'
    )
    monkeypatch.setenv("PATH", f"{bubblewrap(tmp_path, script)}:{os.environ['PATH']}")
    result = Result.of(rogue(gateway, "ignore"))
    assert result.played == ()
    (lost,) = result.lost
    assert (lost.fault, "out of namespaces" in lost.why) == ("infrastructure", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_s_agents_are_in_the_same_sandbox():
    run_as_nobody("agent_sandboxes", "probed")


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is not root")
def test_a_root_that_cannot_become_another_user_gives_its_agents_no_rights_of_root():
    source = "import asyncio, agent_sandboxes; asyncio.run(agent_sandboxes.probed())"
    done = subprocess.run(
        ["setpriv", "--bounding-set=-setuid", sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
