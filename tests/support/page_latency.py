"""Measure how long after the answer to a call the page shows it: `make page-latency`."""

from __future__ import annotations

import os
import sys
import tempfile
import time

from command_line import Served
from page_player import WATCH, playing
from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
STEPS = 100
PROMISED_MS = 300.0


def measure(tab: Page, url: str) -> list[float]:
    """Milliseconds from the answer to each call until its observation is in the page of a browser that follows it."""
    tab.goto(f"{url}/ui/episodes")
    with playing(url, "counter") as episode:
        tab.locator("tbody a").click()
        tab.get_by_role("status").get_by_text("running").wait_for()
        tab.evaluate(WATCH)
        answered: dict[int, float] = {}
        for number in range(1, STEPS + 1):
            episode.call("count", {})
            answered[number] = time.time() * 1000
            tab.locator(f"[data-step='{number}']").wait_for()
        shown: dict[str, float] = tab.evaluate("window.shown")
    return sorted(max(0.0, shown[str(number)] - at) for number, at in answered.items())


def main() -> None:
    """Print the median, the slowest of twenty, and the slowest."""
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    store = tempfile.mkdtemp()
    with Served("counter", "--store", store) as gateway, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=root)
        taken = measure(browser.new_page(), gateway.url)
        browser.close()
    median, most, slowest = taken[len(taken) // 2], taken[len(taken) * 95 // 100], taken[-1]
    sys.stdout.write(
        f"from a call's answer to its showing in a browser, {len(taken)} steps: "
        f"median {median:.0f} ms, 95% {most:.0f} ms, slowest {slowest:.0f} ms; promised {PROMISED_MS:.0f} ms\n"
    )


if __name__ == "__main__":
    main()
