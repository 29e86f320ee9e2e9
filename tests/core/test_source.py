"""The fingerprint of an environment's source: it changes with the code, and with nothing else."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from envport import Environment
from envport.registry import EnvironmentDefinition, load
from envport.source import source_fingerprint

SHOP = """
from shop_package.prices import PRICE
from shop_package import taxes
from envport import Environment, tool


class Shop(Environment):
    '''A shop.'''

    def reset(self, *, seed, task):
        return "open"

    @tool
    def buy(self) -> str:
        '''Buy.'''
        from shop_package.late import LATE

        return str(PRICE + taxes.TAX + LATE)
"""
FILES = {
    "__init__.py": "",
    "shop.py": SHOP,
    "prices.py": "from .coins import COIN\nPRICE = 3 * COIN\n",
    "coins.py": "COIN = 1\n",
    "taxes.py": "TAX = 1\n",
    "late.py": "LATE = 0\n",
    "other.py": "OTHER = 1\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shop_package"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    return folder


def forget() -> None:
    """Have the modules imported again, as in a new process."""
    for name in [name for name in sys.modules if name.startswith(("shop_package", "envport_file_"))]:
        del sys.modules[name]


def fingerprint(reference: str) -> str | None:
    forget()
    return load(reference).source_fingerprint


def test_another_code_of_any_module_that_it_imports_is_another_fingerprint(package: Path):
    before = fingerprint("shop_package.shop:Shop")
    assert before is not None
    assert len(before) == 64
    assert fingerprint("shop_package.shop:Shop") == before
    for name in ("shop.py", "prices.py", "coins.py", "taxes.py"):
        (package / name).write_text(f"{FILES[name]}\n# changed\n")
        assert fingerprint("shop_package.shop:Shop") != before, name
        (package / name).write_text(FILES[name])
    (package / "other.py").write_text("OTHER = 2\n")
    assert fingerprint("shop_package.shop:Shop") == before


def test_it_is_that_of_the_code_that_runs(package: Path):
    loaded = load("shop_package.shop:Shop")
    before = loaded.source_fingerprint
    (package / "shop.py").write_text(f"{SHOP}\n# changed\n")
    assert load("shop_package.shop:Shop").source_fingerprint != before
    assert loaded.source_fingerprint == before


ALONE = SHOP.replace("from shop_package.prices import PRICE\nfrom shop_package import taxes\n", "")


def test_a_file_has_it_wherever_it_is(tmp_path: Path):
    places = [tmp_path / name / "shop.py" for name in ("here", "there", "windows")]
    for place in places:
        place.parent.mkdir()
        place.write_text(ALONE)
    places[2].write_bytes(ALONE.encode().replace(b"\n", b"\r\n"))
    assert len({fingerprint(f"{place}:Shop") for place in places}) == 1


def test_a_base_class_and_a_scorer_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_package.py").write_text(ALONE)
    (tmp_path / "child.py").write_text("from shop_package import Shop\n\n\nclass Child(Shop):\n    '''A child.'''\n")
    (tmp_path / "judge.py").write_text("def score(task, trajectory, final_state):\n    return 1.0\n")
    child = f"{tmp_path}/child.py:Child"
    before = fingerprint(child)
    assert load(child, score=f"{tmp_path}/judge.py:score").source_fingerprint not in (None, before)
    (tmp_path / "shop_package.py").write_text(f"{ALONE}\n# changed\n")
    assert fingerprint(child) != before


def test_what_has_no_source_has_no_fingerprint(tmp_path: Path):
    made = type("Made", (Environment,), {"__module__": "made_module"})
    assert source_fingerprint(made) is None
    (tmp_path / "gone.py").write_text(ALONE)
    cls = load(f"{tmp_path}/gone.py:Shop").cls
    shutil.rmtree(tmp_path)
    assert EnvironmentDefinition("gone", cls).source_fingerprint is None
