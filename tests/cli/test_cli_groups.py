"""Options in groups, through a command that another package contributes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from command_line import envport_here

GROUPS = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from envport.cli.groups import OptionGroup, grouped


@dataclass(frozen=True)
class Cake(OptionGroup):
    title = "Cake"

    eggs: Annotated[int, typer.Option(min=1, help="How many eggs.")] = 3
    topping: Annotated[tuple[str, ...], typer.Option("--topping", "-t", metavar="NAME")] = ()
    flour: Annotated[str | None, typer.Option(help="Which flour.")] = None


@dataclass(frozen=True)
class Oven(OptionGroup):
    seconds: Annotated[float, typer.Option(help="How long.")] = 60.0


@dataclass(frozen=True)
class Icing(OptionGroup):
    eggs: Annotated[int, typer.Option()] = 1


@grouped
def bake(name: str, cake: Cake, *, oven: Oven) -> None:
    """Bake a cake."""
    print(name, cake, oven)
'''

TWICE = """
from groups_of_a_bakery import Cake, Icing, grouped


@grouped
def bake(cake: Cake, icing: Icing) -> None: ...
"""


@pytest.fixture(autouse=True)
def bakery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with the command `bake`."""
    (tmp_path / "groups_of_a_bakery.py").write_text(GROUPS)
    (tmp_path / "eggs_twice.py").write_text(TWICE)
    info = tmp_path / "bakery-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bakery\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[envport.commands]\nbake = groups_of_a_bakery:bake\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ((), "plum Cake(eggs=3, topping=(), flour=None) Oven(seconds=60.0)"),
        (
            ("--eggs", "4", "--topping", "nuts", "-t", "cream", "--flour", "rye", "--seconds", "5"),
            "plum Cake(eggs=4, topping=('nuts', 'cream'), flour='rye') Oven(seconds=5.0)",
        ),
    ],
)
def test_a_command_gets_one_object_for_each_group(words: tuple[str, ...], made: str):
    done = envport_here("bake", "plum", *words)
    assert (done.returncode, done.stdout.strip()) == (0, made), done.stderr


def test_a_bad_value_is_refused_as_for_any_option():
    done = envport_here("bake", "plum", "--eggs", "0")
    assert done.returncode == 2
    assert done.stderr.startswith("error: Invalid value for '--eggs': ")


def test_each_group_is_a_panel_of_the_help():
    shown = envport_here("bake", "--help").stdout
    first, cake = shown.split(" Cake ")
    assert "Bake a cake." in first
    assert "--seconds" in first
    for option in ("--eggs", "--topping", "--flour"):
        assert option in cake
    assert "[default: 3]" in cake


def test_two_groups_may_not_declare_one_name():
    with pytest.raises(TypeError, match="bake: two options are named 'eggs'"):
        importlib.import_module("eggs_twice")
