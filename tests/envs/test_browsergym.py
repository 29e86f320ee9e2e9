"""Tasks in a browser by `browsergym:`: MiniWoB++ and pages of our own, with typed tools and nowhere else to go."""

from __future__ import annotations

import ast
import importlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest
from harness import running
from opening import close_episode, open_episode
from patience import patient

from envport import AsyncClient, Solution
from envport.environment import RuntimeKind
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
from envport_envs.browsergym.library import chromium, high_level_actions
from envport_envs.browsergym.openings import make_places, one_place
from envport_envs.browsergym.origins import Origins
from envport_envs.browsergym.page_server import serving

try:
    chromium(None)
except ConfigurationError as missing:
    pytest.skip(str(missing), allow_module_level=True)

ENVIRONMENT = Path(__file__).parents[2] / "envs" / "envport_envs" / "browsergym"
PAGES = Path(__file__).parents[1] / "support" / "browser_pages"
SITE = f"{Path(__file__).parents[1]}/support/browser_tasks.py:Site"


@asynccontextmanager
async def table(*rests: str, runtime: RuntimeKind | None = None, **limits: float) -> AsyncIterator[Episodes]:
    """The first is called `it`, the second `other`. The runtime `thread` saves a process that loads all again."""
    names = zip(("it", "other"), rests, strict=False)
    definitions = {name: replace(load(f"browsergym:{rest}", name), limits=limits) for name, rest in names}
    episodes = Episodes(definitions, runtime=runtime)
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, name: str = "it", seed: int = 0, **metadata: Any) -> Episode:
    task = {"id": "it", "metadata": metadata} if metadata else None
    return await open_episode(episodes, name, seed=seed, task=task)


async def called(episode: Episode, tool: str, **arguments: Any) -> str:
    """The text of the answer."""
    return (await episode.call(tool, arguments)).observation.text


def element(text: str, named: str) -> str:
    """The id of an element of the tree."""
    found = re.search(rf"\[(\w+)\] {named}", text)
    assert found is not None, f"there is no {named} in: {text}"
    return found[1]


async def test_tasks_of_miniwob_are_solved_after_calls_that_are_refused() -> None:
    async with table("miniwob.click-button", "miniwob.enter-text?see=both", runtime="thread") as episodes:
        await a_button_is_clicked(await opened(episodes, seed=3))
        await a_text_is_entered(await opened(episodes, "other"))


async def a_button_is_clicked(episode: Episode) -> None:
    seen = episode.first_observation.text
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
            await episode.call("click", arguments)
    for tool in ("goto", "upload_file", "mouse_click"):
        with pytest.raises(UnknownTool, match=f"Unknown tool: {tool}"):
            await episode.call(tool, {})
    told = await called(episode, "click", bid="999")
    assert re.match(r"There is no element '999'. The page has: \d+, ", told)
    solved = await episode.call("click", {"bid": element(seen, f"button '{wanted}'")})
    assert (solved.reward, solved.terminated, episode.reward) == (1.0, True, 1.0)


async def a_text_is_entered(episode: Episode) -> None:
    seen = episode.first_observation.text
    assert [block["type"] for block in episode.first_observation.content] == ["text", "image"]
    assert re.search(r"button 'Submit', center=\"\(\d+,\d+\)\"", seen)
    text = re.findall(r'Goal: Enter "(\w+)" into the text field and press Submit.', seen)[0]
    filled = await called(episode, "fill", bid=element(seen, "textbox"), value=text)
    assert f"textbox '' value='{text}'" in filled
    # As long as one likes: the page pays less for what takes longer.
    await called(episode, "noop", wait_ms=1000)
    solved = await episode.call("click", {"bid": element(seen, "button 'Submit'")})
    assert (solved.reward, solved.terminated) == (1.0, True)


@pytest.mark.slow
async def test_another_seed_is_another_page_and_a_wrong_button_earns_nothing() -> None:
    async with table("miniwob.click-button") as episodes:
        one, other = await opened(episodes, seed=3), await opened(episodes, seed=4)
        seen = one.first_observation.text
        assert seen != other.first_observation.text
        wanted = re.findall(r'Goal: Click on the "(\w+)" button', seen)[0]
        wrong = next(bid for bid, name in re.findall(r"\[(\d+)\] button '(\w+)'", seen) if name != wanted)
        await one.call("click", {"bid": wrong})
        assert (one.status, one.reward) == ("terminated", 0.0)


