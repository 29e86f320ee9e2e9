"""`envport list`, `describe`, `check` and `version`."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import task_tools
from command_line import Served, envport, envport_here

from envport.registry import load


def test_list_shows_what_is_installed_and_why_the_rest_cannot_be_loaded(
    little_installed: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(little_installed))
    done = envport_here("list")
    assert done.returncode == 0, done
    assert re.search(r"^  counter +Counts up from 1", done.stdout, re.MULTILINE)
    below = done.stdout[done.stdout.index("Cannot be loaded:") :]
    assert re.search(r"^  broken +The broken environment needs .* pip install 'envport\[textarena\]'$", below, re.M)
    listed = {it["name"]: it for it in json.loads(envport_here("list", "--json").stdout)}
    assert listed["counter"]["version"] == "1"
    assert "envport[textarena]" in listed["broken"]["error"]


@pytest.mark.slow
def test_the_command_that_installs_an_extra_works_in_any_shell(broken_package: Path):
    """The pip that a shell finds may be that of another Python, for which envport is not installed."""
    found = {"PYTHONPATH": str(broken_package)}
    elsewhere = envport("list", PATH="/usr/bin:/bin", **found).stdout
    assert elsewhere.rstrip().endswith(f"{sys.executable} -m pip install 'envport[textarena]'")
    active = envport("list", PATH=str(Path(sys.executable).parent), **found).stdout
    assert active.rstrip().endswith("not installed: pip install 'envport[textarena]'")


def test_list_asks_a_gateway(gateway: Served):
    done = envport("list", "--url", gateway.url)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["catch", "counter", "showcase"]


def test_describe_shows_tools_with_what_their_arguments_may_be():
    done = envport("describe", "catch?rows=4")
    assert done.returncode == 0, done
    assert re.search(r"^  options +rows=4$", done.stdout, re.MULTILINE)
    assert re.search(r"^  splits +train \(\d+ tasks\), test \(\d+ tasks\)$", done.stdout, re.MULTILINE)
    assert load("catch?rows=4").fingerprint in done.stdout
    assert "\nmove(direction)\n" in done.stdout
    assert re.search(r'^  direction +one of "left", "stay", "right"\.', done.stdout, re.MULTILINE)


def test_describe_is_the_same_here_and_at_a_gateway(gateway: Served):
    here = json.loads(envport("describe", "showcase", "--json").stdout)
    there = json.loads(envport("describe", "showcase", "--json", "--url", gateway.url).stdout)
    assert there.pop("mcp_url") == f"{gateway.url}/environments/showcase/mcp"
    assert here == there
    assert here["tools"] == load("showcase").listing
    assert here["fingerprint"] == load("showcase").fingerprint


def test_describe_shows_the_tools_of_a_task():
    variables = {"PYTHONPATH": str(Path(task_tools.__file__).parent)}
    whole = envport("describe", "task_tools:Toolbox", **variables)
    assert re.search(r"^  tools +each task has tools of its own: --task INDEX shows them$", whole.stdout, re.MULTILINE)
    assert "\nsubtract(a, b)\n" in whole.stdout
    one = envport("describe", "task_tools:Toolbox", "--task", "1", **variables)
    assert "\nadd(a, b)\n" in one.stdout
    assert "subtract" not in one.stdout
    own = json.loads(envport("describe", "task_tools:Toolbox", "--task", "2", "--json", **variables).stdout)
    assert [tool["name"] for tool in own["tools"]] == ["add", "open", "peek"]
    spec = load("task_tools:Toolbox")
    assert own["fingerprint"] == spec.toolset_for(spec.task("train", 2)).fingerprint != spec.fingerprint
    missing = envport("describe", "task_tools:Toolbox", "--task", "9", **variables)
    assert missing.returncode != 0
    assert "has no task 9; allowed: 0 to 3" in missing.stderr


def test_check_passes_a_good_environment_and_names_what_is_wrong_with_a_bad_one(tmp_path: Path):
    done = envport("check", "counter")
    assert done.returncode == 0, done
    assert "counter keeps the authoring contract" in done.stdout
    (tmp_path / "bad.py").write_text(
        "import random\nfrom envport import *\n\nclass Bad(Environment):\n"
        "    def reset(self, *, seed: int, task: Task | None) -> str: return str(random.random())\n"
        "    @tool\n    def go(self) -> str:\n        return 'went'\n"
    )
    bad = envport("check", "bad.py:Bad", cwd=tmp_path)
    assert bad.returncode == 1
    assert "error [" in bad.stdout
    assert bad.stderr.startswith("error: bad breaks the authoring contract")


def test_version():
    for words in (("version",), ("--version",), ("-V",)):
        assert envport(*words).stdout == f"envport {version('envport')}\n"


def test_the_list_has_schemes_and_what_is_a_pip_install_away():
    listed = {it["name"]: it for it in json.loads(envport_here("list", "--json").stdout)}
    assert listed["mcp:"]["description"].startswith("Any MCP server: ")
    shown = envport_here("list").stdout
    assert "With one word more:" in shown
    for scheme, package in (("openspiel:", "pyspiel"), ("textarena:", "textarena")):
        assert ("description" in listed[scheme]) == (find_spec(package) is not None)
        assert "description" in listed[scheme] or "pip install" in listed[scheme]["error"]
