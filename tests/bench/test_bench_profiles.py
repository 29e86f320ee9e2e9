"""Profiles of the bench, its plot, and its list of functions."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from envport.bench.command import bench
from envport.bench.profiles import read_profile
from envport.errors import ConfigurationError, GatewayUnreachable, MissingExtra

needs_load = pytest.mark.skipif(find_spec("aiohttp") is None, reason="needs the extra envport[bench]")

app = typer.Typer()
app.command()(bench)


def profile(folder: Path, text: str) -> str:
    file = folder / "envport.toml"
    file.write_text(text, "utf-8")
    return str(file)


@needs_load
def test_a_profile_says_what_is_measured_and_options_override_it(tmp_path: Path) -> None:
    file, plot = tmp_path / "bench.json", tmp_path / "bench.svg"
    given = profile(tmp_path, '[bench]\nconcurrency = [2]\ncalls = 8\nrounds = 1\nonly = ["channel"]\n')
    options = ["--profile", given, "--rounds", "2", "--json", str(file), "--plot", str(plot)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(file.read_text("utf-8"))
    assert [(row["target"], row["callers"], row["calls"]) for row in report["rows"]] == [
        ("websocket", 2, 16),
        ("channel", 2, 16),
    ]
    assert report["opens"] == report["held"] == report["growth"] == []
    assert "<svg" in plot.read_text("utf-8")


@pytest.mark.slow
@needs_load
def test_a_profile_says_how_the_gateway_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Would shut callers without a token out.
    monkeypatch.setenv("ENVPORT_TOKEN", "a-token-of-the-user-that-is-long-enough")
    bench_table = '[bench]\nconcurrency = [2]\ncalls = 8\nrounds = 1\nonly = ["channel"]\n'
    serve_table = "[serve]\nmax-episodes = 1\nwait-seconds = 0\n"
    result = CliRunner().invoke(app, ["--profile", profile(tmp_path, bench_table + serve_table)])
    assert isinstance(result.exception, GatewayUnreachable)
    assert "capacity" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[bench]\ncall = 3\n", "unknown key 'call'; allowed: concurrency, calls"),
        ("[bench]\nrounds = 0\n", "rounds is 0"),
        ('[serve]\ntoken-file = "tokens"\n', "token-file"),
        ("[bank]\n", "allowed: serve, environments, bench"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_profile(profile(tmp_path, text))


def test_a_profile_that_is_not_there_is_refused_and_the_others_named() -> None:
    with pytest.raises(ConfigurationError, match="'fast': it is a TOML file, or one of full, quick"):
        read_profile("fast")


@pytest.mark.parametrize(
    "options",
    [
        ["--quick", "--profile", "quick"],
        ["--flame", "opens"],
        ["--only", "opens", "--plot", "bench.svg"],
    ],
)
def test_options_that_do_not_go_together_are_refused(options: list[str]) -> None:
    assert CliRunner().invoke(app, options).exit_code == 2


def test_a_plot_that_cannot_be_drawn_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = [CliRunner().invoke(app, ["--plot", str(tmp_path / name)]) for name in ("bench.pdf", "no/bench.png")]
    assert [type(result.exception) for result in said] == [ConfigurationError] * 2
    assert ".svg" in str(said[0].exception)
    monkeypatch.setattr("envport.bench.plot.find_spec", lambda _: None)
    result = CliRunner().invoke(app, ["--plot", str(tmp_path / "bench.png")])
    assert isinstance(result.exception, MissingExtra)


@needs_load
def test_a_flame_names_the_functions_of_the_gateway() -> None:
    result = CliRunner().invoke(app, ["--quick", "--calls", "200", "--flame", "channel"])
    assert result.exit_code == 0, result.output
    own, cumulative = result.stdout.split("by cumulative CPU time")
    assert "by own CPU time" in own
    # Once a call, and by far the most of its time.
    (line,) = [line for line in cumulative.splitlines() if "envport/channel/connection.py" in line and "_take" in line]
    share, times = map(float, line.split()[1:3])
    assert share > 30
    assert times == pytest.approx(1.0, abs=0.1)


def test_the_profile_of_the_page_is_one(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "gateway/envport/bench/README.md"
    (text,) = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    table, gateway = read_profile(profile(tmp_path, text))
    assert (table.concurrency, table.only, table.grown) == ([16, 64], ["channel", "opens", "growth"], 2_000)
    assert gateway is not None
    assert gateway.settings == {"max-episodes": 3_000, "sdk-only": True}
