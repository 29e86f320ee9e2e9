"""Stores, and episodes that are recorded in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgresql import Server, running_server, why_not


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    with running_server() as server:
        yield server


_SLOW = pytest.param("postgresql", marks=pytest.mark.slow)


@pytest.fixture(params=["sqlite", _SLOW])
def where(request: pytest.FixtureRequest) -> str:
    """An empty store in each database: the same tests hold for both. Each costs a second of CPU time."""
    return request.getfixturevalue(f"_{request.param}")


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest) -> str:
    """The same, for what the databases do differently."""
    return request.getfixturevalue(f"_{request.param}")


@pytest.fixture
def _sqlite(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def _postgresql(postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # Where the journals of gateways on PostgreSQL are.
    monkeypatch.setenv("HOME", str(tmp_path))
    return postgresql.database()
