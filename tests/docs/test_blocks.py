"""Every code block of every page is run by a test, or `blocks.toml` says why none runs it."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from documents import ROOT, blocks_of, pages

LISTED = tomllib.loads(Path(__file__).with_name("blocks.toml").read_text())
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


@pytest.mark.parametrize("page", pages())
def test_every_block_is_listed(page: str):
    firsts = [block.first for block in blocks_of(page)]
    assert len(set(firsts)) == len(firsts), "two blocks begin with the same line; they are known by it"
    assert set(firsts) == set(LISTED.get(page, {})), "list the blocks of the page in tests/docs/blocks.toml"


def test_every_listed_page_is_there():
    assert set(LISTED) <= set(pages())


@pytest.mark.parametrize("page", LISTED)
def test_a_listed_test_is_there_and_reads_the_page_and_a_reason_is_one(page: str):
    for what in LISTED[page].values():
        found = TEST.fullmatch(what)
        if found is None:
            assert len(what.split()) > 1, what
            for file in re.findall(r"tests/[\w/]+\.py", what):
                assert (ROOT / file).is_file(), file
            continue
        source = (ROOT / found[1]).read_text()
        assert (Path(page).parent.name or page) in source, what
        assert found[2] in {it.name for it in ast.walk(ast.parse(source)) if hasattr(it, "name")}, what


def test_a_program_of_a_page_is_python():
    for page in pages():
        for block in blocks_of(page):
            if block.language == "python":
                compile(block.body, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
