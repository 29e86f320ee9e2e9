"""The front page: what it tells a newcomer to type works, and its figures are those that the benchmark judges."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import environment, envport, envport_here
from documents import ROOT, block, blocks_of, commands
from harness import running
from patience import patient

from envport.bench.peers import HELD_MOST, PEERS
from envport.bench.targets import TARGETS
from envport.registry import load

PAGE = "README.md"
README = (ROOT / PAGE).read_text()


def test_it_is_short():
    assert len(README.splitlines()) <= 120


def test_it_has_the_two_commands_and_one_drawing():
    assert block(PAGE, "make serve") == "make serve\nmake test\n"
    assert [it.language for it in blocks_of(PAGE)].count("mermaid") == 1


def test_the_lines_without_make_run(tmp_path: Path):
    install, play, serve = block(PAGE, "pip install ./gateway/envport-client .").splitlines()
    for distribution in install.split()[2:]:
        assert (ROOT / distribution / "pyproject.toml").is_file()
    # One of them editable and the other not, some modules cannot be imported.
    assert f"`pip install {' '.join(f'-e {one}' for one in install.split()[2:])}`" in README
    assert serve == "envport serve"
    done = envport(*play.split()[1:], "--seed", "3", stdin="1\n" * 9)
    assert done.returncode == 0, done.stderr
    assert "The game is over." in done.stdout


def test_the_attach_line_is_the_one_that_the_command_prints():
    (line,) = [line for line in commands(PAGE) if line.startswith("claude")]
    with running(load("catch")) as gateway:
        done = envport_here("attach", "catch", "--url", gateway.url)
    assert done.returncode == 0, done.stderr
    printed = [shlex.split(text) for text in done.stdout.splitlines() if "claude mcp" in text]
    assert shlex.split(line.replace("http://127.0.0.1:8000", gateway.url)) in printed


def test_the_targets_beside_others_are_those_of_the_benchmark():
    peer = PEERS["openenv"]
    plain, mcp = peer.targets
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in README.splitlines() if "at most" in line]
    assert [[float(number) for number in re.findall(r"\d+\.?\d*", row[2])] for row in rows] == [
        [TARGETS["episode-modern"].most],
        [TARGETS["channel"].most],
        [plain.most],
        [mcp.most],
        [plain.served_most, mcp.served_most],
        [HELD_MOST],
    ]
    assert TARGETS["episode-modern"].most == TARGETS["episode-legacy"].most
    # What was missed says so.
    for row in rows:
        targets, measured = ([float(number) for number in re.findall(r"\d+\.?\d*", cell)] for cell in row[2:4])
        missed = any(found > targets[min(place, len(targets) - 1)] for place, found in enumerate(measured))
        assert ("missed" in row[3]) == missed, row


def test_the_picture_loads_nothing():
    picture = (ROOT / "gateway/pictures/terminal.svg").read_text()
    assert not re.search(r"url\(['\"]?http|@import|<image|<script|href=", picture)


@pytest.mark.slow
def test_the_picture_shows_what_the_commands_print():
    recorded = subprocess.run(
        [sys.executable, str(ROOT / "gateway/pictures/record.py"), "/dev/stdout"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=patient(60),
        check=True,
    )
    assert recorded.stdout == (ROOT / "gateway/pictures/terminal.svg").read_text()
