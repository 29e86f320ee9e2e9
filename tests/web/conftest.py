"""A real Chromium before a gateway that `envport serve` runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_tabs import Tabs

pytest.importorskip("nicegui", reason="the extra ui is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = "/usr/bin/chromium"
PICTURES = Path(__file__).parents[2] / ".artefacts" / "page"


# Not for the session: while Playwright runs, this process can run no other event loop, which other tests need.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"{CHROMIUM} is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


@pytest.fixture
def tabs(browser: Any) -> Iterator[Tabs]:
    tabs = Tabs(browser)
    yield tabs
    assert tabs.foreign == []
    assert tabs.errors == []


@pytest.fixture(scope="session")
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
