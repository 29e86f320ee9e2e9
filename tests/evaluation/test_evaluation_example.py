"""The example and the lines of the documentation run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from bubblewrap import needs_bubblewrap
from click.testing import CliRunner
from command_line import envport_here
from evaluating import logs_in
from inspect_ai._cli.main import inspect
from inspect_ai.log import read_eval_log
from patience import patient
from slow import slow

from envport_bridges.evaluation.inspect_ai import episode

pytestmark = needs_bubblewrap

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "evaluate_catch"
PAGE = (ROOT / "bridges" / "envport_bridges" / "evaluation" / "README.md").read_text()
BIN = Path(sys.executable).parent


def lines_of(text: str) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_the_example_asserts_its_own_result(tmp_path: Path):
    done = subprocess.run(
        # Each episode of the agent is a process that imports the MCP SDK.
        [sys.executable, str(EXAMPLE / "run.py"), "--num-tasks", "2"],
        capture_output=True,
        text=True,
        timeout=patient(110),
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "agent      reward +1.00   success 100%" in done.stdout


@pytest.mark.slow
def test_the_example_s_line_runs():
    line, run = lines_of((EXAMPLE / "README.md").read_text())
    assert run == "python examples/evaluate_catch/run.py"
    words = shlex.split(line.replace("examples/", f"{ROOT}/examples/"))
    # `run.py` plays all tasks.
    done = envport_here(*words[1:], "--num-tasks", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path("report.html").is_file()


# What stands in for what cannot be had here: a gateway that runs, programs with accounts, a GPU.
ELSEWHERE = ("claude", "codex", "gemini", "vllm", "inspect view")


LINES = [line for line in lines_of(PAGE) if not any(part in line for part in ELSEWHERE)]
# The front page's line is very like them; the example that trains an agent evaluates it by the path of its model.
SLOW = [line for line in LINES if line.startswith("envport eval")]


@pytest.mark.parametrize("line", [*(line for line in LINES if line not in SLOW), *slow(SLOW)])
def test_the_page_s_lines_run(line: str, monkeypatch: pytest.MonkeyPatch):
    from evaluating import CONTROL, address, evaluate, secured

    from envport.registry import load

    monkeypatch.setenv("ENVPORT_TOKEN", CONTROL)
    with secured(load("catch")) as gateway:
        if line.startswith("envport results"):
            evaluate(address(gateway, "catch"), policy="noop", num_tasks=1)
            done = envport_here(*shlex.split(line)[1:])
            assert (done.returncode, done.stdout.startswith("environment")) == (0, True)
            return
        if line.startswith("envport compare") or "--resume" in line:
            assert re.search(r"\w+\.eval", line)
            return
        if "./checkpoint-200" in line:
            pytest.importorskip("trl", reason="no model can be served: trl is missing")
            from tiny_model import save_model

            save_model(Path("checkpoint-200"))
            # An untrained model never ends its answer.
            line += " -M max_tokens=32"
        words = shlex.split(
            line.replace("http://127.0.0.1:8000", gateway.url).replace("./examples", f"{ROOT}/examples")
        )
        if words[0] == "inspect":
            by_inspect(*words[1:])
            return
        done = envport_here(*words[1:], "--num-tasks", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def by_inspect(*words: str) -> None:
    """Run Inspect's own command, which finds the task by its name; importing it takes a process of its own 5 s."""
    (point,) = entry_points(group="inspect_ai", name="envport_bridges")
    assert point.load().episode is episode
    done = CliRunner().invoke(inspect, [*words, "--display", "plain", "--limit", "1"])
    assert done.exit_code == 0, done.output
    (log,) = logs_in(Path("logs"))
    assert read_eval_log(str(log)).status == "success"


@pytest.mark.slow
def test_inspect_finds_the_task_in_a_process_that_has_imported_nothing_of_ours(served: str):
    (line,) = [line for line in LINES if line.startswith("inspect eval")]
    words = shlex.split(line.replace("http://127.0.0.1:8000/environments", served))
    done = subprocess.run(
        [str(BIN / words[0]), *words[1:], "--display", "plain", "--limit", "1"],
        capture_output=True,
        text=True,
        timeout=patient(110),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Samples: +([12])/ +\1\b", done.stdout), done.stdout


def test_the_front_page_s_line_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (line,) = [line for line in lines_of((ROOT / "README.md").read_text()) if line.startswith("envport eval")]
    monkeypatch.chdir(ROOT)
    done = envport_here(*shlex.split(line)[1:], "--num-tasks", "1", "--log-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "random" in done.stdout


def test_every_option_of_the_page_exists(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = "".join(envport_here(name, "--help").stdout for name in ("eval", "results", "compare"))
    of_inspect = {"--epochs-reducer"}
    for option in set(re.findall(r"`(--[a-z-]+)", PAGE)) - of_inspect:
        assert option in shown, option


def test_the_page_s_policy_plays(served: str, tmp_path: Path):
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.py").write_text(source)
    done = envport_here("eval", f"{served}/catch", "--policy", "./mine.py:policy", "--num-tasks", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9.0" in done.stdout
