"""One episode's browser: how it is started, its tabs and dialogs, and what is a fault of it."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from envport import ToolError
from envport.errors import UpstreamLost
from envport_envs.browsergym.actions import action_text
from envport_envs.browsergym.library import execute, high_level_actions, playwright
from envport_envs.browsergym.origins import Origins
from envport_envs.browsergym.tasks import BrowserTask

__all__ = ["Browser", "Prepared"]

ResultT = TypeVar("ResultT")

_parsing = threading.Lock()

# Much longer than they take: a machine on which many browsers are played is slow.
_ACTION_MILLISECONDS = 5_000
_GOING_MILLISECONDS = 20_000
_MILLISECONDS = 60_000
_QUIET_MILLISECONDS, _RESTLESS_MILLISECONDS = 60, 1_000
_MOST_TABS = 8
_MOST_DIALOGS = 5
_LONGEST_MESSAGE = 300
_TRIES = 5
# Scroll bars that pictures do not show, a second renderer at the start, and what Playwright disables: of several lists,
# the last one counts.
_NO_FEATURES = (
    "OverlayScrollbars,ExtendedOverlayScrollbars,SpareRendererForSitePerProcess,ImprovedCookieControls,"
    "LazyFrameLoading,GlobalMediaControls,DestroyProfileOnBrowserClose,MediaRouter,DialMediaRouteProvider,"
    "AcceptCHFrame,AutoExpandDetailsElement,CertificateTransparencyComponentUpdater,"
    "AvoidUnnecessaryBeforeUnloadCheckSync,Translate,HttpsUpgrades"
)
_VARIABLES = ("LANG", "LC_ALL", "TZ", "FONTCONFIG_PATH", "XDG_DATA_DIRS", "LD_LIBRARY_PATH")
_DRIVER_GONE = "Connection closed while reading from the driver"
_MOVED = ("Execution context was destroyed", "Frame was detached", "Frame has been detached", "frame was detached")

# Waits until nothing has changed for a while: pages answer a click after the click has returned.
_UNTIL_QUIET = """
([quiet, most]) => new Promise(done => {
  let timer = setTimeout(done, quiet);
  setTimeout(done, most);
  new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(done, quiet); }).observe(
    document, {subtree: true, childList: true, attributes: true, characterData: true});
})
"""


@dataclass(frozen=True)
class Prepared:
    """What all browsers of an environment share.

    Attributes:
        address: Host and port of the page server.
        folder: Where they write. It goes when the gateway ends, also with what killed ones have left.
    """

    address: str
    folder: str


class Browser:
    """A Chromium with its own profile. For one thread.

    Args:
        chromium: The path of the program.
        prepared: What all browsers share.
        origins: Where it may go.
        task: The task that it is for.

    Raises:
        UpstreamLost: It does not start.
    """

    def __init__(self, chromium: str, prepared: Prepared, origins: Origins, task: BrowserTask):
        self._origins = origins
        self._accepts = task.accepts_dialogs
        self._said: list[str] = []
        self._crashed = False
        self._home = tempfile.TemporaryDirectory(dir=prepared.folder, ignore_cleanup_errors=True)
        self._driver: Any = None
        self._browser: Any = None
        with self._faults():
            with _temporary_files_in(self._home.name):
                self._driver = playwright.sync_playwright().start()
            self._driver.selectors.set_test_id_attribute("bid")
            self._browser = self._launch(chromium, prepared.address)
            self._inspector = self._browser.new_browser_cdp_session()
            self._context = self._opened(task)
            self.page: Any = self._context.new_page()

    def _launch(self, chromium: str, address: str) -> Any:
        kept = {key: os.environ[key] for key in _VARIABLES if key in os.environ}
        folders = {"HOME": self._home.name, "TMPDIR": self._home.name, "XDG_CONFIG_HOME": self._home.name}
        return self._driver.chromium.launch(
            executable_path=chromium,
            args=[*self._origins.arguments(address), "--disable-gpu", f"--disable-features={_NO_FEATURES}"],
            # Scroll bars are to be seen in pictures.
            ignore_default_args=["--hide-scrollbars"],
            # Chromium's own sandbox does not work for root.
            chromium_sandbox=os.geteuid() != 0,
            # Never the gateway's secrets.
            env={"PATH": os.environ.get("PATH", os.defpath), **kept, **folders},
            timeout=_MILLISECONDS,
        )

    def _opened(self, task: BrowserTask) -> Any:
        width, height = task.viewport
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            accept_downloads=False,
            service_workers="block",
            locale="en-US",
            timezone_id="UTC",
        )
        context.set_default_timeout(_MILLISECONDS)
        context.set_default_navigation_timeout(_GOING_MILLISECONDS)
        context.on("page", self._follow)
        context.on("dialog", self._answer)
        if task.script:
            context.add_init_script(task.script)
        return context

    def _follow(self, page: Any) -> None:
        """A new tab becomes the present one."""
        self.page = page
        page.on("crash", self._note_crash)

    def _note_crash(self, page: Any) -> None:
        self._crashed = True
        # Whoever asks the page would wait for an answer for ever.
        with suppress(playwright.Error):
            page.close()

    def _answer(self, dialog: Any) -> None:
        """Answer a dialog at once: it stops its page."""
        self._said = [*self._said, f"{dialog.type}: {dialog.message[:_LONGEST_MESSAGE]}"][-_MOST_DIALOGS:]
        with suppress(playwright.Error):
            # Always accept leaving a page (`beforeunload`): to stay on it would hang.
            if self._accepts or dialog.type == "beforeunload":
                dialog.accept()
            else:
                dialog.dismiss()

    def dialogs(self) -> list[str]:
        """What dialogs have said since this was last asked for."""
        said, self._said = self._said, []
        return said

    @property
    def tabs(self) -> list[Any]:
        """The open tabs."""
        return self._context.pages

    def act(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Do what the player says.

        Args:
            name: The tool.
            arguments: Its arguments, which fit its schema.

        Returns:
            Why it was not done, or not wholly; `None` if it was.

        Raises:
            ToolError: It is not allowed. Nothing was done.
            UpstreamLost: The browser has failed.
        """
        if name == "goto" and not self._origins.allows(arguments["url"]):
            raise ToolError(f"{_short(repr(arguments['url']))} is not allowed; allowed: {self._origins.named()}")
        if name == "tab_focus" and arguments["index"] >= len(self.tabs):
            raise ToolError(f"There is no tab {arguments['index']}; the tabs are 0 to {len(self.tabs) - 1}.")
        code = _code(action_text(name, arguments))
        with self._faults():
            chosen = self.tabs[arguments["index"]] if name == "tab_focus" else None
            failed: str | None = None
            try:
                execute(code, self.page, _ignore, _ignore)
            except (playwright.Error, ValueError) as error:
                self._require_alive(error)
                failed = _told(error)
            if chosen is not None:
                self.page = chosen
            self._settle()
            return failed

    def _settle(self) -> None:
        """Wait until the present tab is quiet, and so is each tab that it opens."""
        self._choose_tab()
        for _ in range(_MOST_TABS):
            quiet = self.page
            self.undisturbed(lambda: self.page.evaluate(_UNTIL_QUIET, [_QUIET_MILLISECONDS, _RESTLESS_MILLISECONDS]))
            self._await_tabs()
            self._choose_tab()
            if self.page is quiet:
                return

    def _await_tabs(self) -> None:
        """Wait for the tabs that Chromium has opened and Playwright has not told of: on a busy machine it is late."""
        with suppress(playwright.TimeoutError):
            while self._open_targets() > len(self.tabs):
                self._context.wait_for_event("page", timeout=_ACTION_MILLISECONDS)

    def _open_targets(self) -> int:
        targets = self._inspector.send("Target.getTargets")["targetInfos"]
        return sum(target["type"] == "page" for target in targets)

    def _choose_tab(self) -> None:
        """See to it that there are some tabs, but not many, and that the present one is among them."""
        for page in self.tabs[_MOST_TABS:]:
            page.close()
        if not self.tabs:
            self._context.new_page()
        if self.page not in self.tabs:
            self.page = self.tabs[-1]

    def set_up(self, task: BrowserTask) -> str:
        """Open the first page of the task. Returns its goal.

        Raises:
            UpstreamLost: The browser has failed.
        """
        with self._faults():
            goal = task.setup(self.page)
            self._settle()
            return goal

    def undisturbed(self, look: Callable[[], ResultT]) -> ResultT:
        """Look at the page, again if it has gone to another one meanwhile.

        Args:
            look: Asks the page.

        Raises:
            UpstreamLost: The browser has failed.
        """
        with self._faults():
            for _ in range(_TRIES - 1):
                try:
                    return look()
                except playwright.Error as error:
                    if not any(words in str(error) for words in _MOVED):
                        raise
                with suppress(playwright.TimeoutError):
                    self.page.wait_for_load_state("domcontentloaded")
            return look()

    @contextmanager
    def _faults(self) -> Generator[None]:
        """Tell a browser that has failed from all other errors."""
        try:
            yield
        except ToolError:
            raise
        except Exception as error:
            self._require_alive(error)
            raise

    def _require_alive(self, error: Exception) -> None:
        gone = self._browser is None or self._crashed or not self._browser.is_connected()
        # Playwright still takes a browser for connected when its own driver has died.
        if gone or _DRIVER_GONE in str(error):
            raise UpstreamLost(f"the browser has failed: {_short(str(error))}") from error

    def close(self) -> None:
        """End the browser."""
        # Whatever is left of it is killed with the episode's process.
        with suppress(Exception):
            if self._browser is not None:
                self._browser.close()
        with suppress(Exception):
            if self._driver is not None:
                self._driver.stop()
        self._home.cleanup()


