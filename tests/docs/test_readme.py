"""The README's blocks are run; one that no test knows is a failure."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx2
import pytest
from command_line import command
from harness import running
from opening import open_episode
from patience import patient
from runtimes import play, serving

from envport import Client
from envport.access import Access
from envport.checker import check_environment, examine
from envport.registry import load

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
PYTHON = [body for language, body in BLOCKS if language == "python"]
BASH = [line for language, body in BLOCKS if language == "bash" for line in body.splitlines()]


@pytest.fixture
def guess(tmp_path: Path) -> Path:
    (tmp_path / "guess.py").write_text(PYTHON[0])
    return tmp_path


def envport(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=patient(60),
        cwd=cwd,
        check=False,
    )


def test_every_block_is_known():
    assert {language for language, _ in BLOCKS} <= {"python", "bash", "toml"}
    assert BASH == [
        "make serve",
        "make test",
        "claude mcp add --transport http catch http://127.0.0.1:8000/environments/catch/mcp",
        "envport play catch",
        "envport check ./guess.py:Guess",
        "envport serve ./guess.py:Guess",
        "envport play ./guess.py:Guess",
        'envport eval catch --policy random --agent "{python} examples/evaluate_catch/agent.py {mcp_url}"',
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 envport serve --log-format json",
    ]
    assert len(PYTHON) == 5


def test_the_environment_has_under_25_lines():
    assert len(PYTHON[0].splitlines()) < 25


def test_the_environment_passes_the_checker(guess: Path):
    done = envport("check", "./guess.py:Guess", cwd=guess)
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_environment_can_be_played(guess: Path):
    done = envport("play", "./guess.py:Guess", "--seed", "3", cwd=guess, stdin="\n".join(map(str, [50] * 7)) + "\n")
    assert done.returncode == 0, done.stderr
    assert "I have a number in mind." in done.stdout
    assert done.stdout.count("Too high.") == 7
    assert "It was truncated at its limit of 7 steps." in done.stdout


def test_the_control_plane_s_block_runs():
    with running(load("counter")) as gateway:
        source = PYTHON[4].replace("http://127.0.0.1:8000", gateway.url)
        done = subprocess.run(
            [sys.executable, "-c", source],
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "truncated 3 None\n"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed (apt-get install bubblewrap)")
async def test_the_environment_that_runs_its_players_code_takes_a_crash_for_an_observation(tmp_path: Path):
    (tmp_path / "risky.py").write_text(PYTHON[2])
    async with serving(load(f"{tmp_path}/risky.py:Risky")) as episodes:
        episode = await open_episode(episodes, "risky")
        assert "ZeroDivisionError" in await play(episode, "run", code="1 / 0")
        assert "SIGKILL" in await play(episode, "run", code="import os; os.kill(os.getpid(), 9)")
        assert episode.outcome is None
        assert (await episode.call("submit", {"code": "print(101)"})).reward == 1.0


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed (apt-get install bubblewrap)")
def test_the_line_that_evaluates_runs(tmp_path: Path):
    pytest.importorskip("inspect_ai", reason="inspect-ai is not installed (extra eval)")
    line = shlex.split(next(line for line in BASH if line.startswith("envport eval")))
    done = envport(*line[1:], "--num-tasks", "2", "--log-dir", str(tmp_path), cwd=ROOT)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "random" in done.stdout


def test_the_line_that_watches_runs():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the exporter is not installed (extra otel)")
    from collector import Collector

    line = next(line for line in BASH if line.startswith("OTEL_"))
    with Collector() as collector:
        words = shlex.split(line.replace("http://127.0.0.1:4318", collector.url))
        name, _, value = words[0].partition("=")
        arguments = [*words[2:], "counter", "--port", "0"]
        with subprocess.Popen(
            [sys.executable, "-m", "envport.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, name: value},
        ) as serving:
            assert serving.stdout is not None
            url = next(found[1] for text in serving.stdout if (found := re.search(r"envport .* at (http\S+)$", text)))
            with Client(url) as control:
                episode = control.open("counter", seed=7)
                metrics = httpx2.get(f"{url}/metrics").text
                # Or it would be waited for.
                control.close_episode(episode.episode_id)
            serving.terminate()
            serving.communicate(timeout=patient(30))
    assert 'envport_episodes{environment="counter",status="running"} 1.0' in metrics
    assert "episode.open" in {span.name for span in collector.spans}


def test_the_token_file_is_valid(tmp_path: Path):
    (body,) = (body for language, body in BLOCKS if language == "toml")
    assert len(tomllib.loads(body)["tokens"]) == 2
    file = tmp_path / "tokens.toml"
    file.write_text(body)
    principal = Access.load({}, file).authenticate("Bearer the-trainer-s-own-long-token")
    assert principal is not None
    assert principal.name == "trainer"


def test_the_attach_line_is_the_one_that_the_command_prints():
    with running(load("catch")) as gateway:
        done = envport("attach", "catch", "--url", gateway.url, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    line = next(line for line in BASH if line.startswith("claude")).replace("http://127.0.0.1:8000", gateway.url)
    printed = [shlex.split(text) for text in done.stdout.splitlines() if "claude mcp" in text]
    assert shlex.split(line) in printed


def test_the_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_environment_that_is_prepared_has_what_was_prepared(tmp_path: Path):
    (tmp_path / "shop.py").write_text(PYTHON[3])
    spec = load(f"{tmp_path}/shop.py:Shop")
    assert check_environment(spec).ok


async def test_the_environment_with_tasks_has_their_tools_prompts_and_scores(tmp_path: Path):
    (tmp_path / "paint.py").write_text(PYTHON[1])
    spec = load(f"{tmp_path}/paint.py:Paint")
    report = await examine(spec)
    assert report.findings == []
    async with serving(spec) as episodes:
        for number, (answer, names) in enumerate([("red", ["name"]), ("blue", ["hint", "name"])]):
            episode = await open_episode(episodes, "paint", task=number)
            assert [it["name"] for it in episode.start.tools.listing] == names
            assert [block["type"] for block in episode.first_observation.content] == ["text", "image"]
            await episode.call("name", {"colour": answer})
            await episode.finish()
            assert episode.info().reward == 1.0