@pytest.mark.slow
async def test_pages_of_our_own_are_played_to_the_end() -> None:
    async with table(SITE, runtime="thread") as episodes:
        episode = await opened(episodes, seed=2)
        await texts_are_typed_as_they_are(episode, 0, 10)
        await an_order_is_given(episode)


async def texts_are_typed_as_they_are(episode: Episode, seed: int, number: int) -> None:
    typing = await called(episode, "goto", url="http://pages.localhost/typing.html")
    # The task has compared the first one with the empty field.
    for text in islice(hard_texts(Random(seed)), 1, number + 1):
        result = await episode.call("fill", {"bid": element(typing, "textbox"), "value": text})
        assert (result.reward, text) == (1.0, text)


async def an_order_is_given(episode: Episode) -> None:
    goal = re.findall(r"^Goal: Order a blue gift for (.*)", episode.first_observation.text)[0]
    for url in ("file:///etc/passwd", "http://pages.localhost@127.0.0.1/", "javascript:1", "https://pages.localhost"):
        assert await called(episode, "goto", url=url) == f"{url!r} is not allowed; allowed: http://pages.localhost"
    assert "There is no such page." in await called(episode, "goto", url="http://pages.localhost/../Makefile")
    assert "RootWebArea 'Typing'" in await called(episode, "go_back")
    seen = await called(episode, "go_back")
    tabs = await called(episode, "click", bid=element(seen, "link 'Terms'"), modifiers=["Control"])
    assert "Nothing is sold here." in tabs
    assert re.findall(r"^Tabs: (.*)$", tabs, re.MULTILINE) == [
        f"0: http://pages.localhost/index.html?{urlencode({'wanted': goal})}, 1: http://pages.localhost/terms.html"
    ]
    assert await called(episode, "tab_focus", index=2) == "There is no tab 2; the tabs are 0 to 1."
    assert "Nothing is sold here." not in await called(episode, "tab_focus", index=0)
    assert "Nothing is sold here." in await called(episode, "tab_focus", index=1)
    seen = await called(episode, "tab_close")
    assert "Tabs: " not in seen
    await called(episode, "fill", bid=element(seen, "textbox 'Name'"), value=goal)
    refused = await called(episode, "select_option", bid=element(seen, "combobox"), options=["pink"])
    assert re.match(r"Locator.select_option: .*did not find some options.*\nPage: ", refused)
    await called(episode, "select_option", bid=element(seen, "combobox"), options=["blue"])
    await called(episode, "press", bid=element(seen, "checkbox"), key_comb="Space")
    await called(episode, "scroll", delta_x=0, delta_y=100)
    done = await episode.call("click", {"bid": element(seen, "button 'Buy'")})
    assert (done.reward, done.terminated) == (1.0, True)


@pytest.mark.slow
async def test_a_thousand_texts_are_typed_as_they_are() -> None:
    async with table(f"{SITE}?max_steps=2000") as episodes:
        await texts_are_typed_as_they_are(await opened(episodes, texts=1), 1, 1000)


def test_a_thousand_texts_are_one_action_with_just_that_text() -> None:
    actions = high_level_actions(subsets=["bid"], strict=True, multiaction=False)
    for text in islice(hard_texts(Random(0)), 1000):
        code = actions.to_python_code(action_text("fill", {"bid": "12", "value": text}))
        (call,) = ast.parse(code.removeprefix(actions.python_includes)).body
        assert ast.unparse(call) == f"fill('12', {text!r}, False)"


