"""The training bridge's tests need the extra `trl`; without it they are skipped, and `test_extra_trl` says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from extras import MISSING

THIRD_PARTY = (
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:.*experimental feature.*:UserWarning",
    "ignore:.*pin_memory.*:UserWarning",
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if MISSING and collection_path.name.startswith("test_trl") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name.startswith("test_trl"):
            for warning in THIRD_PARTY:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def gateway_url() -> Iterator[str]:
    from places import gateway

    with gateway() as serving:
        yield serving.url


@pytest.fixture(params=["in process", "gateway"])
def place(request: pytest.FixtureRequest) -> Any:
    from places import Place

    return Place() if request.param == "in process" else Place(request.getfixturevalue("gateway_url"))
