"""Tasks in a browser by `browsergym:`: MiniWoB++ and pages of our own, with typed tools and nowhere else to go."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from opening import open_episode
from patience import patient

from envport.episodes import Episode, Episodes
from envport.errors import (
    ConfigurationError,
    EnvironmentNotFound,
    EpisodeFailed,
    InvalidArguments,
    InvalidEnvironment,
    InvalidOption,
    MissingExtra,
    UnknownTool,
)
from envport.registry import load

pytest.importorskip("browsergym.miniwob", reason="the extra browsergym is not installed")

from browser_tasks import hard_texts
from recording_server import RecordingServer

from envport_envs.browsergym.actions import action_text
from envport_envs.browsergym.library import chromium, high_level_actions, miniwob_pages
from envport_envs.browsergym.origins import Origins

try:
    chromium(None)
except ConfigurationError as missing:
    pytest.skip(str(missing), allow_module_level=True)

SITE = f"{Path(__file__).parents[1]}/support/browser_tasks.py:Site"


@asynccontextmanager
async def table(rest: str, **limits: float) -> AsyncIterator[Episodes]:
    episodes = Episodes({"it": replace(load(f"browsergym:{rest}", "it"), limits=limits)})
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, seed: int = 0, **metadata: Any) -> Episode:
    task = {"id": "it", "metadata": metadata} if metadata else None
    return await open_episode(episodes, "it", seed=seed, task=task)


async def called(episode: Episode, tool: str, **arguments: Any) -> str:
    """The text of the answer."""
    return (await episode.call(tool, arguments)).observation.text


def element(text: str, named: str) -> str:
    """The id of an element of the tree."""
    found = re.search(rf"\[(\w+)\] {named}", text)
    assert found is not None, f"there is no {named} in: {text}"
    return found[1]


async def test_a_button_is_clicked_after_calls_that_are_refused() -> None:
    async with table("miniwob.click-button") as episodes:
        first, second = await opened(episodes, 3), await opened(episodes, 3)
        seen = first.first_observation.text
        assert seen == second.first_observation.text
        assert second.first_observation.text != (await opened(episodes, 4)).first_observation.text
        wanted = re.findall(r'Goal: Click on the "(\w+)" button', seen)[0]
        assert "Page: http://pages.localhost/miniwob/click-button.html\n" in seen
        for arguments, complaint in (
            ({"bid": 12}, "'bid'"),
            ({}, "'bid'"),
            ({"bid": "12') or fill('12"}, "'bid'"),
            ({"bid": "12", "button": "fourth"}, 'one of "left", "middle", "right"'),
            ({"bid": "12", "force": True}, "'force'"),
            ({"bid": "12", "modifiers": ["Hyper"]}, "'modifiers"),
        ):
            with pytest.raises(InvalidArguments, match=complaint):
                await first.call("click", arguments)
        for tool in ("goto", "upload_file", "mouse_click"):
            with pytest.raises(UnknownTool, match="its tools are: .*click"):
                await first.call(tool, {})
        told = await called(first, "click", bid="999")
        assert re.match(r"There is no element '999'. The page has: \d+, ", told)
        solved = await first.call("click", {"bid": element(seen, f"button '{wanted}'")})
        assert (solved.reward, solved.terminated, first.reward) == (1.0, True, 1.0)
        wrong = next(bid for bid, name in re.findall(r"\[(\d+)\] button '(\w+)'", seen) if name != wanted)
        await second.call("click", {"bid": wrong})
        assert (second.status, second.reward) == ("terminated", 0.0)


async def test_a_text_is_entered() -> None:
    async with table("miniwob.enter-text") as episodes:
        episode = await opened(episodes)
        seen = episode.first_observation.text
        text = re.findall(r'Goal: Enter "(\w+)" into the text field and press Submit.', seen)[0]
        filled = await called(episode, "fill", bid=element(seen, "textbox"), value=text)
        assert f"textbox '' value='{text}'" in filled
        solved = await episode.call("click", {"bid": element(seen, "button 'Submit'")})
        assert (solved.reward, solved.terminated) == (1.0, True)


async def test_pages_of_our_own_are_played_to_the_end() -> None:
    async with table(SITE) as episodes:
        episode = await opened(episodes, seed=2)
        seen = episode.first_observation.text
        goal = re.findall(r"^Goal: Order a blue gift for (.*)", seen)[0]
        for url in ("file:///etc/passwd", "http://pages.localhost@127.0.0.1/", "javascript:1", "https://pages.localhost"):
            assert await called(episode, "goto", url=url) == f"{url!r} is not allowed; allowed: http://pages.localhost"
        assert "Nothing is sold here." in await called(episode, "goto", url="http://pages.localhost/terms.html")
        assert "There is no such page." in await called(episode, "goto", url="http://pages.localhost/../Makefile")
        assert "Nothing is sold here." in await called(episode, "go_back")
        seen = await called(episode, "go_back")
        tabs = await called(episode, "click", bid=element(seen, "link 'Terms'"), modifiers=["Control"])
        assert re.findall(r"^Tabs: (.*)$", tabs, re.MULTILINE) == [
            f"0: http://pages.localhost/index.html?{_query(goal)}, 1: http://pages.localhost/terms.html"
        ]
        assert await called(episode, "tab_focus", index=2) == "There is no tab 2; the tabs are 0 to 1."
        seen = await called(episode, "tab_close")
        assert "Tabs: " not in seen
        await called(episode, "fill", bid=element(seen, "textbox 'Name'"), value=goal)
        refused = await called(episode, "select_option", bid=element(seen, "combobox"), options=["pink"])
        assert "did not find some options" in refused
        await called(episode, "select_option", bid=element(seen, "combobox"), options=["blue"])
        await called(episode, "press", bid=element(seen, "checkbox"), key_comb="Space")
        await called(episode, "scroll", delta_x=0, delta_y=100)
        done = await episode.call("click", {"bid": element(seen, "button 'Buy'")})
        assert (done.reward, done.terminated, episode.reward) == (1.0, True, 1.0)
        typing = await opened(episodes, page="typing.html", texts=7)
        await texts_are_typed_as_they_are(typing, 7, 25)


def _query(goal: str) -> str:
    from urllib.parse import urlencode

    return urlencode({"wanted": goal})


async def texts_are_typed_as_they_are(episode: Episode, seed: int, number: int) -> None:
    field = element(episode.first_observation.text, "textbox")
    for text in islice(hard_texts(Random(seed)), number):
        result = await episode.call("fill", {"bid": field, "value": text})
        assert (result.reward, text) == (1.0, text)


@pytest.mark.slow
async def test_a_thousand_texts_are_typed_as_they_are() -> None:
    async with table(f"{SITE}?max_steps=2000") as episodes:
        episode = await opened(episodes, page="typing.html", texts=1)
        await texts_are_typed_as_they_are(episode, 1, 1000)


def test_a_thousand_texts_are_one_action_with_just_that_text() -> None:
    actions = high_level_actions(subsets=["bid"], strict=True, multiaction=False)
    for text in islice(hard_texts(Random(0)), 1000):
        code = actions.to_python_code(action_text("fill", {"bid": "12", "value": text}))
        (call,) = ast.parse(code.removeprefix(actions.python_includes)).body
        assert ast.unparse(call) == f"fill('12', {text!r}, False)"


async def test_pages_reach_nothing_that_is_not_allowed() -> None:
    with RecordingServer() as forbidden, RecordingServer(f"http://127.0.0.1:{forbidden.port}/redirected") as allowed:
        name = f'{SITE}?origins=["http://127.0.0.1:{allowed.port}"]'
        async with table(name) as episodes:
            episode = await opened(
                episodes, page="hostile.html", allowed=f"127.0.0.1:{allowed.port}", forbidden=forbidden.port
            )
            seen = episode.first_observation.text
            for _ in range(40):
                if "all was tried" in seen:
                    break
                seen = await called(episode, "noop", wait_ms=100)
            told = re.search(r"StaticText '(allowed: .*)'", seen)
            assert told is not None, seen
            assert "allowed: hello\\n" in told[1]
            for what in ("redirect", "127.0.0.1", "localhost", "pages.localhost", "[::1]", "cloud", "file", "worker"):
                assert f"\\n{what}: failed\\n" in told[1]
            assert "socket: error" in told[1]
            for link in ("file", "file in a tab", "source", "data"):
                shown = await called(episode, "click", bid=element(seen, f"link '{link}'"))
                assert "Page: http://pages.localhost/hostile.html" in shown
                assert "root:" not in shown
            alerts = await called(episode, "click", bid=element(seen, "button 'alerts'"))
            assert alerts.count("The page said, and was answered: alert: alert ") == 5
            popups = await called(episode, "click", bid=element(seen, "button 'popups'"))
            assert re.findall(r"^Tabs: .* (\d+): \S+$", popups, re.MULTILINE) == ["7"]
            await called(episode, "tab_focus", index=0)
            huge = await called(episode, "click", bid=element(seen, "link 'huge'"))
            assert "This page is too large to be shown: it has " in huge
            assert "50,000," in huge
            assert (episode.status, episode.reward) == ("running", 0.0)
        assert forbidden.seen == []
        assert {line.split()[1] for line in allowed.seen} == {"/plain", "/redirect"}


@pytest.mark.parametrize(
    "what", ["browser", *(pytest.param(it, marks=pytest.mark.slow) for it in ("driver", "page"))]
)
async def test_a_browser_that_is_gone_is_no_reward_of_zero(what: str) -> None:
    async with table(SITE) as episodes:
        episode = await opened(episodes, page="hostile.html")
        button = element(episode.first_observation.text, f"button 'kill the {what}'")
        with pytest.raises(EpisodeFailed) as caught:
            await episode.call("click", {"bid": button})
        assert (caught.value.owner, caught.value.reason) == ("infrastructure", "upstream")
        assert episode.outcome is not None
        assert (episode.outcome.fault, episode.reward) == ("infrastructure", None)


@pytest.mark.slow
async def test_a_page_that_hangs_ends_its_episode_alone() -> None:
    async with table(SITE, call_seconds=patient(8)) as episodes:
        episode, other = await opened(episodes, page="hostile.html"), await opened(episodes)
        with pytest.raises(EpisodeFailed) as caught:
            await episode.call("click", {"bid": element(episode.first_observation.text, "button 'hang'")})
        assert (caught.value.owner, caught.value.reason) == ("environment", "deadline")
        assert "Page: " in await called(other, "noop", wait_ms=0)


@pytest.mark.parametrize(
    ("rest", "error", "complaint"),
    [
        ("miniwob.click-buton", EnvironmentNotFound, "no task 'click-buton'. Near: click-button"),
        ("miniwob.xyzzy", EnvironmentNotFound, "Its 125 tasks are: ascending-numbers, .*visual-addition"),
        ("click-button", EnvironmentNotFound, "names no task; write browsergym:miniwob.click-button"),
        ("miniwob.", EnvironmentNotFound, "names no task"),
        ("./nowhere.py:Site", EnvironmentNotFound, "there is no file ./nowhere.py"),
        (SITE.replace("Site", "Nothing"), EnvironmentNotFound, "there is no 'Nothing'"),
        (SITE.replace("Site", "Path"), InvalidEnvironment, "not a subclass of envport_envs.browsergym.BrowserTask"),
        (SITE.replace("Site", "NoValidate"), InvalidEnvironment, "has no method validate"),
        (SITE.replace("Site", "NoFolder"), InvalidEnvironment, "NoFolder.pages is 'nowhere', and there is no folder"),
        (SITE.replace("Site", "BadOrigin"), InvalidOption, "'http://example.com/path' is no origin"),
        ("miniwob.click-test?see=html", InvalidOption, '"tree", "screenshot", "both"'),
        ('miniwob.click-test?tools=["upload_file"]', InvalidOption, "names 'upload_file'; the tools are: click, "),
        ("miniwob.click-test?tools=[]", InvalidOption, "names none; the tools are"),
        ('miniwob.click-test?tools=["click","click"]', InvalidOption, "names one twice"),
        ('miniwob.click-test?origins=["file:///etc"]', InvalidOption, "'file:///etc' is no origin"),
        ("miniwob.click-test?max_steps=0", InvalidOption, "'max_steps' is '0'"),
        ("miniwob.click-test?chromium=/nowhere", InvalidOption, "'chromium' is '/nowhere', which is no program"),
        ("miniwob.click-test?headless=no", InvalidOption, "no option 'headless'; its options are: see"),
    ],
)
def test_each_mistake_in_a_reference_is_named(rest: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint) as caught:
        load(f"browsergym:{rest}")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://pages.localhost/", True),
        ("HTTP://pages.localhost/", False),
        ("http://PAGES.localhost:80/a?b#c", True),
        ("http://pages.localhost:8000/", False),
        ("http://pages.localhost.example.com/", False),
        ("http://pages.localhost:80@example.com/", False),
        ("http://pages.localhost\\@example.com/", False),
        ("https://example.com/any", True),
        ("https://example.com:443", True),
        ("http://example.com/any", False),
        ("http://[::1]:3000/", True),
        ("http://pages.localhost:99999999/", False),
        (" http://pages.localhost/", False),
        ("ht\ntp://pages.localhost/", False),
        ("//pages.localhost/", False),
        ("", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, allowed: bool) -> None:
    assert Origins.of(["https://example.com", "http://[::1]:3000/"]).allows(url) == allowed


def test_without_chromium_one_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="need Chromium, which is not installed: apt-get install chromium"):
        load("browsergym:miniwob.click-button")


def test_without_the_extra_one_is_told_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("envport_envs.browsergym")]:
        monkeypatch.delitem(sys.modules, loaded)
    for loaded in [name for name in sys.modules if name.startswith("browsergym")]:
        monkeypatch.setitem(sys.modules, loaded, None)
    with pytest.raises(MissingExtra, match=r"References with browsergym: .* pip install 'envport\[browsergym\]'"):
        load("browsergym:miniwob.click-button")


def test_pictures_come_with_tools_that_act_at_places() -> None:
    plain, both = load("browsergym:miniwob.click-pie").tools, load("browsergym:miniwob.click-pie?see=both").tools
    assert "mouse_click" not in plain
    assert {*plain} < {*both}
    assert "goto" in load(f"browsergym:{SITE}").tools
    assert [*load('browsergym:miniwob.click-pie?tools=["mouse_click","goto"]').tools] == ["mouse_click", "goto"]


TASKS = sorted(path.stem for path in (miniwob_pages() / "miniwob").glob("*.html"))
