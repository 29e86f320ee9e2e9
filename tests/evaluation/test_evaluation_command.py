"""`envport eval` and `envport compare`, as commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import FRESH, envport_here
from evaluating import documents
from inspect_ai.log import read_eval_log
from lossy import lossy
from patience import patient
from slow import slow

from envport_bridges.evaluation.results import Result

EXAMPLE = Path(__file__).parents[2] / "examples" / "evaluate_catch"
REFERENCE = f"{EXAMPLE / 'policies.py'}:reference"
SECONDS = patient(110)

FLAKY = '''
import os
import random
import signal

from envport_bridges.evaluation.players.policies import random_calls


async def stuck_at_first(view):
    """Plays three episodes, and has Ctrl-C pressed in the fourth, until a file says that all is well."""
    if not os.path.exists("well") and not view.history:
        stuck_at_first.begun += 1
        if stuck_at_first.begun > 3:
            import anyio

            if os.path.exists("waiting"):
                with open("waiting", "w") as fifo:
                    fifo.write("waiting")
            else:
                signal.raise_signal(signal.SIGINT)
            await anyio.sleep_forever()
    return random_calls(view)


stuck_at_first.begun = 0
'''


def test_one_command_gives_one_table(served: str):
    words = [
        "eval", "catch", f"{served}/counter", "--policy", "random", "--policy", "noop", "--policy", REFERENCE,
        "--num-tasks", "3", "--max-calls", "12", "--report", "report.html",
    ]  # fmt: skip
    done = envport_here(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout[done.stdout.rindex("environment  player") :].splitlines()
    assert "\nenvironment  player" in f"\n{done.stdout}"
    assert [line.split(" ")[0] for line in table[1:7]] == ["catch"] * 3 + ["counter"] * 3
    assert "1.000 [unknown]" in table[3]
    assert table[0].endswith("lost to faults")
    logs = [line.removeprefix("Log: ") for line in table if line.startswith("Log: ")]
    assert len(logs) == 6
    assert all(Path(log).is_file() for log in logs)
    page = Path("report.html").read_text()
    assert "Reward by task" in page
    assert "Steps to success" in page
    assert page.count("<svg") >= 6 + 1


@pytest.mark.slow
def test_the_result_says_what_was_measured():
    (result,) = documents("catch?rows=4", "--policy", "random", "--split", "test", "--seed", "3", "--epochs", "2")
    identity = result["identity"]
    assert identity["options"] == {"rows": 4}
    assert (identity["split"], identity["seed"], identity["version"]) == ("test", 3, "1")
    assert len(identity["fingerprint"]) == 64
    assert (result["episodes"], result["tasks"], result["infrastructure_failures"]) == (10, 5, 0)
    assert set(result["pass_at"]) == set(result["pass_hat"]) == {"1", "2"}
    assert result["steps"] == 3.0
    low, mean, high = (result["reward"][key] for key in ("low", "mean", "high"))
    assert low < mean < high


@pytest.mark.slow
def test_the_same_words_give_the_same_rewards(served: str):
    first, second = documents(f"{served}/catch", f"{served}/catch", "--policy", "random", "--seed", "5")
    assert first["reward"] == second["reward"]
    assert Result.read(first["log"]).rewards_by_task() == Result.read(second["log"]).rewards_by_task()


def test_what_was_lost_is_played_again_and_what_has_a_score_keeps_it(tmp_path: Path):
    with lossy() as address:
        (before,) = documents(address, "--policy", "random", "--num-tasks", "12", "--max-lost", "1")
        assert 0 < before["infrastructure_failures"] < 12
        assert before["episodes"] + before["infrastructure_failures"] == 12
        assert all("has failed" in one["why"] for one in before["lost"])
        finished = uuids(before["log"])
        (tmp_path / "well").touch()
        (after,) = documents("--resume", before["log"])
    assert (after["episodes"], after["infrastructure_failures"], after["missing"]) == (12, 0, 0)
    assert finished.items() <= uuids(after["log"]).items()


def uuids(log: str) -> dict[Any, Any]:
    return {sample.id: sample.uuid for sample in read_eval_log(log).samples or [] if sample.scores}


def interrupted(*words: str) -> tuple[int, str, str]:
    """The exit code and the output of an evaluation in a process of its own that is interrupted from outside."""
    os.mkfifo("waiting")
    evaluation = subprocess.Popen([FRESH, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert Path("waiting").read_text() == "waiting"
    evaluation.send_signal(signal.SIGINT)
    out, errors = evaluation.communicate(timeout=SECONDS)
    return evaluation.returncode, out, errors


@pytest.mark.parametrize("by_another", [False, *slow([True])])
def test_an_interrupted_evaluation_goes_on_where_it_was(by_another: bool, served: str, tmp_path: Path):
    (tmp_path / "flaky.py").write_text(FLAKY)
    words = ["eval", f"{served}/catch", "--policy", "./flaky.py:stuck_at_first", "--num-tasks", "5", "--jobs", "1"]
    if by_another:
        code, out, errors = interrupted(*words, "--json")
    else:
        done = envport_here(*words, "--json")
        code, out, errors = done.returncode, done.stdout, done.stderr
    assert code == 130, out + errors
    (before,) = json.loads(out)
    assert (before["status"], before["episodes"], before["missing"]) == ("cancelled", 3, 2)
    finished = uuids(before["log"])
    (tmp_path / "well").touch()
    (after,) = documents("--resume", before["log"])
    assert (after["status"], after["episodes"], after["missing"]) == ("success", 5, 0)
    assert finished.items() <= uuids(after["log"]).items()


def test_results_that_measured_the_same_are_compared(served: str):
    random, reference = documents(f"{served}/catch", "--policy", "random", "--policy", REFERENCE, "--num-tasks", "8")
    done = envport_here("compare", random["log"], reference["log"], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["pairs"], found["tasks"], found["unpaired"], found["worse"]) == (8, 8, 0, 0)
    difference = found["reward"]["difference"]
    assert difference["mean"] == pytest.approx(1.0 - random["reward"]["mean"])
    assert difference["low"] > 0
    shown = envport_here("compare", random["log"], reference["log"])
    assert "B - A, paired [95%]" in shown.stdout
    assert "\nreward   " in shown.stdout
    assert "worse on 0" in shown.stdout


@pytest.mark.slow
def test_results_that_measured_different_things_are_refused(served: str, tmp_path: Path):
    (tmp_path / "other.py").write_text(
        "from envport import tool\nfrom envport_envs.catch import CatchEnvironment\n\n\n"
        "class Catch(CatchEnvironment):\n"
        "    @tool\n    def wait(self) -> str:\n        '''Wait.'''\n        return 'waited'\n"
    )
    (first,) = documents(f"{served}/catch", "--policy", "noop", "--num-tasks", "2")
    (second,) = documents("catch=./other.py:Catch", "--policy", "noop", "--num-tasks", "2")
    (third,) = documents("catch?rows=5", "--policy", "noop", "--num-tasks", "2")
    done = envport_here("compare", first["log"], second["log"])
    assert done.returncode == 2
    assert "fingerprint is" in done.stderr
    assert "shown different tools" in done.stderr
    done = envport_here("compare", first["log"], third["log"])
    assert done.returncode == 2
    assert "options is {} in A and {'rows': 5} in B" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["eval"], "say what to evaluate"),
        (["eval", "catch"], "say what to evaluate"),
        (["eval", "catch", "--resume", "x.eval"], "say what to evaluate"),
        (["eval", "nothing-of-that-name", "--policy", "noop"], "nothing-of-that-name"),
        (["eval", "http://127.0.0.1:9/environments/catch", "--policy", "noop"], "no answer from"),
        (["eval", "{served}/catch", "--policy", "nonsense"], "none of random, noop"),
        (["eval", "catch", "--agent", "no-such-program"], "there is no program"),
        (["eval", "catch", "--agent", "{python} -c pass {mcpurl}"], "names {mcpurl}, which is no placeholder"),
        (["eval", "catch", "--model", "openai/gpt-4o"], "OPENAI_API_KEY"),
        (["eval", "catch", "--model", "nonsense/model"], "nonsense"),
        (["eval", "catch", "--model", "mockllm/model", "-M", "nonsense"], "NAME=VALUE"),
        (["eval", "--resume", "no-such-log.eval"], "there is no file no-such-log.eval"),
        (["compare", "no-such-log.eval", "neither.eval"], "there is no file no-such-log.eval"),
        (["compare", __file__, __file__], "is not a log"),
    ],
)
def test_bad_input_is_one_line(served: str, words: list[str], says: str):
    done = envport_here(*(word.replace("{served}", served) for word in words), "--json")
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")


def test_without_the_extra_the_commands_say_what_to_install(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'inspect_ai' else find(name, *rest)\n"
    )
    done = subprocess.run(
        [FRESH, "eval", "catch", "--policy", "noop"],
        capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'envport[eval]'" in done.stderr
