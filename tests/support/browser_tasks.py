"""Tasks on pages of our own, for the tests of the scheme `browsergym:`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode, urljoin

from envport_envs.browsergym import BrowserTask

NAMES = ("Ann", "Bo", 'Eve "the" \\ O\'Neil', "Zoë")
PIECES = (
    *"'\"\\#(){}[]=,;\t \x00\x07\x85\xa0\u2028é漢𝕏👩‍👧",
    "\n",
    '"""',
    "'''",
    "\\n",
    "\\u0041",
    "\\N{DASH}",
    "fill('1','x')",
    "noop()",
    "</textarea>",
    "{0}%s",
    "a",
)


def hard_texts(rng: Random) -> Iterator[str]:
    """Texts that are hard to quote."""
    while True:
        yield "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 20)))


class Site(BrowserTask):
    """One task for each page, so that all share a process that has loaded what they need.

    Addresses of servers come from the metadata of the task, so that a test can start them.
    """

    pages = "browser_pages"
    accepts_dialogs = True

    def setup(self, page: Any) -> str:
        told = self.task.metadata if self.task is not None else {}
        self._wanted = self.rng.choice(NAMES)
        self._texts = hard_texts(Random(told.get("texts", 0)))
        asked = urlencode({"wanted": self._wanted, **told})
        page.goto(urljoin(self.site, f"{told.get('page', 'index.html')}?{asked}"))
        return f"Order a blue gift for {self._wanted}"

    def validate(self, page: Any) -> tuple[float, bool]:
        if page.title() == "Typing":
            return float(page.locator("textarea").input_value() == next(self._texts)), False
        if page.title().startswith("kill"):
            _kill(page.title().removeprefix("kill the "))
        ordered = page.evaluate("document.body?.dataset.ordered")
        return float(ordered == "right"), ordered is not None


def _kill(what: str) -> None:
    """Kill a part of the browser of this process."""
    words = {"browser": "--remote-debugging-pipe", "driver": "run-driver", "page": "--type=renderer"}[what]
    for pid in _below(os.getpid()):
        command = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").replace("\0", " ")
        if words in command and (what != "browser" or "--type=" not in command):
            os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> Iterator[int]:
    for thread in os.listdir(f"/proc/{pid}/task"):
        # It may have ended.
        with suppress(OSError):
            for child in map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()):
                yield child
                yield from _below(child)


class NoValidate(BrowserTask):
    pages = "browser_pages"


class NoFolder(BrowserTask):
    pages = "nowhere"

    def validate(self, page: Any) -> tuple[float, bool]:
        return 0.0, False


class BadOrigin(NoFolder):
    pages = None
    origins = ("http://example.com/path",)
