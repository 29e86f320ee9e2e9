"""A task in a browser as an environment of envport."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from envport import Environment, Solution, Step, Task, TaskSource, ToolDefinition, ToolError
from envport_envs.browsergym.actions import BY_COORDINATES, BY_ID, NAVIGATION, TABS, definitions
from envport_envs.browsergym.browser import Browser, Prepared
from envport_envs.browsergym.library import chromium
from envport_envs.browsergym.observations import Seen, look, picture
from envport_envs.browsergym.openings import make_places, one_place
from envport_envs.browsergym.origins import Origins
from envport_envs.browsergym.page_server import serving
from envport_envs.browsergym.tasks import BrowserTask, MiniWobTask, task_class

__all__ = ["BrowserEnvironment", "PageView", "usual_tools"]

PageView = Literal["tree", "screenshot", "both"]

_MINIWOB = "miniwob."
_MOST_CALLS = 60
_MOST_NAMED = 40
_DEFAULT_CHARACTERS = 20_000


class BrowserEnvironment(Environment):
    """A task in a web browser.

    The player sees the page's accessibility tree, in which elements have ids such as `[12]`, and acts on elements by
    these ids. Each call returns the page as it is then.

    Args:
        task: `miniwob.NAME`, or the class of a task of your own: `package.module:Class`, `./path/file.py:Class`.
        see: What the player sees: `tree`, `screenshot`, or `both`.
        tools: The tools that are shown, in this order. If not given: those that act on elements; with pictures also
            those that act at places; on pages of your own also those that go to other pages and tabs.
        max_steps: After how many calls an episode is truncated; the task's own number if not given.
        characters: How many characters of the tree are shown.
        origins: Origins that the browser may reach, besides those of the task.
        program: The path of Chromium, which the scheme `browsergym:` finds.
    """

    instructions = "Do in the browser what the goal says. Elements have ids in brackets: use them in your calls."
    runtime = "process"
    own_thread = True
    reward_ceiling = 1.0
    call_seconds = 60.0
    reset_seconds = 600.0
    close_seconds = 10.0
    memory_mb = 2048.0

    def __init__(
        self,
        task: str = "miniwob.click-test",
        see: PageView = "tree",
        tools: list[str] | None = None,
        max_steps: Annotated[int, Field(ge=1)] | None = None,
        characters: Annotated[int, Field(ge=100)] = _DEFAULT_CHARACTERS,
        origins: list[str] | None = None,
        program: str = "",
    ):
        self._name = task
        self._class = _task_of(task)
        self._see: PageView = see
        self._tools = tools if tools is not None else usual_tools(self._class, see)
        self._characters = characters
        self._origins = Origins.of([*self._class.origins, *(origins or ())])
        self._program = program
        self._coordinates = any(tool in BY_COORDINATES for tool in self._tools)
        self._browser: Browser | None = None
        self._seen = Seen("")
        self._over = False
        self.max_steps = max_steps or self._class.max_steps

    def tool_definitions(self) -> list[ToolDefinition]:
        """The tools that were chosen."""
        return definitions(self._tools)

    def splits(self) -> Mapping[str, TaskSource]:
        """The tasks of a class of your own."""
        return self._class.splits()

    def reference_solution(self, task: Task | None) -> Solution | None:
        """The calls that the task names."""
        calls = self._made(0).solution
        return Solution(calls) if calls is not None else None

    @contextmanager
    def prepare(self) -> Generator[Prepared]:
        """Serve the task's pages, and make a folder for what browsers write."""
        with (
            serving(self._class.folder()) as address,
            # Short: the path of a browser's socket may have 107 characters.
            tempfile.TemporaryDirectory(prefix="b-", ignore_cleanup_errors=True) as folder,
        ):
            make_places(Path(folder))
            yield Prepared(address, folder)

    def reset(self, *, seed: int, task: Task | None) -> Any:
        """Start a browser and open the first page."""
        self._task = self._made(seed)
        self._task.rng, self._task.task = self.rng, task
        prepared: Prepared = self.prepared
        program = self._program or chromium(None)
        with one_place(Path(prepared.folder)):
            browser = self._browser = Browser(program, prepared, self._origins, self._task)
            goal = browser.set_up(self._task)
        return self._shown(f"Goal: {goal}")

    def act(self, name: str, arguments: Mapping[str, Any]) -> Step:
        """Do what the player says, and look at the page."""
        browser = self._browser
        if self._over or browser is None:
            raise ToolError("The episode is over.")
        failed = browser.act(name, arguments)
        if failed is not None and "Could not find element with bid" in failed:
            raise self._unknown(arguments)
        reward, self._over = browser.undisturbed(lambda: self._task.validate(browser.page))
        if failed is not None and not reward and not self._over:
            raise ToolError(failed, content=self._shown())
        seen = "The task is over." if self._over else self._shown(failed or "")
        return Step(seen, reward=float(reward), terminated=self._over)

    def _made(self, seed: int) -> BrowserTask:
        if issubclass(self._class, MiniWobTask):
            return self._class(self._name.removeprefix(_MINIWOB), seed)
        return self._class()

    def _unknown(self, arguments: Mapping[str, Any]) -> ToolError:
        ids = self._seen.ids
        more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
        given = [value for key, value in arguments.items() if key.endswith("bid")]
        return ToolError(
            f"There is no element {' or '.join(map(repr, given))}. The page has: {', '.join(ids[:_MOST_NAMED])}{more}."
        )

    def _shown(self, before: str = "") -> Any:
        browser = self._browser
        if browser is None:
            raise RuntimeError("there is no browser before reset")
        self._seen = browser.undisturbed(partial(self._look, browser))
        tabs = [f"{number}: {tab.url}" for number, tab in enumerate(browser.tabs)]
        lines = [
            before,
            *(f"The page said, and was answered: {said}" for said in browser.dialogs()),
            f"Tabs: {', '.join(tabs)}" if len(tabs) > 1 else "",
            f"Page: {browser.page.url[:500]}",
            self._seen.text if self._see != "screenshot" else "",
        ]
        text = "\n".join(line for line in lines if line)
        return text if self._see == "tree" else [text, browser.undisturbed(lambda: picture(browser.page))]

    def _look(self, browser: Browser) -> Seen:
        return look(browser.page, self._characters, self._coordinates)

    def legal_calls(self) -> list[tuple[str, dict[str, Any]]] | None:
        """Clicks on what can be clicked, and a word in each field."""
        clicks = self._seen.clickable or self._seen.ids
        calls: list[tuple[str, dict[str, Any]]] = [("click", {"bid": bid}) for bid in clicks]
        calls += [("fill", {"bid": bid, "value": "text"}) for bid in self._seen.fields]
        return [call for call in calls if call[0] in self._tools][:_MOST_CALLS] or None

    def close(self) -> None:
        """End the browser."""
        if self._browser is not None:
            self._browser.close()


def _task_of(task: str) -> type[BrowserTask]:
    return MiniWobTask if task.startswith(_MINIWOB) else task_class(task)


def usual_tools(task: type[BrowserTask], see: PageView) -> list[str]:
    """The tools of a task for which none are chosen."""
    placed = [*BY_COORDINATES] if see != "tree" else []
    # Other pages of MiniWoB++ are other tasks.
    elsewhere = [] if issubclass(task, MiniWobTask) else [*NAVIGATION, *TABS]
    return [*BY_ID, *placed, *elsewhere]
