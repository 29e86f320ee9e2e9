"""Make the picture of the page for README: `make page-picture`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from command_line import Served
from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
PICTURE = Path(__file__).parents[2] / "gateway" / "pictures" / "page.png"
MOST_BYTES = 300_000
ENVIRONMENTS = ("cliff=gymnasium:CliffWalking-v1?render=both", "catch", "maze")
MOVES = ("up", "right", "right", "right", "right")


def play(tab: Page, url: str) -> None:
    """Some moves in an environment that draws what it shows."""
    tab.goto(f"{url}/ui/play/cliff")
    tab.get_by_label("Seed").fill("7")
    tab.get_by_role("button", name="Start").click()
    for number, move in enumerate(MOVES, 1):
        tab.get_by_role("button", name=move, exact=True).click()
        tab.get_by_role("heading", name=f"History ({number})").wait_for()
    tab.locator("img").first.wait_for()
    # The picture has neither focus nor the ripple of a click.
    tab.mouse.move(0, 0)
    tab.evaluate("document.activeElement.blur()")
    tab.wait_for_function("!document.querySelector('.q-ripple')")


def main() -> None:
    """Start a gateway and a browser, play, and write the picture."""
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    store = tempfile.mkdtemp()
    with Served(*ENVIRONMENTS, "--store", store) as gateway, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=root)
        tab = browser.new_page(viewport={"width": 1120, "height": 700}, color_scheme="light")
        play(tab, gateway.url)
        PICTURE.parent.mkdir(exist_ok=True)
        tab.screenshot(path=PICTURE)
        browser.close()
    size = PICTURE.stat().st_size
    sys.stdout.write(f"{PICTURE}: {size:,} bytes\n")
    if size > MOST_BYTES:
        sys.exit(f"the picture has {size:,} bytes; at most {MOST_BYTES:,} are allowed")


if __name__ == "__main__":
    main()
