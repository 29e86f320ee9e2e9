"""Tabs of a browser, with a watch on what goes wrong in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from patience import patient

__all__ = ["WAIT", "Tabs", "forget_refusals", "log_in"]

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


def log_in(tab: Any, token: str) -> None:
    """Send the form of the login."""
    tab.get_by_label("Token").fill(token)
    tab.keyboard.press("Enter")


def forget_refusals(tabs: Tabs) -> None:
    """Browsers count the login page as an error, as it has the status of one."""
    tabs.errors[:] = [it for it in tabs.errors if "status of 401" not in it and "status of 403" not in it]
