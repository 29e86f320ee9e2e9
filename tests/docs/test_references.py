"""The page on references: its blocks are run, and what its tables say is so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from envport.references import ParsedReference, SchemeText
from envport.registry import load

PAGE = (Path(__file__).parents[2] / "gateway" / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def cell(text: str) -> str:
    return text.strip().partition("`, ")[0].strip("`")


def test_the_table_of_schemes_is_how_they_are_read() -> None:
    rows = re.findall(r"^\| (`\w+[:=].*?) \| (.*?) \|(.*?)\|$", PAGE, flags=re.MULTILINE)
    assert len(rows) == 6
    for text, rest, options in rows:
        parsed = ParsedReference.parse(cell(text))
        read = SchemeText.read(parsed.where, parsed.target.partition(":")[2], {"timeout", "map_name"})
        assert (read.rest, read.query) == (cell(rest), cell(options)), text


def test_the_scheme_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((language, block),) = BLOCKS[:1]
    assert language == "python"
    (tmp_path / "letters_scheme.py").write_text(block)
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
