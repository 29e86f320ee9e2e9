"""The memory that an open episode costs, measured in a process that has run nothing else.

    python -m envport_bridges.audit.memory catch

Memory that an earlier episode has given back would be used again, and hide what the next one takes: so it is a process
of its own, in which all episodes stay open. What counts is the proportional set size (PSS) of this process and of all
that it has started, so that memory which processes share counts once.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from subprocess import PIPE

import anyio

from envport.definition import EnvironmentDefinition
from envport.episodes import Episodes, Found, Limits, OpenRequest
from envport.errors import RequestError
from envport.registry import load
from envport.types import Choice
from envport_bridges.audit.players import Table

__all__ = ["memory_of"]

_PRINCIPAL = "memory"
# What the first episodes load stays for all.
_FIRST = 2
_EPISODES, _PROCESSES = 64, 8
_CALLS = 2
_KIB = 1024


async def memory_of(reference: str) -> float:
    """The memory of an open episode in MiB, after a few calls where these do not end it.

    Args:
        reference: The environment, as `envport serve` takes it.

    Raises:
        subprocess.CalledProcessError: It cannot be measured here.
    """
    done = await anyio.run_process([sys.executable, "-m", __name__, reference], stderr=PIPE)
    return float(done.stdout.split()[-1])


async def _measured(definition: EnvironmentDefinition) -> float:
    number = _PROCESSES if definition.cls.runtime == "process" else _EPISODES
    episodes = Episodes({definition.name: definition}, Limits(max_episodes=2 * (_FIRST + number)))
    async with episodes.run():
        for seed in range(_FIRST):
            await _open(episodes, definition, seed)
        before = _memory()
        for seed in range(_FIRST, _FIRST + number):
            await _open(episodes, definition, seed)
        return (_memory() - before) / number / _KIB


async def _open(episodes: Episodes, definition: EnvironmentDefinition, seed: int) -> None:
    """Open an episode and play it a little, without ending it."""
    asked = OpenRequest(definition.name, _PRINCIPAL, Choice(definition.default_split, None, seed))
    episode = await episodes.open_episode(asked)
    found, table = Found(episode.handle, _PRINCIPAL, episode.spec), Table(episode.start.tools.listing, Random(seed))
    for _ in range(_CALLS):
        with contextlib.suppress(RequestError):
            table.legal = await episodes.legal_calls(found)
            if (call := table.any_call()) is None:
                return
            result = await episodes.call(found, *call)
            if result.terminated or result.truncated:
                await episodes.open_episode(asked)
                return


def _memory() -> int:
    """KiB of memory of this process and its descendants."""
    gc.collect()
    return sum(_pss(pid) for pid in _family("self"))


def _family(pid: str) -> Iterator[str]:
    yield pid
    for file in Path("/proc", pid).glob("task/*/children"):
        with contextlib.suppress(FileNotFoundError):
            for child in file.read_text().split():
                yield from _family(child)


def _pss(pid: str) -> int:
    try:
        lines = Path("/proc", pid, "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        # It has ended meanwhile.
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    print(anyio.run(_measured, load(sys.argv[1])))
