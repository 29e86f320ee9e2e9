"""Tables of results: several seeds and their pool, each task, and all logs of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import envport_here
from evaluating import evaluate
from lossy import lossy

from envport.errors import InvalidOption
from envport_bridges.evaluation.folder import read_folders
from envport_bridges.evaluation.report import write_report
from envport_bridges.evaluation.results import Identity, PlayedEpisode, Result
from envport_bridges.evaluation.seeds import pooled
from envport_bridges.evaluation.table import print_by_task, print_results


def shown(*words: str) -> list[str]:
    done = envport_here(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def row(lines: list[str], *parts: str) -> str:
    (found,) = [line for line in lines if all(part in line for part in parts)]
    return found


def test_several_seeds_are_a_row_each_and_one_for_all(served: str, capsys: pytest.CaptureFixture[str]):
    words = ["eval", f"{served}/catch", "--policy", "random", "--num-tasks", "3", "--seed", "0", "--seed", "7"]
    first, second, both = json.loads("\n".join(shown(*words, "--json")))
    assert [one["identity"]["seed"] for one in (first, second, both)] == [0, 7, None]
    assert [one["seeds"] for one in (first, second, both)] == [[0], [7], [0, 7]]
    assert (both["episodes"], both["tasks"]) == (6, 3)
    assert both["reward"]["mean"] == pytest.approx((first["reward"]["mean"] + second["reward"]["mean"]) / 2)
    assert [task["episodes"] for task in both["by_task"]] == [2, 2, 2]
    results = [Result.read(one["log"]) for one in (first, second)]
    print_results([*results, pooled(results)])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[2] == "seed"
    assert [line.split()[3] for line in lines[:2]] == ["0", "7"]
    assert "0, 7 pooled" in lines[2]
    assert lines[3] == "Steps, tool errors, tokens and time are means of an episode."
    assert [line.startswith("Log: ") for line in lines[4:]] == [True, True]


def test_seeds_pool_tasks_as_the_same_and_episodes_without_tasks_as_others(served: str):
    for name, tasks in (("catch", 2), ("counter", 4)):
        results = [Result.of(evaluate(f"{served}/{name}", policy="noop", num_tasks=2, seed=seed)) for seed in (0, 1)]
        both = pooled(results)
        assert (len(both.by_sample), both.tasks) == (4, tasks)


def test_a_seed_that_is_given_twice_is_refused():
    done = envport_here("eval", "catch", "--policy", "noop", "--seed", "3", "--seed", "3")
    assert done.returncode == 2
    assert "--seed is given twice" in done.stderr


def test_each_task_has_its_result(served: str):
    words = ["eval", f"{served}/catch", "--policy", "random", "--split", "test", "--epochs", "2"]
    lines = shown(*words, "--by-task", "--report", "report.html")
    assert "catch, policy random, seed 0, by task" in lines
    (result,) = read_folders([Path("logs")]).results
    tasks = result.by_task()
    assert [one.task for one in tasks] == [line.split()[0] for line in lines if line.startswith("test/")]
    assert [one.reward for one in tasks] == sorted(one.reward for one in tasks)
    for one in tasks:
        rewards = result.rewards_by_task()[one.task]
        assert (one.episodes, one.reward) == (len(rewards), sum(rewards) / len(rewards))
        assert one.success == sum(reward == 1 for reward in rewards) / len(rewards)
        assert one.steps == 9.0
        cells = row(lines, one.task).split()
        assert cells[1:] == ["2", f"{one.reward:.3f}", f"{one.success * 100:.0f}%", "9.0", "0.0"]
        assert f"<td>{one.task}</td><td>2</td>" in Path("report.html").read_text()
    assert json.loads("\n".join(shown("results", "logs", "--json")))[0]["by_task"][0]["task"] == tasks[0].task


@pytest.fixture
def logs(served: str, tmp_path: Path) -> dict[str, Any]:
    """A folder with evaluations, one below it, and files that are none."""
    found = {
        "random": evaluate(f"{served}/catch", policy="random", num_tasks=2),
        "noop": evaluate(f"{served}/catch", policy="noop", num_tasks=2),
        "other": evaluate(f"{served}/counter", policy="noop", num_tasks=2),
    }
    (tmp_path / "logs" / "below").mkdir()
    other = Path(found["other"].location)
    other.rename(tmp_path / "logs" / "below" / other.name)
    (tmp_path / "logs" / "broken.eval").write_text("nothing")
    (tmp_path / "logs" / "notes.json").write_text("{}")
    (tmp_path / "logs" / "notes.txt").write_text("nothing")
    return found


def test_a_folder_of_logs_is_one_table(logs: dict[str, Any]):
    lines = shown("results", "logs", "--report", "report.html")
    players = [line.split("  ")[0:2] for line in lines[1:4]]
    assert [line.split()[0] for line in lines[1:4]] == ["catch", "catch", "counter"], players
    assert "policy noop" in lines[1]
    assert "policy random" in lines[2]
    assert "Left out: 2 files that are no logs of an evaluation with envport." in lines
    assert Path("report.html").read_text().count("<h2>") == 3
    found = json.loads("\n".join(shown("results", "logs", "--json")))
    assert [one["identity"]["environment"] for one in found] == ["catch", "catch", "counter"]
    (single,) = json.loads("\n".join(shown("results", logs["noop"].location, "--json")))
    assert single["player"] == "policy noop"


def test_rows_that_differ_in_more_than_the_player_say_in_what(served: str):
    evaluate(f"{served}/catch", policy="noop", num_tasks=1)
    assert "split" not in shown("results", "logs")[0]
    evaluate(f"{served}/catch", policy="noop", num_tasks=1, split="test", success_at=0.5)
    header, *rows = shown("results", "logs")[:3]
    assert header.split()[2:4] == ["split", "success_at"]
    assert [line.split()[3:5] for line in rows] == [["train", "1.0"], ["test", "0.5"]]


AGENT = "agent {python} agent.py --model small --tries 3 --prompt file.txt with policy"


def result_with(player: str, stopped: str = "the agent exited with 0", **settings: Any) -> Result:
    identity = Identity("catch", "1", {}, "", "sum", None, 0, 1.0, 1, "")
    episode = PlayedEpisode("s", 1, "t", 0.0, False, 1, 0, 1.0, 66, 0, None, stopped, cost=2e-6)
    return Result(identity, player, "success", 1, (episode,), settings=settings, log="a.eval")


def test_rows_of_one_agent_with_different_models_or_settings_say_in_what(capsys: pytest.CaptureFixture[str]):
    models = [f"policy {digit * 64}" for digit in "ab"]
    print_results([result_with(AGENT, agent_model=model, temperature=1.0) for model in models])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[2:4] == ["agent_model", "tasks"]
    assert ["policy aaaaaaaa " in lines[0], "policy bbbbbbbb " in lines[1]] == [True, True]
    results = [result_with(AGENT, agent_model=models[0], temperature=warm) for warm in (0.0, 1.0)]
    write_report(results, Path("report.html"))
    assert "<th>player</th><th>temperature</th>" in Path("report.html").read_text()
    print_by_task(results)
    assert "temperature 1.0, by task" in capsys.readouterr().out


def test_a_long_name_of_a_player_is_not_cut_where_it_differs(capsys: pytest.CaptureFixture[str]):
    print_results([result_with(f"{AGENT}_{number}") for number in (1, 2)])
    assert [line.split("…")[1].split("  ")[0] for line in capsys.readouterr().out.splitlines()[1:3]] == [
        "rompt file.txt with policy_1"[-19:],
        "rompt file.txt with policy_2"[-19:],
    ]
    inside = [AGENT.replace("tries 3", f"tries {number}") for number in (3, 4)]
    print_results([result_with(player) for player in inside])
    assert [player in line for player, line in zip(inside, capsys.readouterr().out.splitlines()[1:3], strict=True)] == [
        True,
        True,
    ]


def test_players_that_a_limit_stopped_are_counted_and_a_tiny_cost_is_no_zero(capsys: pytest.CaptureFixture[str]):
    limited = result_with("agent a", "its token limit was exceeded")
    print_results([limited, result_with("agent b")])
    header, first, second, means, *notes = capsys.readouterr().out.splitlines()
    assert header.endswith(" cost  stopped by a limit  lost to faults")
    assert [line.split()[-4:] for line in (first, second)] == [
        ["s", "$0.0000020", "1", "0"],
        ["s", "$0.0000020", "0", "0"],
    ]
    assert means == "Steps, tool errors, tokens, time and cost are means of an episode."
    assert "  1 of 1 episodes were stopped by a limit: its token limit was exceeded (1)" in notes
    assert notes.count("  All episodes together cost $0.0000020.") == 2
    assert limited.document()["stopped_by_limits"] == {"its token limit was exceeded": 1}


def test_a_log_that_a_later_one_continues_is_left_out(tmp_path: Path):
    with lossy() as address:
        log = evaluate(address, policy="random", num_tasks=4)
        assert Result.of(log).lost
        (tmp_path / "well").touch()
        assert envport_here("eval", "--resume", log.location).returncode == 0
    found = read_folders([tmp_path / "logs"])
    assert [one.name for one in found.superseded] == [Path(log.location).name]
    assert [len(one.played) for one in found.results] == [4]
    assert "Left out: 1 logs of evaluations that a later log continues." in shown("results", "logs")


def test_a_folder_without_logs_is_refused(tmp_path: Path):
    with pytest.raises(InvalidOption, match="there is no folder"):
        read_folders([tmp_path / "nowhere"])
    done = envport_here("results", str(tmp_path))
    assert done.returncode == 2
    assert "there is no log of an evaluation with envport in" in done.stderr
