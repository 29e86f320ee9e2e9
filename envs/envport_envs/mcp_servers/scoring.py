"""Scoring the final state of a working folder, where nothing of the player runs.

A scoring function takes any of these by name, and returns a finite number, or `None` for no score:

| parameter | is |
|---|---|
| `folder` | `pathlib.Path` of a copy of the working folder; `None` if the server is at an address |
| `task` | the `envport.Task`, with its metadata |
| `calls` | a list of `ServerCall`: what the player called, and what the server answered |
| `call` | an async function: `await call(tool, arguments)` asks the server for any of its tools, shown or not |

It may be async, and has to be if it takes `call`. A server that was started for the episode is ended before a function
without `call` is called.
"""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from envport.errors import ConfigurationError
from envport.modules import module_at
from envport.program_sandbox import ProgramSandbox
from envport.sandboxing import interpreter
from envport.types import Observation, Task
from envport_envs.mcp_servers.sources import FOLDER, EpisodeFolders
from envport_envs.mcp_servers.tasks import Score

__all__ = ["Finished", "ServerCall", "asks_server", "require_score", "scored"]

_GIVEN = ("folder", "task", "calls", "call")
_MOST_ERRORS = 2_000
_NOT_STARTED = (126, 127)


@dataclass(frozen=True, slots=True)
class ServerCall:
    """A call of the player, and what the server answered.

    Attributes:
        tool: The tool.
        arguments: The arguments.
        observation: What the server returned.
        is_error: Whether the server called it an error.
    """

    tool: str
    arguments: Mapping[str, Any]
    observation: Observation
    is_error: bool


@dataclass(frozen=True)
class Finished:
    """An episode that is to be scored.

    Attributes:
        task: The task.
        folders: The folders; `final` is there, with the copy of the working folder. `None` if there is no such folder.
        calls: What the player called.
        call: Calls a tool of the server.
    """

    task: Task
    folders: EpisodeFolders | None
    calls: Sequence[ServerCall]
    call: Callable[[str, Mapping[str, Any]], Awaitable[Observation]]


def require_score(where: str, score: Score, *, has_folder: bool, sandbox: bool, tasks: str) -> None:
    """Check that a task can be scored as it says.

    Args:
        where: The task, for messages.
        score: What it says.
        has_folder: Whether the server has a working folder.
        sandbox: Whether a command runs in a sandbox.
        tasks: The folder of the task file.

    Raises:
        ConfigurationError: It cannot.
    """
    if score.function is None:
        if not has_folder:
            raise ConfigurationError(f"{where}: a server at an address has no working folder: score it by a function")
        if score.command is not None:
            _command(score.command, tasks)
            if sandbox:
                _sandbox(tasks)
        return
    parameters = inspect.signature(_function(score.function)).parameters
    unknown = [name for name, it in parameters.items() if it.default is it.empty and name not in _GIVEN]
    if unknown:
        raise ConfigurationError(
            f"{where}: the function {score.function} takes {unknown[0]!r}; it can take: {', '.join(_GIVEN)}"
        )
    if "call" in parameters and not inspect.iscoroutinefunction(_function(score.function)):
        raise ConfigurationError(f"{where}: the function {score.function} takes call, so it has to be async")


def asks_server(score: Score) -> bool:
    """Whether the score asks the server, which then has to be alive."""
    return score.function is not None and "call" in inspect.signature(_function(score.function)).parameters


async def scored(score: Score, finished: Finished, *, sandbox: bool, tasks: str) -> Any:
    """The score of an episode, unchecked.

    Args:
        score: How it is scored.
        finished: The episode.
        sandbox: Whether a command runs in a sandbox.
        tasks: The folder of the task file.
    """
    if score.function is not None:
        return await _by_function(_function(score.function), finished)
    assert finished.folders is not None
    if score.command is not None:
        return await _by_command(score.command, finished.folders, sandbox=sandbox, tasks=tasks)
    return float(_holds(score, finished.folders.final))


def _holds(score: Score, folder: Path) -> bool:
    def text(path: str) -> str | None:
        there = folder / path
        return there.read_text("utf-8", "replace") if there.is_file() else None

    return (
        all(text(path) == expected for path, expected in score.files.items())
        and all(part in (text(path) or "") for path, part in score.contains.items())
        and not any((folder / path).exists() for path in score.missing)
    )


async def _by_function(function: Callable[..., Any], finished: Finished) -> Any:
    given = {
        "folder": finished.folders.final if finished.folders is not None else None,
        "task": finished.task,
        "calls": [*finished.calls],
        "call": finished.call,
    }
    parameters = inspect.signature(function).parameters
    chosen = {name: value for name, value in given.items() if name in parameters}
    if inspect.iscoroutinefunction(function):
        return await function(**chosen)
    return await anyio.to_thread.run_sync(lambda: function(**chosen), abandon_on_cancel=True)


def _function(reference: str) -> Callable[..., Any]:
    where, _, name = reference.rpartition(":")
    if not where:
        raise ConfigurationError(
            f"{reference!r} names no scoring function; it has to be package.module:function or ./file.py:function"
        )
    found = getattr(module_at(where), name, None)
    if not callable(found):
        raise ConfigurationError(f"there is no function {name!r} in {where}")
    return found


async def _by_command(command: str, folders: EpisodeFolders, *, sandbox: bool, tasks: str) -> float:
    words, variables = _command(command, tasks), {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    if sandbox:
        shown = _sandbox(tasks)
        shown.write_settings(folders.settings)
        shown.hand_over(folders.final, folders.settings)
        words = shown.words(words, {FOLDER: folders.final}, folders.settings, FOLDER)
    process = await anyio.open_process(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**variables, "HOME": "/"},
        cwd=folders.final,
        start_new_session=True,
    )
    told = b""
    async with process:
        assert process.stderr is not None
        # What the player left may run in it, and print without end.
        async for chunk in process.stderr:
            told = (told + chunk)[-_MOST_ERRORS:]
        code = await process.wait()
    if code in _NOT_STARTED or code < 0:
        raise RuntimeError(f"the scoring command {command!r} ended with {code}: {told.decode('utf-8', 'replace')}")
    return float(code == 0)


def _sandbox(tasks: str) -> ProgramSandbox:
    return ProgramSandbox(
        "a scoring command",
        "Or give sandbox=false",
        name="scorer",
        home=FOLDER,
        network=False,
        seen=interpreter(),
        reads=[tasks],
    )


def _command(command: str, tasks: str) -> list[str]:
    try:
        words = [word.replace("{tasks}", tasks).replace("{python}", sys.executable) for word in shlex.split(command)]
    except ValueError as error:
        raise ConfigurationError(f"the scoring command {command!r} is not a command line: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise ConfigurationError(f"the scoring command {command!r}: there is no program {(words or [''])[0]!r}")
    return words
