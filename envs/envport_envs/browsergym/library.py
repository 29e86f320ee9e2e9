"""The extra `browsergym`, the tasks of MiniWoB++ that it has, and the system's Chromium."""

from __future__ import annotations

import difflib
import importlib.util
import logging
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from envport.errors import ConfigurationError, EnvironmentNotFound, InvalidOption, MissingExtra

__all__ = [
    "chromium",
    "execute",
    "high_level_actions",
    "image_of",
    "marking_error",
    "miniwob_pages",
    "miniwob_task",
    "observing",
    "playwright",
    "tree_text",
]

_NEAR, _NEAR_ENOUGH = 4, 0.5
_PROGRAMS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable")

try:
    playwright: Any = import_module("playwright.sync_api")
    observing: Any = import_module("browsergym.core.observation")
    marking_error: Any = observing.MarkingError
    execute: Any = import_module("browsergym.core.action.base").execute_python_code
    image_of: Any = import_module("PIL.Image").fromarray
    tree_text: Any = import_module("browsergym.utils.obs").flatten_axtree_to_str
    high_level_actions: Any = import_module("browsergym.core.action.highlevel").HighLevelActionSet
    _miniwob: Any = import_module("browsergym.miniwob")
    # Not imported: it would load Selenium.
    _pages: Any = importlib.util.find_spec("miniwob")
    if _pages is None:
        raise ImportError("there is no package miniwob")
except ImportError as error:
    raise MissingExtra("References with browsergym:", "browsergym") from error

# It warns of frames that are not shown.
logging.getLogger("browsergym").setLevel(logging.ERROR)

_TASKS: dict[str, Any] = {task.subdomain: task for task in _miniwob.ALL_MINIWOB_TASKS}


def miniwob_task(name: str) -> Any:
    """BrowserGym's class of a task of MiniWoB++.

    Args:
        name: Its name: `click-button`.

    Raises:
        EnvironmentNotFound: There is no such task; the message has the nearest ones, or all.
    """
    if (found := _TASKS.get(name)) is not None:
        return found
    near = difflib.get_close_matches(name, _TASKS, _NEAR, _NEAR_ENOUGH)
    more = f"Near: {', '.join(near)}." if near else f"Its {len(_TASKS)} tasks are: {', '.join(_TASKS)}."
    raise EnvironmentNotFound(f"browsergym:miniwob.{name}: MiniWoB++ has no task {name!r}. {more}")


def miniwob_pages() -> Path:
    """The folder of the pages of MiniWoB++."""
    return Path(_pages.submodule_search_locations[0]) / "html"


def chromium(given: Path | None) -> str:
    """The path of Chromium.

    Args:
        given: The path to use; if not given, it is looked for on the path.

    Raises:
        InvalidOption: There is no program at the given path.
        ConfigurationError: Chromium is not installed.
    """
    if given is not None:
        if (program := shutil.which(given)) is None:
            raise InvalidOption(f"scheme 'browsergym': option 'chromium' is '{given}', which is no program")
        return program
    if (found := next(filter(None, map(shutil.which, _PROGRAMS)), None)) is None:
        raise ConfigurationError(
            "References with browsergym: need Chromium, which is not installed: apt-get install chromium. "
            f"Looked for on the path: {', '.join(_PROGRAMS)}; the option chromium names another place"
        )
    return found