@contextmanager
def _temporary_files_in(folder: str) -> Generator[None]:
    """Have programs that are started write to a folder that goes even if they are killed: profiles are large."""
    if threading.current_thread() is not threading.main_thread():
        # Not a process of its own: what others start at the same time would write there too.
        yield
        return
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


@cache
def _actions() -> Any:
    made = high_level_actions(subsets=["bid", "coord", "nav", "tab"], strict=True, multiaction=False, demo_mode="off")
    # BrowserGym gives each action half a second, which a busy machine may need for one that works.
    made.python_includes = made.python_includes.replace("timeout=500", f"timeout={_ACTION_MILLISECONDS}")
    return made


def _code(action: str) -> str:
    # Python 3.11 mistakes the depth of syntax trees that two threads make at the same time, and raises SystemError.
    with _parsing:
        return _actions().to_python_code(action)


def _ignore(text: str) -> None:
    """There is nobody to send a message to."""


def _told(error: Exception) -> str:
    """Playwright's error in a line, with what it waited for."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    first, _, log = text.partition("\n")
    reasons = re.findall(r"(element is not [a-z]+|.{0,200}intercepts pointer events|did not find some options)", log)
    return _short(" ".join([first, *(f"({reason.strip(' -')})" for reason in reasons[-1:])]), 2 * _LONGEST_MESSAGE)


def _short(text: str, most: int = _LONGEST_MESSAGE) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."
