"""The page in a browser: the catalogue and the playground."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_line import Served
from page_tabs import Tabs

HOSTILE = f"{Path(__file__).parents[1]}/support/web_environments.py:HostileEnvironment"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with Served("catch", "showcase", f"hostile={HOSTILE}") as served:
        yield served


def started(tab: Any) -> None:
    tab.get_by_role("button", name="Start").click()
    tab.get_by_role("heading", name="Actions").wait_for()


def test_catch_is_played_to_its_end_from_the_catalogue_on(gateway: Served, tabs: Tabs):
    with tabs.open(gateway.url) as tab:
        tab.locator(".ev-card", has=tab.get_by_role("link", name="catch")).get_by_role("link", name="Play").click()
        tab.get_by_label("Task (index)").fill("0")
        tab.get_by_label("Seed").fill("3")
        started(tab)
        observation = tab.get_by_role("region", name="Observation")
        tab.get_by_text("9 moves until the ball lands").wait_for()
        tab.get_by_text("direction: Where to move the paddle.").wait_for()
        for moves in range(9):
            tab.get_by_role("heading", name=f"History ({moves})").wait_for()
            before = observation.locator("pre").first.inner_text()
            ball, paddle = (
                before.split(word)[1].split()[0].strip(",") for word in ("Ball in column", "paddle in column")
            )
            direction = "left" if ball < paddle else "right" if ball > paddle else "stay"
            tab.get_by_role("button", name=direction, exact=True).click()
        tab.get_by_text("It terminated after 9 steps.").wait_for()
        assert "Reward: 1" in observation.inner_text()
        assert not tab.get_by_role("button", name="stay", exact=True).count()
        assert tab.locator("li").count() == 9


def test_with_the_keyboard_alone(gateway: Served, tabs: Tabs):
    def focused(role: str) -> str:
        return tab.evaluate("document.activeElement?.innerText || document.activeElement?.ariaLabel || ''")

    def tab_to(name: str) -> None:
        for _ in range(40):
            tab.keyboard.press("Tab")
            if focused("any").strip() == name:
                return
        raise AssertionError(f"the keyboard does not reach {name}")

    with tabs.open(gateway.url) as tab:
        tab.get_by_role("heading", name="Environments").wait_for()
        tab.keyboard.press("Tab")
        assert focused("link") == "Skip to the content"
        tab_to("Play")
        tab.keyboard.press("Enter")
        tab.get_by_role("heading", name="Play catch").wait_for()
        tab_to("Start")
        tab.keyboard.press("Enter")
        tab.get_by_role("heading", name="Actions").wait_for()
        tab_to("stay")
        # The focus stays, so that the same move is played again and again.
        for moves in range(9):
            tab.get_by_role("heading", name=f"History ({moves})").wait_for()
            tab.keyboard.press("Enter")
        tab.get_by_text("It terminated after 9 steps.").wait_for()


def test_forms_are_made_of_the_schemas_and_say_what_is_wrong(gateway: Served, tabs: Tabs):
    def choose(tool: str) -> None:
        tab.get_by_role("combobox", name="Tool").click()
        tab.get_by_role("option", name=tool, exact=True).click()
        tab.get_by_role("heading", name=tool, exact=True).wait_for()

    with tabs.open(f"{gateway.url}/ui/play/showcase") as tab:
        started(tab)
        observation = tab.get_by_role("region", name="Observation")
        choose("plan")
        trip, call = tab.get_by_label("trip"), tab.get_by_role("button", name="Call plan")
        call.click()
        tab.get_by_text("It is missing; it has to be an object").wait_for()
        trip.fill("{")
        call.click()
        tab.get_by_text("This is not JSON at line 1, column 2.").wait_for()
        trip.fill("{}")
        call.click()
        tab.get_by_role("alert").filter(has_text="Argument 'trip'").wait_for()
        # Nothing of this has reached the environment.
        tab.get_by_role("heading", name="History (0)").wait_for()
        choose("measure")
        tab.get_by_label("amount").fill("0.000001")
        tab.get_by_label("times").fill("twenty")
        tab.get_by_role("button", name="Call measure").click()
        tab.get_by_text("'twenty' is not allowed").wait_for()
        tab.get_by_label("times").fill("20")
        tab.get_by_role("button", name="Call measure").click()
        tab.get_by_role("heading", name="History (1)").wait_for()
        choose("show_mixed")
        tab.get_by_role("button", name="Call show_mixed").click()
        observation.get_by_role("img").wait_for()
        assert observation.get_by_role("img").get_attribute("src").startswith("data:image/png;base64,")
        assert "First a text," in observation.inner_text()
        choose("refuse")
        tab.get_by_role("button", name="Call refuse").click()
        tab.get_by_text("refuse() — refused").wait_for()


def test_what_an_environment_says_is_not_run(gateway: Served, tabs: Tabs):
    with tabs.open(f"{gateway.url}/ui/environments/hostile") as tab:
        tab.get_by_text('<b id="inserted">bold</b>').first.wait_for()
        tab.get_by_role("link", name="Play it here").click()
        started(tab)
        observation = tab.get_by_role("region", name="Observation")
        assert "<script>window.broken = true</script>" in observation.inner_text()
        assert "{{ constructor.constructor" in observation.inner_text()
        tab.get_by_role("button", name="Call speak").click()
        tab.get_by_role("heading", name="History (1)").wait_for()
        tab.get_by_role("button", name="Call end").wait_for()
        # An image whose data is not of its format is none, and SVG is never one.
        assert tab.locator("main img").count() == 0
        assert observation.get_by_role("link", name="click").count() == 0
        assert observation.get_by_role("link", name="[far: https://example.invalid/]").count() == 1
        assert tab.locator("#inserted").count() == 0
        assert tab.evaluate("window.broken") is None


@pytest.mark.slow
def test_five_megabytes_are_shown_in_part(gateway: Served, tabs: Tabs):
    with tabs.open(f"{gateway.url}/ui/play/hostile") as tab:
        started(tab)
        tab.get_by_role("button", name="Call much").click()
        tab.get_by_role("button", name="Show the first 1,000,000 of 5,000,000 characters").wait_for()
        assert len(tab.get_by_role("region", name="Observation").inner_text()) < 30_000


def test_the_catalogue_has_tools_tasks_and_what_attaches_clients(gateway: Served, tabs: Tabs):
    address = f"{gateway.url}/environments/catch/mcp"
    with tabs.open(f"{gateway.url}/ui/environments/catch") as tab:
        tab.get_by_text(f"claude mcp add --transport http catch {address}").wait_for()
        settings = tab.get_by_role("region", name="mcpServers settings").inner_text()
        assert json.loads(settings) == {"mcpServers": {"catch": {"type": "http", "url": address}}}
        tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
        tab.get_by_role("button", name="Copy: MCP address").click()
        tab.get_by_text("Copied").wait_for()
        assert tab.evaluate("navigator.clipboard.readText()") == address
        tab.get_by_text("Schema").first.click()
        assert '"enum": [' in tab.get_by_role("region", name="Input schema of move").inner_text()
        tab.get_by_role("heading", name="Tasks: train (20)").wait_for()
        tab.get_by_text("19: ball").wait_for()


def test_programs_get_what_they_got_and_pages_get_strict_headers(gateway: Served):
    assert httpx2.get(gateway.url).json()["name"] == "envport"
    page = httpx2.get(gateway.url, headers={"Accept": "text/html"})
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self' 'nonce-" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    # A header of a proxy ends up in no script.
    assert (
        "/elsewhere"
        not in httpx2.get(gateway.url, headers={"Accept": "text/html", "X-Forwarded-Prefix": "/elsewhere"}).text
    )


@pytest.mark.parametrize("path", ["/", "/ui/episodes", "/_nicegui_ws/socket.io/?EIO=4&transport=polling", "/ui/login"])
def test_the_gate_holds_for_every_path_of_the_page(gateway: Served, path: str):
    html = {"Accept": "text/html"}
    assert httpx2.get(f"{gateway.url}{path}", headers={**html, "Host": "evil.example"}).status_code == 421
    assert httpx2.get(f"{gateway.url}{path}", headers={**html, "Origin": "https://evil.example"}).status_code == 403
