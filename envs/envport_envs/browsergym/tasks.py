"""Tasks in a browser: those of MiniWoB++, and the class of your own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from urllib.parse import urljoin

from envport import Task, TaskSource
from envport.errors import EnvironmentNotFound, InvalidEnvironment
from envport.modules import module_at
from envport.types import LegalCall
from envport_envs.browsergym.library import miniwob_pages, miniwob_task
from envport_envs.browsergym.origins import SITE

__all__ = ["BrowserTask", "MiniWobTask", "task_class"]

# Pages see this instead of the time of day, so that a seed gives the same page on every day.
_SOME_DAY = """
(() => {
  const Real = Date, began = Real.now(), start = Real.UTC(2024, 4, 15, 12);
  const now = () => start + (Real.now() - began);
  window.Date = new Proxy(Real, {
    construct: (target, given, made) => Reflect.construct(target, given.length ? given : [now()], made),
    apply: () => new Real(now()).toString(),
    get: (target, key) => key === "now" ? now : Reflect.get(target, key),
  });
})();
"""
# Over 23 days. A longer one overflows in the browser and is over at once.
_MINIWOB_MILLISECONDS = 2_000_000_000
_MINIWOB_SEEDS = 2**32
# Those whose pages are the same for every seed.
_SOLUTIONS: Mapping[str, Sequence[LegalCall]] = {"click-test": [("click", {"bid": "13"})]}


class BrowserTask:
    """A task on web pages of your own. A new instance for each episode.

    Attributes:
        pages: A folder of pages, which the gateway serves at `site`. A relative path begins at the folder of the
            class's file. `None` if the pages are elsewhere.
        start: Where the task begins: a path in the folder, or a URL.
        origins: Origins that the browser may reach besides `site`, such as `https://example.com` or
            `http://127.0.0.1:3000`. Pages from elsewhere, and whatever scripts load from there, are refused.
        goal: What the player is told to do.
        max_steps: After how many calls an episode is truncated.
        viewport: Width and height of the browser's window, in pixels.
        accepts_dialogs: Whether dialogs (`confirm`, `prompt`) are accepted; if not, they are dismissed.
        script: JavaScript that runs before the scripts of each page.
        solution: Calls that solve every task, for the checker; `None` if there are none.
        site: The URL of the folder.
        task: The task that is played; `None` if `splits` has none.
        rng: Random generator, seeded from the episode's seed.
    """

    pages: ClassVar[str | None] = None
    start: str = "index.html"
    origins: ClassVar[Sequence[str]] = ()
    goal: str = ""
    max_steps: ClassVar[int] = 50
    viewport: tuple[int, int] = (1280, 720)
    accepts_dialogs: bool = False
    script: str = ""
    solution: Sequence[LegalCall] | None = None
    site: str = SITE
    task: Task | None = None
    rng: Random

    def setup(self, page: Any) -> str:
        """Open the first page.

        Args:
            page: Playwright's `Page` (sync).

        Returns:
            The goal.
        """
        page.goto(urljoin(self.site, self.start))
        return self.goal

    def validate(self, page: Any) -> tuple[float, bool]:
        """Look at the page after a call.

        Players may go to other pages, so look at `page.url` where that matters.

        Args:
            page: Playwright's `Page` (sync) of the present tab.

        Returns:
            The reward of the last call, and whether the task is over.
        """
        raise NotImplementedError

    @classmethod
    def splits(cls) -> Mapping[str, TaskSource]:
        """The tasks by split, where there are several on the same pages; see `Environment.splits`."""
        return {}

    @classmethod
    def folder(cls) -> Path | None:
        """The folder of its pages.

        Raises:
            InvalidEnvironment: There is no such folder.
        """
        if cls.pages is None:
            return None
        found = Path(inspect.getfile(cls)).parent / cls.pages
        if not found.is_dir():
            raise InvalidEnvironment(f"{cls.__qualname__}.pages is {cls.pages!r}, and there is no folder {found}")
        return found.resolve()


class MiniWobTask(BrowserTask):
    """A task of MiniWoB++, as BrowserGym sets it up and scores it.

    Args:
        name: Its name: `click-button`.
        seed: The episode's seed.
    """

    max_steps = 20
    script = _SOME_DAY

    def __init__(self, name: str, seed: int):
        self._task = miniwob_task(name)(
            seed=seed % _MINIWOB_SEEDS, base_url=f"{SITE}miniwob/", episode_max_time=_MINIWOB_MILLISECONDS
        )
        self.solution = _SOLUTIONS.get(name)
        size = self._task.viewport
        self.viewport = (size["width"], size["height"])

    def setup(self, page: Any) -> str:
        """Open the page, and let it draw the task."""
        goal, _ = self._task.setup(page)
        return str(goal)

    def validate(self, page: Any) -> tuple[float, bool]:
        """1 for a task that was solved, however long that took; 0 else."""
        reward, done, *_ = self._task.validate(page, [])
        return float(reward), bool(done)

    @classmethod
    def folder(cls) -> Path:
        """The folder of the pages of all its tasks."""
        return miniwob_pages()


def task_class(target: str) -> type[BrowserTask]:
    """The class that `package.module:Class` or `./path/file.py:Class` names.

    Raises:
        EnvironmentNotFound: There is nothing of that name.
        InvalidEnvironment: It is no task.
    """
    where, _, name = target.rpartition(":")
    found = getattr(module_at(where), name, None)
    if found is None:
        raise EnvironmentNotFound(f"browsergym:{target}: there is no {name!r} in {where}")
    if not (isinstance(found, type) and issubclass(found, BrowserTask)):
        raise InvalidEnvironment(f"browsergym:{target} is not a subclass of envport_envs.browsergym.BrowserTask")
    if found.validate is BrowserTask.validate:
        raise InvalidEnvironment(f"browsergym:{target} has no method validate, which gives the reward")
    return found
