"""The tests of the evaluation need the extra `eval`; without it they are skipped, and `test_extra_eval` says why."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from eval_extra import MISSING

THIRD_PARTY = (
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if MISSING and collection_path.name.startswith("test_evaluation") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name.startswith("test_evaluation"):
            for warning in THIRD_PARTY:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(autouse=True, scope="session")
def installed() -> Iterator[None]:
    """Inspect reads for each evaluation what is installed, which takes 0.3 s of CPU time and changes in no test."""
    if MISSING:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inspect_ai._util.package.packages_distributions", cache(packages_distributions))
        yield


@pytest.fixture(scope="session")
def served() -> Iterator[str]:
    """Where the addresses of environments begin, for tests of other things than gateways that are started in place."""
    from harness import running

    from envport.registry import load

    with running(load("catch"), load("counter")) as gateway:
        yield f"{gateway.url}/environments"


@pytest.fixture(autouse=True, scope="module")
def no_garbage() -> Iterator[None]:
    """What Inspect leaves unclosed in this process is found during these tests, where its warnings are known."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A shell in which nothing of envport or Inspect is set, and in which no place of an earlier test is open."""
    for name in list(os.environ):
        if name.startswith(("ENVPORT_", "INSPECT_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    if not MISSING:
        # Inspect keeps the first one for the whole process.
        monkeypatch.setattr("inspect_ai._display.core.active._active_display", None)
    yield
    if not MISSING:
        from envport_bridges.evaluation.running import stop_places

        stop_places()