async def test_hostile_pages_reach_nothing_that_is_not_allowed_and_a_browser_that_is_gone_is_no_zero() -> None:
    with RecordingServer() as forbidden, RecordingServer(f"http://127.0.0.1:{forbidden.port}/redirected") as allowed:
        rest = f'{SITE}?origins=["http://127.0.0.1:{allowed.port}"]'
        async with table(rest, runtime="thread") as episodes:
            episode = await opened(
                episodes, page="hostile.html", allowed=f"127.0.0.1:{allowed.port}", forbidden=forbidden.port
            )
            await scripts_reach_nothing(episode)
            await a_flood_is_bounded(episode)
            await called(episode, "go_back")
            await the_fault_is_the_infrastructure_s(episode, "browser")
        assert forbidden.seen == []
        assert {line.split()[1] for line in allowed.seen} == {"/plain", "/redirect"}


async def scripts_reach_nothing(episode: Episode) -> None:
    seen = episode.first_observation.text
    for _ in range(40):
        if "all was tried" in seen:
            break
        seen = await called(episode, "noop", wait_ms=100)
    assert "allowed: hello\\n" in seen
    for what in ("redirect", "127.0.0.1", "localhost", "pages.localhost", "[::1]", "cloud", "file", "worker"):
        assert f"{what}: failed\\n" in seen
    assert "socket: error\\n" in seen
    for link in ("file", "file in a tab", "source", "data"):
        shown = await called(episode, "click", bid=element(seen, f"link '{link}'"))
        assert "Page: http://pages.localhost/hostile.html" in shown
        assert "root:" not in shown


async def a_flood_is_bounded(episode: Episode) -> None:
    seen = await called(episode, "noop", wait_ms=0)
    alerts = await called(episode, "click", bid=element(seen, "button 'alerts'"))
    assert alerts.count("The page said, and was answered: alert: alert ") == 5
    popups = await called(episode, "click", bid=element(seen, "button 'popups'"))
    assert re.findall(r"^Tabs: .* (\d+): \S+$", popups, re.MULTILINE) == ["7"]
    for _ in range(7):
        await called(episode, "tab_close")
    huge = await called(episode, "click", bid=element(seen, "link 'huge'"))
    assert re.search(r"This page is too large to be shown: it has \d elements, 2,500,\d+ characters", huge)
    assert episode.status == "running"


async def the_fault_is_the_infrastructure_s(episode: Episode, what: str) -> None:
    button = element(await called(episode, "noop", wait_ms=0), f"button 'kill the {what}'")
    with pytest.raises(EpisodeFailed) as caught:
        await episode.call("click", {"bid": button})
    assert (caught.value.fault, caught.value.reason) == ("infrastructure", "upstream")
    assert episode.outcome is not None
    assert (episode.outcome.fault, episode.reward) == ("infrastructure", None)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["browser", "page"])
async def test_whatever_is_gone_of_a_browser_is_no_reward_of_zero(what: str) -> None:
    async with table(SITE) as episodes:
        await the_fault_is_the_infrastructure_s(await opened(episodes, page="hostile.html"), what)


@pytest.mark.slow
@pytest.mark.parametrize("button", ["hang", "kill the driver"])
async def test_what_hangs_ends_its_episode_alone(button: str) -> None:
    async with table(SITE, call_seconds=patient(8)) as episodes:
        episode, other = await opened(episodes, page="hostile.html"), await opened(episodes)
        with pytest.raises(EpisodeFailed) as caught:
            await episode.call("click", {"bid": element(episode.first_observation.text, f"button '{button}'")})
        ended = caught.value.fault, caught.value.reason
        # Playwright notices by chance that its driver has died.
        noticed = button != "hang" and ended == ("infrastructure", "upstream")
        assert ended == ("environment", "deadline") or noticed
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


ASKED = {
    "GET http://pages.localhost/terms.html": 200,
    "GET http://pages.localhost/": 200,
    "HEAD http://pages.localhost/terms.html": 200,
    "GET http://pages.localhost/../browser_tasks.py": 404,
    "GET http://pages.localhost/%2e%2e/browser_tasks.py": 404,
    "GET http://pages.localhost//etc/passwd": 404,
    "GET http://pages.localhost/terms.html%00": 404,
    "GET http://pages.localhost/nothing": 404,
    "GET /terms.html": 403,
    "GET http://127.0.0.1/terms.html": 403,
    "GET http://pages.localhost:8000/terms.html": 403,
    "POST http://pages.localhost/terms.html": 403,
    "CONNECT 127.0.0.1:8000": 403,
}


