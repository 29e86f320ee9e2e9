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
from envport.bench.against import PeerRow
from envport.bench.command import bench
from envport.bench.jobs import SessionCosts
from envport.bench.measure import Bench, Growth, Held, MeasuredRow, Opens
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


@pytest.mark.slow
@needs_load
def test_a_quick_run_has_every_row_and_sane_numbers(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    result = CliRunner().invoke(app, ["--quick", "--json", str(file)])
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text("utf-8"))
    rows = report["rows"]
    assert [(row["callers"], row["target"]) for row in rows] == [(4, name) for name in TARGETS]
    for row in rows:
        assert row["calls"] == 120
        # How fast it is says the machine; the figures have to be there and to fit together.
        assert 0 < row["calls_per_second"] < 1e6
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert row["tail"] >= 1
        assert row["cpu_us"] > 0
        assert 0 < row["busy"] < 4
        assert (row["ratio"] is not None) == (TARGETS[row["target"]].floor is not None)
        assert row["ratio"] == (median(row["ratios"]) if row["ratios"] else None)
        assert all(ratio > 0 for ratio in row["ratios"])
        assert TARGETS[row["target"]].title in result.stdout
    for opens in report["opens"]:
        assert opens["count"] == 80
        assert 0 < opens["per_second"] < 1e6
        assert opens["ratio"] == median(opens["ratios"]) > 0
    for growth in report["growth"]:
        assert (growth["few"], growth["many"]) == (10, 40)
        assert growth["few_us"] > 0
        assert growth["many_us"] > 0
        assert growth["ratio"] == median(growth["ratios"]) > 0
    ways = ["channel", "episode-modern"]
    assert [opens["target"] for opens in report["opens"]] == [growth["target"] for growth in report["growth"]] == ways
    assert "Open and close" in result.stdout
    assert "Growth" in result.stdout
    assert [(held["target"], held["count"]) for held in report["held"]] == [
        ("episode-modern", 40),
        ("episode-legacy", 40),
    ]
    assert all(10 < held["before_mb"] < 1_000 and held["each_kb"] < 1_000 for held in report["held"])
    assert all(map(math.isfinite, numbers(report)))
    assert {"envport", "mcp"} <= set(report["versions"])


# So does the profile of `test_bench_profiles`, with another target.
@pytest.mark.slow
@needs_load
def test_only_measures_what_is_named_and_its_floor() -> None:
    report = run_bench(
        MeasuringPlan(("episode-legacy",), concurrency=(2,), calls=4, rounds=1, opens=0, held=0, grown=0)
    )
    assert [row.target for row in report.rows] == ["minimal-legacy", "episode-legacy"]
    assert report.opens == ()
    assert report.held == ()
    assert report.growth == ()
    assert report.against == ()


@needs_load
def test_a_wrong_answer_gives_no_figures() -> None:
    # The bare echo answers whatever it is sent, and never opens an episode.
    target = replace(TARGETS["minimal-legacy"], server="bare")
    with ExitStack() as stack, pytest.raises(GatewayUnreachable, match="minimal mcp"):
        Bench(stack).job("calls", target, 1, 2)


def row(target: str, ratio: float | None, callers: int = 16, tail: float = 1.0) -> MeasuredRow:
    return MeasuredRow(target, callers, 100, 1.0, 1.0, 1.0, tail, 1.0, 1.0, ratio, (ratio,) if ratio else ())


def held(target: str, each_kb: float) -> Held:
    return Held(target, 1_000, 60.0, each_kb, each_kb)


def opens(target: str, ratio: float) -> Opens:
    return Opens(target, 500, 16, 1.0, 1.0, 1.0, 1.0, ratio, (ratio,))


def growth(target: str, ratio: float) -> Growth:
    return Growth(target, 10, 10_000, 10, 1_000, 100.0, 100.0 * ratio, ratio, (ratio,))


def step(
    kind: str,
    most: float,
    ratio: float,
    sessions: int = 64,
    served: float = 0.8,
    opened_ratio: float = 1.0,
    held_ratio: float = 0.5,
) -> PeerRow:
    name, title, one = f"openenv-{kind}", f"OpenEnv, {kind}", 1.0
    costs = (ratio, (ratio,), served, (served,), SessionCosts(one, one, one), opened_ratio, held_ratio)
    return PeerRow(name, title, sessions, 100, one, one, one, one, one, most, 0.8, *costs)


def test_targets_that_are_missed_are_said() -> None:
    met = Report(
        (row("bare", None), row("episode-modern", 0.6), row("channel", 3.0, 256, 4.0), row("channel", 3.0, 64, 9.0)),
        (opens("channel", 2.0),),
        (held("episode-modern", 60.0),),
        (growth("channel", 1.2), growth("episode-modern", 1.2)),
        (step("plain", 0.5, 0.5), step("mcp", 0.08, 0.08), step("plain", 0.5, 0.9, sessions=1)),
    )
    assert met.missed == []
    slow = Report(
        (row("episode-modern", 0.61), row("channel", 3.1), row("episode-legacy", 0.1, 256, 4.1)),
        (opens("channel", 2.1),),
        (held("episode-modern", 61.0),),
        (growth("channel", 1.21), growth("episode-modern", 1.3)),
        (step("plain", 0.5, 0.51), step("mcp", 0.08, 0.081), step("plain", 0.5, 0.1, 64, 0.81, 0.99, 0.51)),
    )
    expected = (
        "0.61 x",
        "rollout channel",
        "p99 at 256",
        "61.0 MB",
        "2.10 calls",
        "1.21 x",
        "1.30 x",
        "0.510",
        "0.081",
        "0.81 x the CPU",
        "0.99 x as many",
        "0.51 x the memory",
    )
    assert [want in said for want, said in zip(expected, slow.missed, strict=True)] == [True] * 12, slow.missed
    # The other ways to play are shown, not judged.
    shown = Report((row("shared-modern", 9.0),), (opens("episode-modern", 9.0),), (held("episode-legacy", 99.0),))
    assert shown.missed == []


@pytest.mark.slow
@needs_load
def test_assert_exits_with_1_when_a_target_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envport.bench.report.MAX_HELD_MB", -1e6)
    assert CliRunner().invoke(app, ["--quick", "--only", "memory", "--assert"]).exit_code == 1


@pytest.mark.parametrize(
    "arguments", [["--only", "everything"], ["--against", "everybody"], ["--json", "no/such/folder/bench.json"]]
)
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
