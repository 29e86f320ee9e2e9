"""What is scored, what is lost, and who a fault belongs to; and what no result hides."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from command_line import envport_here
from evaluating import CONTROL, address, documents, secured
from lossy import lossy

from envport.registry import load
from envport_bridges.evaluation.inspect_ai.dataset import seed_of
from envport_bridges.evaluation.losses import LostEpisode, WorstCase
from envport_bridges.evaluation.results import Identity, PlayedEpisode, Result


def test_beside_a_score_with_lost_episodes_stands_its_worst_case():
    words = ["--policy", "random", "--num-tasks", "12", "--epochs", "2", "--report", "report.html"]
    with lossy() as address:
        done = envport_here("eval", address, *words)
    assert done.returncode == 1
    log = re.findall(r"Log: (\S+)", done.stdout)[-1]
    result = Result.read(log)
    lost, played = len(result.lost), len(result.played)
    assert (lost + played, result.missing) == (24, 0)
    assert 0 < result.success_rate().mean < 1
    wins = sum(one.success for one in result.played)
    worst = result.document()["worst_case"]
    assert worst["lost_reward"] == -2.0
    assert worst["reward"]["mean"] == pytest.approx((wins - 2 * (24 - wins)) / 24)
    assert worst["success"]["mean"] == worst["pass_at"]["1"] == pytest.approx(wins / 24)
    assert worst["success"]["low"] < worst["success"]["mean"] < worst["success"]["high"]
    assert worst["pass_hat"]["2"] == pytest.approx(wins / 24)
    # It stands in the columns of the scores that it belongs to.
    head, score, below = done.stdout[done.stdout.rindex("environment  player") :].splitlines()[:3]
    up_to_success = below[: head.index("success [95%]") + len("success [95%]")]
    assert re.search(rf"worst case: lost = failed +24 .*\] +{wins / 24:.0%} \[\d+, \d+\]$", up_to_success), below
    assert f"each of the {lost} lost episodes counts as failed, with a reward of -2 (the lowest one seen" in done.stdout
    page = html.unescape(Path("report.html").read_text())
    assert "worst case: lost = failed</td><td></td><td>24</td>" in page
    assert f"each of the {lost} lost episodes counts as failed" in page
    assert f"error: lossy, policy random: {lost} of 24 episodes were lost ({lost / 24:.0%}); allowed: 5%" in done.stderr
    assert f"envport eval --resume {log}" in done.stderr
    assert score.split()[0] == "lossy"


def test_how_many_episodes_may_be_lost_is_an_option():
    with lossy() as address:
        (result,) = documents(address, "--policy", "random", "--num-tasks", "12", "--max-lost", "0.9")
    assert result["infrastructure_failures"] > 1


@pytest.mark.parametrize("share", ["-0.1", "1.1", "5%"])
def test_a_share_is_from_0_to_1(share: str):
    done = envport_here("eval", "catch", "--policy", "noop", "--max-lost", share)
    assert done.returncode == 2
    assert "--max-lost" in done.stderr


def test_an_environment_without_losses_has_its_score_as_its_worst_case(served: str):
    (result,) = documents(f"{served}/catch", "--policy", "random", "--num-tasks", "4")
    assert result["worst_case"]["reward"] == result["reward"]
    assert result["worst_case"]["success"] == result["success"]


def test_nothing_scored_is_no_success():
    with lossy() as address:
        words = [address, "--policy", "random", "--num-tasks", "1", "--max-lost", "1"]
        seeds = (seed for seed in range(100) if seed_of(seed, 0) % 2 == 0)
        (result,) = documents(*words, "--seed", str(next(seeds)), code=1)
    assert (result["episodes"], result["infrastructure_failures"]) == (0, 1)
    assert result["faults"] == {"player": 0, "environment": 0, "infrastructure": 1}
    assert {lost["fault"] for lost in result["lost"]} == {"infrastructure"}
    assert result["reward"]["mean"] is None
    assert (result["worst_case"]["reward"]["mean"], result["worst_case"]["success"]["mean"]) == (0.0, 0.0)


RAISING = """
def at_first(view):
    raise RuntimeError("broken")


def later(view):
    if view.history:
        raise SystemExit("enough")
    return "count", {}


def no_call(view):
    return ("count", {}) if not view.history else ["count", {"what": object()}]
"""


@pytest.mark.parametrize(
    ("policy", "why"),
    [("later", "the policy raised SystemExit: enough"), ("no_call", "the policy raised PydanticSerializationError")],
)
def test_what_a_policy_raises_is_a_fault_of_the_player(served: str, tmp_path: Path, policy: str, why: str):
    (tmp_path / "raising.py").write_text(RAISING)
    words = ["--policy", f"./raising.py:{policy}", "--num-tasks", "3", "--success-at", "0"]
    (document,) = documents(f"{served}/counter", *words)
    assert (document["episodes"], document["infrastructure_failures"]) == (3, 0)
    assert document["faults"] == {"player": 3, "environment": 0, "infrastructure": 0}
    # Its reward would be one from 0 on.
    assert document["success"]["mean"] == 0.0
    for one in Result.read(document["log"]).played:
        assert one.stopped.startswith(why)
        assert (one.fault, one.steps) == ("player", 1)


def test_a_player_that_never_takes_a_step_is_a_broken_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ENVPORT_TOKEN", CONTROL)
    (tmp_path / "raising.py").write_text(RAISING)
    players = ["--policy", "./raising.py:at_first", "--agent", "{python} -m missing", "--no-sandbox"]
    with secured(load("counter")) as gateway:
        done = envport_here("eval", address(gateway, "counter"), *players, "--num-tasks", "2", "--json")
    assert done.returncode == 1
    policy, agent = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    broken = "the player failed before its first step in all 2 episodes, so its set-up is broken:"
    assert policy == f"error: counter, policy raising.py:at_first: {broken} RuntimeError: broken"
    assert agent.startswith(
        f"error: counter, agent {{python}} -m missing: {broken} exit code 1. The end of its output: "
    )
    assert "No module named missing" in agent


def test_a_player_that_fails_now_and_then_is_scored():
    played = [_played("a", broke="exit code 1"), _played("b", steps=1, broke="exit code 1"), _played("c")]
    assert [_result(*part).broken_setup() for part in (played[:1], played[:2], played[1:], played[::2], [])] == [
        "exit code 1", None, None, None, None
    ]  # fmt: skip


def test_lost_attempts_count_among_those_of_their_sample():
    scored = [_played("a", reward=1.0, success=True), _played("b", reward=0.5)]
    worst = WorstCase.of(
        scored, [LostEpisode("a", "", "environment", "task"), LostEpisode("c", "", "environment", "c")]
    )
    assert worst.lost_reward == 0.0
    assert worst.reward.mean == pytest.approx((0.5 + 0.5 + 0.0) / 3)
    assert worst.success.mean == pytest.approx((0.5 + 0.0 + 0.0) / 3)
    assert (worst.pass_at(2), worst.pass_hat(2)) == (1.0, 0.0)


def _played(sample: str, **facts: object) -> PlayedEpisode:
    values = {"reward": 0.0, "success": False, "steps": 0, **facts}
    rest = {"epoch": 1, "tool_errors": 0, "seconds": 0.0, "tokens": 0, "seed": 0, "outcome": None, "stopped": ""}
    return PlayedEpisode(sample=sample, task="task", **values, **rest)  # type: ignore[arg-type]


def _result(*played: PlayedEpisode) -> Result:
    identity = Identity("catch", "1", {}, "", "sum", None, 0, 1.0, 1, "")
    return Result(identity, "policy", "success", 1, played)
