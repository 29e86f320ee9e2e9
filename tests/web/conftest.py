"""A real Chromium before a gateway that `envport serve` runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from patience import patient

pytest.importorskip("nicegui", reason="the extra ui is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = "/usr/bin/chromium"
PICTURES = Path(__file__).parents[2] / ".artefacts" / "page"
WAIT = patient(15)


class Tabs:
    """Opens tabs, and keeps what went wrong in them: requests to other hosts, errors of scripts, refusals by CSP."""

    def __init__(self, browser: Any):
        self._browser = browser
        self.foreign: list[str] = []
        self.errors: list[str] = []

    @contextmanager
    def open(self, url: str, **options: Any) -> Iterator[Any]:
        """A tab at an address. Options are those of a browser's context, such as `viewport` and `color_scheme`."""
        context = self._browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        context.set_default_timeout(WAIT * 1000)
        own = urlsplit(url).netloc

        def look(request: Any) -> None:
            if urlsplit(request.url).netloc not in (own, ""):
                self.foreign.append(request.url)

        tab = context.new_page()
        tab.on("request", look)
        tab.on("websocket", look)
        tab.on("pageerror", lambda error: self.errors.append(str(error)))
        tab.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        try:
            tab.goto(url)
            yield tab
        finally:
            context.close()


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


def log_in(tab: Any, token: str) -> None:
    """Send the form of the login."""
    tab.get_by_label("Token").fill(token)
    tab.keyboard.press("Enter")


def forget_refusals(tabs: Tabs) -> None:
    """Browsers count the login page as an error, as it has the status of one."""
    tabs.errors[:] = [it for it in tabs.errors if "status of 401" not in it and "status of 403" not in it]
