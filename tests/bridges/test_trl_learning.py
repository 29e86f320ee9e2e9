"""The example learns: a shorter form of it, by the same script, through a gateway of its own."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from bubblewrap import needs_bubblewrap
from patience import patient
from tiny_model import TEMPLATES, make_model, make_tokenizer

from envport.registry import load
from envport_bridges.trl import EnvironmentSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "grpo_catch"
CATCH = "catch?rows=5&columns=5&render=words"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports an example's script: this process has loaded torch and TRL, which takes a process of its own 8 s."""

    def imported(example: str) -> Any:
        monkeypatch.syspath_prepend(EXAMPLES / example)
        return importlib.import_module("train")

    yield imported
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(EXAMPLES)):
            del sys.modules[name]


def taught(tmp_path: Path, *options: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    command = [sys.executable, str(EXAMPLE / "train.py"), "--output", str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(timeout))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_tiny_model_learns_catch_through_the_gateway(tmp_path: Path):
    """Also with the seed that once stayed at chance."""
    options = ["--seeds", "7", "--evaluation", "100"]
    done = taught(tmp_path, *options, timeout=1400)
    assert "seed 7: won 0." in done.stdout
    assert "1 of 1 seeds reached 0.95" in done.stdout
    assert "NOT LEARNING" not in done.stdout
    assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_tiny_model_finds_its_way_out_of_mazes(tmp_path: Path):
    done = taught(tmp_path, "--game", "maze", "--seeds", "0", "--evaluation", "100", timeout=2900)
    assert "1 of 1 seeds reached 0.85" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_seeds_learn_side_by_side_and_are_reported_with_their_median(
    script: Callable[[str], Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """They cannot learn, as the learning rate is 0, and the script says so."""
    options = ["--seeds", "0-1", "--jobs", "2", "--batches", "6", "--groups", "1", "--group-size", "4"]
    options += ["--warm-up", "24", "--evaluation", "8", "--learning-rate", "0", "--threshold", "0"]
    script("grpo_catch").main([*options, "--output", str(tmp_path)])
    said = capfd.readouterr().out
    for seed in (0, 1):
        assert f"seed {seed}: batch 6 of 6, wins " in said
        assert re.search(rf"seed {seed}: won [\d.]+ -> [\d.]+ on held-out seeds", said)
    # One of them may look as if it learned, by chance.
    assert "NOT LEARNING after 6 batches" in said
    assert "median of 2: won " in said
    results = json.loads((tmp_path / "curve.json").read_text())
    assert [(result["seed"], len(result["curve"])) for result in results] == [(0, 6), (1, 6)]


def progress(won: list[float], **others: float) -> Any:
    """The callback, after batches that won this share."""
    sys.path.insert(0, str(EXAMPLE))
    callback = importlib.import_module("progress").Progress("seed 7", len(won), 0.95)
    for share in won:
        callback.on_log(None, None, None, {"won": share, **others})
        callback.on_log(None, None, None, {"eval_won": 1.0})
    return callback


def test_a_run_that_stays_where_it_was_is_told_early_and_what_to_try(capsys: pytest.CaptureFixture[str]):
    flat = [0.20, 0.25, 0.18, 0.22, 0.15, 0.20] * 5
    progress(flat, entropy=0.13, frac_reward_zero_std=0.1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed 7: batch 6 of 30, wins 0.19"
    assert lines[1].startswith("seed 7: NOT LEARNING after 6 batches: the last 3 won 0.19, the first 3 0.21 (")
    assert "entropy 0.130 -> 0.130; in 10% of the groups all episodes have the same reward." in lines[1]
    assert "try more --warm-up" in lines[1]
    assert "larger groups" in progress(flat, frac_reward_zero_std=0.8).warning()


@pytest.mark.parametrize("start", [0.2, 0.96])
def test_a_run_that_learns_or_can_already_do_it_is_not_warned_of(start: float, capsys: pytest.CaptureFixture[str]):
    progress([min(1.0, start + 0.05 * batch) for batch in range(30)], entropy=0.1)
    assert "NOT LEARNING" not in capsys.readouterr().out


def test_choices_that_hardened_are_told_from_choices_that_stay_open():
    callback = progress([0.2, 0.25, 0.2, 0.2, 0.25, 0.2])
    for batch, entry in enumerate(callback.history):
        entry["entropy"] = 0.14 if batch < 3 else 0.02
    assert "a lower --learning-rate" in callback.warning()


def test_the_warm_up_of_the_maze_plays_ways_that_exist():
    sys.path.insert(0, str(EXAMPLE))
    lesson = importlib.import_module("lessons").MAZE
    environment = load(lesson.reference.partition("=")[2]).make()
    observation = environment.reset(seed=1, task=environment.splits()["train"][5])
    for _ in range(6):
        ways = lesson.choices(observation)
        assert ways
        observation = environment.move(ways[0]).observation
        assert "wall" not in observation


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_episodes_are_left_out_and_the_run_goes_on(
    script: Callable[[str], Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """One in five processes is killed in the middle of a move; the script checks that none of them has a reward."""
    options = ["--seeds", "0", "--batches", "3", "--groups", "4", "--evaluation", "16", "--warm-up", "60"]
    script("grpo_catch").main([*options, "--kill", "0.2", "--threshold", "0", "--output", str(tmp_path)])
    lost = re.search(r"(\d+) of 96 episodes were lost to faults: none of them was scored", capfd.readouterr().out)
    assert lost
    assert 5 <= int(lost[1]) <= 40


@needs_bubblewrap
@pytest.mark.timeout(900)
@pytest.mark.parametrize("options", [["--episodes", "0"], pytest.param(["--episodes", "4"], marks=pytest.mark.slow)])
def test_an_agent_is_trained_and_evaluated_in_short(
    script: Callable[[str], Any], options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """Too short to learn anything; but every step is there."""
    short = ["--batches", "1", "--groups", "1", "--group-size", "2", "--at-once", "2", "--warm-up", "16"]
    short += ["--evaluation", "2", "--threshold", "0", "--output", str(tmp_path)]
    (result,) = script("grpo_agent").main([*short, *options])
    assert (len(result.curve), result.episodes, result.lost) == (1, 2, 0)
    said = capfd.readouterr().out
    assert "1 of 1 seeds reached 0.00" in said
    assert ("`envport eval` of the same agent" in said) == (options != ["--episodes", "0"])
    assert (tmp_path / "seed-0" / "policy" / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tiny_model_learns_two_environments_at_once(tmp_path: Path):
    script = EXAMPLES / "grpo_several" / "train.py"
    command = [sys.executable, str(script), "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(880))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "colours:" in done.stdout


@pytest.mark.slow
def test_the_script_for_any_model_runs(script: Callable[[str], Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    make_model(tokenizer).save_pretrained(tmp_path / "model")
    environments = ["echo", "catch?rows=3", "sudoku?size=4&blanks=4"]
    environments += ["wordle"] if find_spec("textarena") is not None else []
    options = ["--model", str(tmp_path / "model"), "--max-completion-length", "16"]
    options += ["--steps", "2", "--groups", "4", "--group-size", "2"]
    # A model with random weights does not know how to call a tool.
    options += ["--allow-silence", "--output", str(tmp_path)]
    script("grpo_any").main([*environments, *options])
    assert "reward by tenths: 0.000" in capfd.readouterr().out


def test_the_policy_made_for_vllm_is_in_the_folder_that_it_names(script: Callable[[str], Any], tmp_path: Path):
    """vLLM loads a model by its name or folder, wherever the weights are that the trainer holds."""
    example = script("grpo_catch")
    options = example.parse(["--vllm", "--warm-up", "2"])
    spec = EnvironmentSpec(CATCH, split="train", num_tasks=2)
    model, tokenizer = example.policy(example.LESSONS["catch"], spec, options, 0, tmp_path)
    loaded, again = example.load(model.name_or_path)
    assert model.state_dict().keys() == loaded.state_dict().keys()
    assert all(torch.equal(weight, model.state_dict()[name]) for name, weight in loaded.state_dict().items())
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again.chat_template == (TEMPLATES / "qwen3_instruct_2507.jinja").read_text()
