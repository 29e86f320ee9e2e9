"""What the pages say is there is there."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest
from documents import pages
from packaging.version import Version

from envport.episodes.states import NEXT

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
ISOLATION = (ROOT / "gateway/envport/runtimes/ISOLATION.md").read_text()


def anchors(text: str) -> set[str]:
    """What a link can name on a page, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", pages())
def test_links_and_paths_lead_somewhere(page: str):
    text = (ROOT / page).read_text()
    folder = (ROOT / page).parent
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", text):
        led_to = folder / target if target else ROOT / page
        assert led_to.exists(), target
        assert not anchor or anchor in anchors(led_to.read_text()), f"{target}#{anchor}"
    # A template is a project of its own.
    root = folder if "templates" in folder.parts else ROOT
    for path in re.findall(r"`((?:gateway|bridges|envs|tests|examples)/[\w./-]+)`", text):
        assert (root / path).exists(), path


def test_the_names_in_the_architecture_are_in_the_code():
    texts = [path.read_text() for part in ("gateway", "bridges") for path in (ROOT / part).rglob("*.py")]
    words = [set(re.findall(r"\w+", text)) for text in texts]
    of_classes: dict[str, set[str]] = {}
    for text, found in zip(texts, words, strict=True):
        for cls in re.findall(r"^class (\w+)", text, flags=re.MULTILINE):
            of_classes[cls] = of_classes.get(cls, set()) | found
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name, member in re.findall(r"`([A-Z_]\w+)(?:\.(\w+))?`", ARCHITECTURE):
        assert any(name in found for found in words), name
        # In a file that defines the class: another class may have a method of that name.
        assert not member or member in of_classes[name], f"{name}.{member}"
    for name in re.findall(r"`(test_\w+)`", ARCHITECTURE + ISOLATION):
        assert f"def {name}(" in tests, name


def test_the_drawing_of_an_episode_s_life_is_the_table():
    drawn = set(re.findall(r"^    (\w+) --> (\w+)", ARCHITECTURE, flags=re.MULTILINE))
    assert drawn
    assert all(after in NEXT[before] for before, after in drawn if before in NEXT), drawn
    told = {
        (before, after) for before, afters in NEXT.items() for after in afters if after not in ("closed", "expired")
    }
    assert told <= drawn


def test_the_four_servers_are_all():
    servers = importlib.import_module("envport.mcp.servers")
    found = set(servers.__all__) - {servers.EnvironmentServer.__name__}
    table = ARCHITECTURE.split("### Four servers")[1].split("`McpSurface`")[0]
    assert found == set(re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE))


def test_the_lowest_versions_of_the_training_extra_are_in_the_table_of_its_page():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["trl"]
    lowest = dict(re.findall(r"(trl|transformers)>=([\d.]+)", " ".join(declared)))
    page = (ROOT / "bridges/envport_bridges/trl/README.md").read_text()
    table = page.split("### Versions")[1].split("\n## ")[0]
    works = re.findall(r"^\| ([\d.]+) \| ([\d.]+)[^|]*\|[^|]*\| (?!no )", table, flags=re.MULTILINE)
    for place, package in enumerate(("trl", "transformers")):
        assert Version(lowest[package]) == min(Version(row[place]) for row in works)
