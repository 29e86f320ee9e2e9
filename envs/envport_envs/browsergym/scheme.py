"""The scheme `browsergym:`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from envport.errors import EnvironmentNotFound
from envport.registry import EnvironmentDefinition
from envport_envs.browsergym.actions import checked_tools
from envport_envs.browsergym.environment import BrowserEnvironment, PageView
from envport_envs.browsergym.library import chromium as found_chromium
from envport_envs.browsergym.library import miniwob_task
from envport_envs.browsergym.origins import Origins
from envport_envs.browsergym.tasks import task_class

__all__ = ["browsergym"]


def browsergym(
    rest: str,
    /,
    *,
    see: PageView = "tree",
    tools: list[str] | None = None,
    max_steps: Annotated[int, Field(ge=1)] | None = None,
    characters: Annotated[int, Field(ge=100)] | None = None,
    origins: list[str] | None = None,
    chromium: Path | None = None,
) -> EnvironmentDefinition:
    """A task in a web browser: `browsergym:miniwob.click-button`, or `browsergym:./shop.py:Shop`.

    Args:
        rest: `miniwob.NAME` for a task of MiniWoB++, or the class of a task of your own.
        see: What the player sees; see `BrowserEnvironment`.
        tools: The tools that are shown, as JSON: `["click","fill"]`.
        max_steps: After how many calls an episode is truncated.
        characters: How many characters of a page are shown.
        origins: Origins that the browser may reach, besides those of the task: `["http://127.0.0.1:3000"]`.
        chromium: The path of Chromium; looked for if not given.

    Raises:
        EnvironmentNotFound: There is no such task.
        InvalidEnvironment: The class is no task, or its folder of pages is missing.
        InvalidOption: An option or an origin of the task is not one.
        ConfigurationError: Chromium is not installed.
    """
    name, target = _named(rest)
    Origins.of(origins or ())
    given = {
        "see": None if see == "tree" else see,
        "tools": [*checked_tools(tools)] if tools is not None else None,
        "max_steps": max_steps,
        "characters": characters,
        "origins": origins,
    }
    options = {"task": target, **{key: value for key, value in given.items() if value is not None}}
    return EnvironmentDefinition(name, BrowserEnvironment, options, {"program": found_chromium(chromium)})


def _named(rest: str) -> tuple[str, str]:
    """The name of an environment, and the task that any process finds."""
    kind, _, name = rest.partition(".")
    if kind == "miniwob" and name:
        miniwob_task(name)
        return rest, rest
    where, _, cls = rest.rpartition(":")
    if not where or not cls.isidentifier():
        raise EnvironmentNotFound(
            f"browsergym:{rest} names no task; write browsergym:miniwob.click-button for one of MiniWoB++, or "
            "browsergym:./path/file.py:Class or browsergym:package.module:Class for one of your own"
        )
    found = task_class(rest)
    found.folder()
    Origins.of(found.origins)
    path = str(Path(where).resolve()) if where.endswith(".py") else where
    return cls, f"{path}:{cls}"
