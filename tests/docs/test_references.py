"""The page on references: its blocks are run, and what its tables say is so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from envport.environment_file import EnvironmentFile, _Limits
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
        read = SchemeText.read(parsed.where, parsed.target.partition(":")[2], {"timeout", "render"})
        assert (read.rest, read.query) == (cell(rest), cell(options)), text


def test_the_scheme_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, block),) = [it for it in BLOCKS if it[0] == "python"]
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


def test_the_file_of_the_page_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, block),) = [it for it in BLOCKS if it[0] == "toml"]
    (tmp_path / "envport.toml").write_text(block)
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
    keys = re.search(r"^\| `limits` \| (.*?): in place", PAGE, flags=re.MULTILINE)
    assert keys is not None
    assert re.findall(r"`(.*?)`", keys[1]) == [field.alias for field in _Limits.model_fields.values()]
