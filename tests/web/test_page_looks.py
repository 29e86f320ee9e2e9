"""What the page looks like on a phone and on a desktop, light and dark. The pictures are kept in `.artefacts/page`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Served
from page_player import play_out, playing
from page_tabs import Tabs

SIZES = {"phone": {"width": 360, "height": 740}, "desktop": {"width": 1200, "height": 800}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served("catch", "maze", "showcase", "--store", str(tmp_path_factory.mktemp("store"))) as served:
        for group, moves in (("a", ()), ("a", ("left",)), ("b", ("right", "right"))):
            labels = {"run": "grpo-1", "group": f"task=0 seed={group}", "sample": str(len(moves))}
            with playing(served.url, labels=labels, task=0, seed=5) as episode:
                play_out(episode, *moves)
        yield served


def fits(tab: Any) -> bool:
    """Whether nothing sticks out at the side."""
    return tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def views(tab: Any, gateway: Served) -> Iterator[str]:
    """Each view in turn, by name."""
    tab.get_by_role("heading", name="Environments").wait_for()
    yield "catalogue"
    tab.goto(f"{gateway.url}/ui/environments/showcase")
    tab.get_by_role("heading", name="Facts").wait_for()
    yield "environment"
    tab.goto(f"{gateway.url}/ui/play/maze")
    tab.get_by_role("button", name="Start").click()
    tab.get_by_role("button", name="up", exact=True).click()
    tab.get_by_role("heading", name="History (1)").wait_for()
    yield "playground"
    tab.goto(f"{gateway.url}/ui/play/showcase")
    tab.get_by_role("button", name="Start").click()
    tab.get_by_role("combobox", name="Tool").click()
    tab.get_by_role("option", name="plan", exact=True).click()
    tab.get_by_role("button", name="Call plan").click()
    tab.get_by_text("It is missing; it has to be").wait_for()
    yield "form"
    tab.goto(f"{gateway.url}/ui/episodes?environment=catch")
    link = tab.locator("tbody a")
    link.nth(2).wait_for()
    yield "episodes"
    left, right = (link.nth(place).get_attribute("href").rpartition("/")[2] for place in (0, 1))
    tab.goto(f"{gateway.url}/ui/episodes/{left}")
    tab.locator("[data-step='9']").wait_for()
    yield "trajectory"
    tab.goto(f"{gateway.url}/ui/compare?left={left}&right={right}")
    tab.locator("article").first.wait_for()
    yield "comparison"
    tab.goto(f"{gateway.url}/ui/runs/grpo-1")
    tab.locator(".ev-members").first.wait_for()
    tab.locator("canvas").last.wait_for()
    yield "run"
    tab.goto(f"{gateway.url}/ui/plots")
    tab.locator("canvas").last.wait_for()
    yield "plots"


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", ["phone", "desktop"])
def test_every_view_fits(gateway: Served, tabs: Tabs, pictures: Path, size: str, colours: str):
    with tabs.open(gateway.url, viewport=SIZES[size], color_scheme=colours) as tab:
        for name in views(tab, gateway):
            tab.screenshot(path=pictures / f"{name}-{size}-{colours}.png", full_page=True)
            assert fits(tab), name


def test_a_phone_shows_the_page_in_its_colours_which_can_be_switched(gateway: Served, tabs: Tabs):
    def background() -> str:
        return tab.evaluate("getComputedStyle(document.body).backgroundColor")

    with tabs.open(f"{gateway.url}/ui/play/maze", viewport=SIZES["phone"], color_scheme="dark") as tab:
        tab.get_by_role("button", name="Start").click()
        tab.get_by_role("button", name="up", exact=True).wait_for()
        assert fits(tab)
        dark = background()
        tab.get_by_role("button", name="Colours: as the system").click()
        tab.get_by_role("button", name="Colours: light").wait_for()
        tab.wait_for_function("document.body.classList.contains('body--light')")
        assert background() != dark
        # The browser remembers it.
        tab.goto(f"{gateway.url}/ui/episodes")
        tab.locator("tbody a").first.wait_for()
        assert fits(tab)
        tab.get_by_role("button", name="Colours: light").click()
        tab.wait_for_function("document.body.classList.contains('body--dark')")
        assert background() == dark
