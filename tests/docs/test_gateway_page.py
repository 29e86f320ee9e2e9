"""The gateway's page: its blocks are run, and what its tables say is so."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx2
import pytest
from documents import ROOT, block, commands
from harness import running
from patience import patient

from envport import Client
from envport.access import Access
from envport.environment_file import EnvironmentFile, _Limits
from envport.references import ParsedReference, SchemeText
from envport.registry import load

PAGE = "gateway/README.md"
TEXT = (ROOT / PAGE).read_text()
SCHEMES = TEXT.partition("\n## Schemes\n")[2].partition("\n## ")[0]


def test_the_control_plane_s_block_runs():
    with running(load("counter")) as gateway:
        source = block(PAGE, "import anyio").replace("http://127.0.0.1:8000", gateway.url)
        done = subprocess.run(
            [sys.executable, "-c", source],
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "truncated 3 None\n"


def test_the_line_that_watches_runs():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the exporter is not installed (extra otel)")
    from collector import Collector

    line = next(line for line in commands(PAGE) if line.startswith("OTEL_"))
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
    body = block(PAGE, "[[tokens]]")
    assert len(tomllib.loads(body)["tokens"]) == 2
    file = tmp_path / "tokens.toml"
    file.write_text(body)
    principal = Access.load({}, file).authenticate("Bearer the-trainer-s-own-long-token")
    assert principal is not None
    assert principal.name == "trainer"


def cell(text: str) -> str:
    return text.strip().partition("`, ")[0].strip("`")


def test_the_table_of_schemes_is_how_they_are_read() -> None:
    rows = re.findall(r"^\| (`\w+[:=].*?) \| (.*?) \|(.*?)\|$", SCHEMES, flags=re.MULTILINE)
    assert len(rows) == 6
    for text, rest, options in rows:
        parsed = ParsedReference.parse(cell(text))
        read = SchemeText.read(parsed.where, parsed.target.partition(":")[2], {"timeout", "render"})
        assert (read.rest, read.query) == (cell(rest), cell(options)), text


def test_the_scheme_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = block(PAGE, "from envport import Environment, Task, tool")
    (tmp_path / "letters_scheme.py").write_text(source)
    info = tmp_path / "letters-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[envport.schemes]\nletters = letters_scheme:letters\n")
    monkeypatch.syspath_prepend(tmp_path)
    spec = load("mine=letters:banana?loud=true")
    assert (spec.name, spec.options, spec.unshown_options) == (
        "mine",
        {"word": "banana", "loud": True},
        {"found": ["a", "b", "n"]},
    )
    del sys.modules["letters_scheme"]


def test_the_file_of_the_page_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "envport.toml").write_text(block(PAGE, "[serve]"))
    (tmp_path / "shop.py").write_text(
        "from envport import Environment, tool\n\n\nclass Shop(Environment):\n"
        "    def reset(self, *, seed, task): ...\n\n    @tool\n    def buy(self) -> str: ...\n"
    )
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "shop").write_text("of a file\n")
    monkeypatch.setenv("SHOP_API_KEY", "of a variable")
    file = EnvironmentFile.read(tmp_path / "envport.toml")
    assert set(file.serve) == {"port", "max-episodes"}
    small, shop = (load(file.reference(name)) for name in file.tables)
    assert (small.prototype.max_steps, small.options) == (20, {"rows": 5, "columns": 5})
    assert shop.secrets == {"API_KEY": "of a variable", "PASSWORD": "of a file"}
    keys = re.search(r"^\| `limits` \| (.*?): in place", TEXT, flags=re.MULTILINE)
    assert keys is not None
    assert re.findall(r"`(.*?)`", keys[1]) == [field.alias for field in _Limits.model_fields.values()]
