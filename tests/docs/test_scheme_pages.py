"""The pages of the schemes: what their blocks serve can be loaded, and their tables name every option."""

from __future__ import annotations

import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from envport.registry import load, schemes

ENVIRONMENTS = Path(__file__).parents[2] / "envs" / "envport_envs"
NEEDS = {
    "bfcl": "bfcl_eval",
    "gymnasium": "gymnasium",
    "openspiel": "pyspiel",
    "reasoning_gym": "reasoning_gym",
    "textarena": "textarena",
    "browsergym": "browsergym.miniwob",
}


@pytest.fixture(params=NEEDS)
def scheme(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(NEEDS[request.param], reason=f"the extra {request.param} is not installed")
    return request.param


def page(scheme: str) -> str:
    return (ENVIRONMENTS / scheme / "README.md").read_text()


def test_every_reference_of_the_page_can_be_loaded(scheme: str) -> None:
    (block,) = re.findall(r"^```bash\n(.*?)^```$", page(scheme), flags=re.MULTILINE | re.DOTALL)
    references = [word for line in block.splitlines() for word in shlex.split(line)[2:]]
    assert len(references) > 4
    for reference in references:
        assert f"{scheme}:" in reference
        assert load(reference).tools


@pytest.mark.parametrize(
    ("scheme", "folder"),
    [
        ("gymnasium", "gymnasium"),
        ("openspiel", "openspiel"),
        ("browsergym", "browsergym"),
        ("mcp", "mcp_servers"),
        ("openenv", "openenv"),
        ("ors", "ors"),
    ],
)
def test_the_table_has_the_options_of_the_scheme(scheme: str, folder: str) -> None:
    pytest.importorskip(NEEDS.get(scheme, "envport"), reason=f"the extra {scheme} is not installed")
    told = re.search(r"^\| option \|(?: for \|)? \|\n(.*?)\n\n", page(folder), flags=re.MULTILINE | re.DOTALL)
    assert told is not None
    point = schemes()[scheme]
    parameters = inspect.signature(getattr(import_module(point.module), point.attr)).parameters.values()
    wanted = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    assert sorted(re.findall(r"^\| `(\w+)` \|", told[1], flags=re.MULTILINE)) == sorted(wanted)


@pytest.mark.parametrize("name", ["sqlite", "support", "workspace"])
def test_every_reference_of_a_built_in_s_page_can_be_loaded(name: str) -> None:
    (block,) = re.findall(r"^```bash\n(.*?)^```$", page(name), flags=re.MULTILINE | re.DOTALL)
    references = [word for line in block.splitlines() for word in shlex.split(line)[2:]]
    assert len(references) > 3
    for reference in references:
        assert name in reference
        assert load(reference).tools
