"""The bench runs for real: its servers, its load generator, its report."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from envport.bench import MeasuringPlan, run_bench
from envport.bench.command import bench
from envport.bench.measure import Bench, Held, MeasuredRow
from envport.bench.report import Report
from envport.bench.targets import TARGETS
from envport.errors import ConfigurationError, GatewayUnreachable, MissingExtra

needs_load = pytest.mark.skipif(find_spec("aiohttp") is None, reason="needs the extra envport[bench]")

app = typer.Typer()
app.command()(bench)


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list | tuple):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, int | float) else []


@needs_load
def test_a_quick_run_has_every_row_and_sane_numbers(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    result = CliRunner().invoke(app, ["--quick", "--json", str(file)])
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text("utf-8"))
    rows = report["rows"]
    assert [(row["callers"], row["target"]) for row in rows] == [(n, name) for n in (1, 4) for name in TARGETS]
    for row in rows:
        assert row["calls"] == 120
        # How fast it is says the machine; the figures have to be there and to fit together.
        assert 0 < row["calls_per_second"] < 1e6
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert row["cpu_us"] > 0
        assert 0 < row["busy"] < 4
        assert (row["ratio"] is not None) == (TARGETS[row["target"]].floor is not None)
        assert row["ratio"] == (median(row["ratios"]) if row["ratios"] else None)
        assert all(ratio > 0 for ratio in row["ratios"])
        assert TARGETS[row["target"]].title in result.stdout
    assert report["opens"]["count"] == 40
    assert 0 < report["opens"]["per_second"] < 1e6
    assert [(held["target"], held["count"]) for held in report["held"]] == [
        ("episode-modern", 40),
        ("episode-legacy", 40),
    ]
    assert all(10 < held["before_mb"] < 1_000 and held["each_kb"] < 1_000 for held in report["held"])
    assert all(map(math.isfinite, numbers(report)))
    assert {"envport", "mcp"} <= set(report["versions"])


@needs_load
def test_only_measures_what_is_named_and_its_floor() -> None:
    report = run_bench(MeasuringPlan(("episode-legacy",), concurrency=(2,), calls=4, rounds=1, opens=0, held=0))
    assert [row.target for row in report.rows] == ["minimal-legacy", "episode-legacy"]
    assert report.opens is None
    assert report.held == ()


@needs_load
def test_a_wrong_answer_gives_no_figures() -> None:
    # The bare echo answers whatever it is sent, and never opens an episode.
    target = replace(TARGETS["minimal-legacy"], server="bare")
    with ExitStack() as stack, pytest.raises(GatewayUnreachable, match="minimal mcp"):
        Bench(stack).job("calls", target, 1, 2)


def row(target: str, ratio: float | None) -> MeasuredRow:
    return MeasuredRow(target, 16, 100, 1.0, 1.0, 1.0, 1.0, 1.0, ratio, (ratio,) if ratio else ())


def held(target: str, each_kb: float) -> Held:
    return Held(target, 1_000, 60.0, each_kb, each_kb)


def test_targets_that_are_missed_are_said() -> None:
    met = Report((row("bare", None), row("episode-modern", 0.6)), held=(held("episode-modern", 60.0),))
    assert met.missed == []
    slow = Report((row("episode-modern", 0.61), row("channel", 3.1)), held=(held("episode-modern", 61.0),))
    assert len(slow.missed) == 3
    assert "0.61 x" in slow.missed[0]
    assert "rollout channel" in slow.missed[1]
    assert "61.0 MB" in slow.missed[2]
    # The other ways to play are shown, not judged.
    assert Report((row("shared-modern", 9.0),), held=(held("episode-legacy", 99.0),)).missed == []


@needs_load
def test_assert_exits_with_1_when_a_target_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envport.bench.report.MAX_HELD_MB", -1e6)
    assert CliRunner().invoke(app, ["--quick", "--only", "memory", "--assert"]).exit_code == 1


@pytest.mark.parametrize("arguments", [["--only", "everything"], ["--json", "no/such/folder/bench.json"]])
def test_what_cannot_be_done_is_refused_at_once(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envport.bench.run.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"envport\[bench\]"):
        run_bench()


def test_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envport.bench.processes.Path.exists", lambda _: False)
    with pytest.raises(ConfigurationError, match="/proc"):
        run_bench()
