"""`envport-client` is the client side alone: it shares no file with `envport`, and needs no server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from apart import python_of
from harness import RunningGateway, running
from patience import patient
from wheels import CLIENT, ROOT, unpacked

from envport.registry import load

PACKAGES = ("gateway/envport", "envs/envport_envs", "bridges/envport_bridges", "bridges/envport_taskset.py")

PLAY = """
import json, sys
from envport import Client
from envport.errors import EnvportError
from envport_bridges.rollouts import Rollouts

url, told = sys.argv[1], {}
with Rollouts(f"{url}/environments/catch").open(seed=3) as rollout:
    while rollout.outcome is None:
        rollout.call("move", {"direction": "stay"})
    told["rewards"] = rollout.rewards
with Client(url) as client:
    told["episodes"] = [(it.status, it.reward) for it in client.episodes()]
try:
    Rollouts("catch").open(seed=3)
except EnvportError as error:
    told["local"] = f"{type(error).__name__}: {error}"
try:
    from envport import Environment
except ImportError as error:
    told["authoring"] = str(error)
told["imported"] = sorted({name.partition(".")[0] for name in sys.modules} & {"mcp", "fastapi", "uvicorn", "starlette"})
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(CLIENT, tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(load("catch")) as serving:
        yield serving


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and ".dist-info" not in path.as_posix()
    }


def metadata(folder: Path) -> Message:
    (file,) = folder.glob("*.dist-info/METADATA")
    return message_from_string(file.read_text())


def test_each_file_belongs_to_one_distribution(client: Path, tmp_path: Path):
    whole = unpacked(ROOT, tmp_path)
    assert not files(client) & files(whole)
    sources = {
        file.relative_to(ROOT / place.split("/", 1)[0]).as_posix()
        for place in PACKAGES
        for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    }
    assert {name for name in files(client) | files(whole) if name.endswith(".py")} == sources
    version = metadata(client)["Version"]
    assert metadata(whole)["Version"] == version
    assert f"envport-client=={version}" in metadata(whole).get_all("Requires-Dist", [])


def test_the_client_alone_plays_at_a_gateway(client: Path, gateway: RunningGateway, tmp_path: Path):
    """Where envport is not installed, and another release of mcp is. It imports none of it."""
    (tmp_path / "play.py").write_text(PLAY)
    done = subprocess.run(
        [python_of("verifiers", "0.4.0"), tmp_path / "play.py", gateway.url],
        env={"PYTHONPATH": str(client)},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rewards"] == [0.0] * 8 + [-1.0]
    assert told["episodes"] == [["terminated", -1.0]]
    why = "Playing 'catch' in this process needs a package that is not installed: pip install envport"
    assert told["local"] == f"MissingExtra: {why}"
    assert told["authoring"].endswith("and only envport-client is installed: pip install envport")
    assert told["imported"] == []
