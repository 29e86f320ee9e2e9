from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import TOKEN, Served

BROKEN = """
from envport.errors import MissingExtra

raise MissingExtra("The broken environment", "textarena")
"""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with Served("catch", "counter", "showcase") as served:
        yield served


@pytest.fixture(scope="module")
def secured() -> Iterator[Served]:
    with Served("counter", ENVPORT_TOKEN=TOKEN) as served:
        yield served


@pytest.fixture
def broken_package(tmp_path: Path) -> Path:
    """A folder for `PYTHONPATH` with an installed package whose environment lacks an extra."""
    (tmp_path / "broken_environment.py").write_text(BROKEN)
    info = tmp_path / "broken_environment-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-environment\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[envport.environments]\nbroken = broken_environment:Broken\n")
    return tmp_path


@pytest.fixture
def little_installed(broken_package: Path) -> Path:
    """`broken_package`, with which the environments that take seconds of CPU time to load cannot be loaded."""
    for name in ("textarena", "browsergym"):
        (broken_package / f"{name}.py").write_text("raise ModuleNotFoundError(name=__name__)")
    return broken_package
