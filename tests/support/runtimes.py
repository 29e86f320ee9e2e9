"""Episodes over each of the runtimes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from envport.environment import RuntimeKind
from envport.episodes import Episode, Episodes, Limits
from envport.registry import EnvironmentDefinition

KINDS: tuple[RuntimeKind, ...] = ("inline", "thread", "process")


@contextlib.asynccontextmanager
async def serving(
    *specs: EnvironmentDefinition, runtime: RuntimeKind | None = None, **settings: Any
) -> AsyncIterator[Episodes]:
    """A table of episodes, without surfaces."""
    clock = settings.pop("clock", None)
    episodes = Episodes({spec.name: spec for spec in specs}, Limits(**settings), clock, runtime=runtime)
    async with episodes.run():
        yield episodes


async def play(episode: Episode, tool: str, **arguments: Any) -> Any:
    """The first text that a call gives."""
    result = await episode.call(tool, arguments)
    return result.observation.text


def descriptors() -> list[str]:
    """What this process has open, whatever the numbers."""
    found: list[str] = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{entry}").partition(":")[0])
    return sorted(found)


def descendants(pid: int) -> list[tuple[int, str]]:
    """The processes below a process, with their states (`Z` for zombies).

    Without the one that Python's multiprocessing starts at its first use and keeps as long as the process lives.
    """
    parents: dict[int, list[tuple[int, str]]] = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
                parents.setdefault(int(parent), []).append((int(entry), state))
    found: list[tuple[int, str]] = []
    left = [pid]
    while left:
        below = [it for it in parents.get(left.pop(), []) if not _is_resource_tracker(it[0])]
        found.extend(below)
        left.extend(child for child, _ in below)
    return found


def _is_resource_tracker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"multiprocessing.resource_tracker" in file.read()
    except OSError:
        return False
