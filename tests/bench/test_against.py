"""The bench against a peer: its packages, its server and its client, and ours beside them."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import pytest
import typer
from typer.testing import CliRunner

from envport.bench.command import bench
from envport.bench.peer_packages import peer_python
from envport.bench.peers import PEERS
from envport.errors import ConfigurationError

needs_load = pytest.mark.skipif(find_spec("aiohttp") is None, reason="needs the extra envport[bench]")

app = typer.Typer()
app.command()(bench)


@pytest.mark.slow
def test_without_a_registry_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Nothing listens there.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    said: list[str] = []
    with pytest.raises(ConfigurationError, match=r"package registry.*a-package-that-nobody-has"):
        peer_python("openenv", ("a-package-that-nobody-has",), said.append)
    assert str(tmp_path) in said[0]
    # What was begun is not taken for what is there.
    assert not list(tmp_path.rglob("made"))


def test_without_a_place_it_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "envport").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="XDG_CACHE_HOME"):
        peer_python("openenv", (), print)


@pytest.mark.slow  # Installs 500 MB of packages for 45 s of CPU time, and needs a package registry.
@needs_load
def test_openenv_is_played_by_its_own_client(tmp_path: Path) -> None:
    file = tmp_path / "against.json"
    options = ["--against", "openenv", "--quick", "--concurrency", "2", "--json", str(file)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text("utf-8"))
    assert report["rows"] == report["opens"] == report["held"] == report["growth"] == []
    ours, served, *its = report["against"]
    assert served["target"] == "served"
    assert [row["target"] for row in its] == ["openenv-plain", "openenv-mcp"]
    assert ours["ratio"] is None
    for row in (ours, served, *its):
        assert (row["sessions"], row["steps"]) == (2, 120)
        assert row["server_us"] > 0
        assert row["client_us"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert row["title"] in result.stdout
    assert all(row["ratio"] == median(row["ratios"]) > 0 for row in its)
    assert ours["opening"] is None
    for row in (served, *its):
        assert row["opening"]["per_second"] > 0
    assert served["opening"]["threads"] == 0
    assert all(row["opened_ratio"] == served["opening"]["per_second"] / row["opening"]["per_second"] for row in its)
    assert all(row["served_ratio"] == median(row["served_ratios"]) > 0 for row in its)
    # Made once, and without what takes gigabytes.
    said: list[str] = []
    python = peer_python("openenv", PEERS["openenv"].requirements, said.append)
    assert said == []
    found = subprocess.run([python, "-I", "-m", "pip", "list", "--format", "freeze"], capture_output=True, text=True)
    assert "openenv==0.10" in found.stdout
    assert not {"torch", "nvidia"} & {line.partition("==")[0].partition("-")[0] for line in found.stdout.splitlines()}
