"""Each line for a shell, on each page, is one that its program takes: the command, option, target or file exists."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import shutil
import tomllib
from typing import Any

import pytest
import typer
from documents import ROOT, blocks_of, pages

from envport.cli import application

LINES = [
    pytest.param(page, line, id=f"{page}: {line[:60]}")
    for page in pages()
    for it in blocks_of(page)
    if it.language in ("bash", "sh")
    for line in it.lines
]
# Programs of others, whose lines only they can judge.
FOREIGN = {"cd", "claude", "docker", "export", "inspect", "jupyter", "kubectl", "printf", "ray", "vf-eval", "vllm"}
MAKE = (ROOT / "Makefile").read_text()


def words_of(line: str) -> list[str]:
    """The words of a line without the variables before its command, its comment, and where its output goes."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return words[: words.index(">")] if ">" in words else words


@functools.cache
def command(name: str) -> Any:
    application._register([name])
    group: Any = typer.main.get_command(application.app)
    return group.commands[name]


def pip_takes(words: list[str]) -> None:
    assert words[0] == "install", words
    extras = {
        distribution: tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"].get(
            "optional-dependencies", {}
        )
        for distribution, folder in (("envport", "."), ("envport-client", "gateway/envport-client"))
    }
    for word in words[1:]:
        if word.startswith("-"):
            continue
        name, _, wanted = word.rstrip("]").partition("[")
        if name.startswith(".") or "envport" not in name:
            continue
        assert all(extra in extras[name] for extra in wanted.split(",") if extra), word


def python_takes(words: list[str]) -> None:
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]), words[1]
    else:
        assert (ROOT / words[0]).is_file(), words[0]


@pytest.mark.parametrize(("page", "line"), LINES)
def test_the_line_is_one_that_its_program_takes(page: str, line: str) -> None:
    # A line that only sets a variable has no program.
    program, *words = words_of(line) or ["export"]
    if program == "envport":
        command(words[0]).make_context(words[0], words[1:])
    elif program == "make":
        for target in words:
            assert "=" in target or re.search(rf"^{target}:", MAKE, flags=re.MULTILINE), target
    elif program == "pip":
        pip_takes(words)
    elif program == "python":
        python_takes(words)
    elif program == "pytest":
        assert shutil.which("pytest")
    else:
        assert program in FOREIGN, f"{page}: {program}"
