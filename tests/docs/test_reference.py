"""The reference of the public API has what the pages tell to import, and shows its docstrings as they are meant."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe
import pytest
from documents import ROOT, blocks_of, pages

pdoc = pytest.importorskip("pdoc", reason="pdoc is not installed (extra docs)")
helpers = importlib.import_module("pdoc.render_helpers")

SECTION = re.compile(r"^ *(Args|Attributes|Raises|Returns|Yields):$", flags=re.MULTILINE)
SHOWN = {"Args": "Arguments"}
# They import torch or Inspect, which takes seconds.
HEAVY = {"envport_bridges.trl", "envport_bridges.inspect_ai"}


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "gateway/reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = script()
LIGHT = [name for name in reference.MODULES if name not in HEAVY]


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    reference.prepare(LIGHT)


def documented(member: Any) -> Iterator[Any]:
    """A module, class or function, and what is public in it."""
    yield member
    for inner in getattr(member, "members", {}).values():
        if not inner.name.startswith("_") and inner.modulename.startswith("envport"):
            yield from documented(inner)


def test_it_has_every_module_that_a_page_imports():
    programs = [block.body for page in pages() for block in blocks_of(page) if block.language == "python"]
    found = {name for text in programs for name in re.findall(r"^from (envport[\w.]*) import", text, re.MULTILINE)}
    assert "envport_bridges.rollouts" in found
    assert found <= set(reference.MODULES)


@pytest.mark.parametrize("name", LIGHT)
def test_every_public_name_is_shown_with_its_docstring(name: str):
    module = pdoc.doc.Module.from_name(name)
    public = set(sys.modules[name].__all__)
    assert public <= set(module.members)
    page = pdoc.render.html_module(module, {name: module})
    assert public <= set(re.findall(r'id="(\w+)"', page))
    # A type alias has none to have.
    without = [it.fullname for it in documented(module) if it.kind != "variable" and not it.docstring]
    assert not without


@pytest.mark.parametrize("name", LIGHT)
def test_the_sections_of_docstrings_are_google_s(name: str, caplog: pytest.LogCaptureFixture):
    for member in documented(pdoc.doc.Module.from_name(name)):
        text = member.docstring
        html = helpers.to_html(helpers.docstrings.convert(text, "google", None))
        shown = set(re.findall(r"<h6 id=\"[\w-]+\">(\w+):?</h6>", html))
        assert {SHOWN.get(section, section) for section in SECTION.findall(text)} <= shown, member.fullname
        assert not re.search(r"<p>(Args|Attributes|Raises|Returns|Yields|Example):", html), member.fullname
        with caplog.at_level(logging.WARNING):
            griffe.Docstring(text).parse("google", warn_unknown_params=False, warn_missing_types=False)
        assert not caplog.messages, member.fullname


@pytest.mark.slow
def test_it_is_made_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for package in ("trl", "inspect_ai"):
        pytest.importorskip(package)
    reference.main([str(tmp_path)])
    assert (tmp_path / "index.html").as_uri() in capsys.readouterr().out
    for name in reference.MODULES:
        assert (tmp_path / f"{name.replace('.', '/')}.html").is_file()
    # Nothing is asked of another host.
    for file in tmp_path.rglob("*.html"):
        assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?:", file.read_text()), file