def test_the_page_server_gives_the_files_of_its_folder_and_refuses_all_else() -> None:
    with serving(PAGES) as address, serving(PAGES) as again:
        assert address == again
        host, _, port = address.partition(":")
        for line, status in ASKED.items():
            with socket.create_connection((host, int(port)), patient(5)) as connection:
                connection.sendall(f"{line} HTTP/1.1\r\nHost: any\r\n\r\n".encode())
                assert (line, int(connection.makefile("rb").readline().split()[1])) == (line, status)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_as_many_browsers_start_at_once_as_there_are_cores(tmp_path: Path) -> None:
    make_places(tmp_path)
    with ThreadPoolExecutor(1) as thread, ExitStack() as held:
        for _ in range(os.cpu_count() or 1):
            held.enter_context(one_place(tmp_path))

        def wait() -> None:
            with one_place(tmp_path):
                pass

        waiting = thread.submit(wait)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        held.close()
        waiting.result(patient(5))


def test_the_example_of_the_page_is_a_task(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ENVIRONMENT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop.py").write_text(block)
    definition = load(f"browsergym:{tmp_path}/shop.py:Shop")
    assert (definition.name, "goto" in definition.tools) == ("Shop", True)


@pytest.mark.slow
async def test_the_scripted_player_of_the_example_earns_every_reward_through_mcp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "browser")
    player = importlib.import_module("agent")
    names = ("click-button", "enter-text", "focus-text-2", "choose-list")
    definitions = [load(f"browsergym:miniwob.{name}", name) for name in names]
    with running(*definitions) as gateway:
        for name in names:
            async with AsyncClient(gateway.url) as client:
                episode = await client.open(name, seed=1)
                await player.play(episode.mcp_url, None)
                assert (name, (await client.episode(episode.episode_id)).reward) == (name, 1.0)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_tiny_model_learns_a_task_in_a_browser(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra trl is not installed")
    script = Path(__file__).parents[2] / "examples" / "browser" / "train.py"
    command = [sys.executable, str(script), "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(1200), check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "mean reward 0." in done.stdout


def test_an_episode_has_a_process_of_its_own() -> None:
    assert load("browsergym:miniwob.click-button").cls.runtime == "process"


def test_a_task_that_names_its_solution_has_a_reference() -> None:
    known, unknown = (load(f"browsergym:miniwob.{name}").prototype for name in ("click-test", "click-pie"))
    assert known.reference_solution(None) == Solution([("click", {"bid": "13"})])
    assert unknown.reference_solution(None) is None


def test_pictures_come_with_tools_that_act_at_places() -> None:
    plain, both = load("browsergym:miniwob.click-pie").tools, load("browsergym:miniwob.click-pie?see=both").tools
    assert "mouse_click" not in plain
    assert {*plain} < {*both}
    assert "goto" in load(f"browsergym:{SITE}").tools
    assert [*load('browsergym:miniwob.click-pie?tools=["mouse_click","goto"]').tools] == ["mouse_click", "goto"]


@pytest.mark.slow
async def test_every_task_of_miniwob_opens_the_same_with_the_same_seed() -> None:
    with pytest.raises(EnvironmentNotFound) as listed:
        load("browsergym:miniwob.xyzzy")
    names = re.findall(r"[a-z0-9-]+", str(listed.value).partition("tasks are: ")[2])
    assert len(names) == 125
    definitions = {name: load(f"browsergym:miniwob.{name}", name) for name in names}
    # In threads, which load nothing again.
    episodes = Episodes(definitions, runtime="thread")
    async with episodes.run():
        for name in names:
            seen: list[str] = []
            for seed in (5, 5):
                episode = await open_episode(episodes, name, seed=seed)
                seen.append(episode.first_observation.text)
                await close_episode(episodes, episode)
            assert re.match(r"Goal: .+\nPage: .+\nRootWebArea ", seen[0]), (name, seen[0])
            # Its prices go on while it is opened.
            assert seen[0] == seen[1] or name == "stock-market", name
