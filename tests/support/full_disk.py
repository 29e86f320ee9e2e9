"""Episodes whose store is on a disk that becomes full. Run in a mount namespace of its own."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from recorded import opened, table_on

from envport.episodes import Episode
from envport.errors import EpisodeFailed, StoreUnavailable
from envport.trajectories.recorder import open_archive

__all__ = ["fill_up"]

_MIB = 2**20


def _fill(path: Path) -> None:
    """Take all the room that is left."""
    with path.open("wb", buffering=0) as file:
        for size in (_MIB, 4096):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


async def _echo_for_ever(episode: Episode, told: list[str]) -> None:
    while True:
        told.append((await episode.call("echo", {"message": "x" * 100_000})).observation.text)


async def fill_up(place: str) -> None:
    """Play until the disk is full, make room again, and look at what was recorded.

    Args:
        place: A folder on a disk of 40 MB.
    """
    ballast = Path(place) / "ballast"
    store = Path(place) / "store"
    told: dict[str, list[str]] = {}
    async with table_on(store) as (table, archive):
        lost = await opened(table, "echo")
        told[lost.handle] = [(await lost.call("echo", {"message": "first"})).observation.text]
        _fill(ballast)
        with pytest.raises(EpisodeFailed) as full:
            await _echo_for_ever(lost, told[lost.handle])
        assert (full.value.fault, full.value.reason) == ("infrastructure", "store")
        assert (lost.status, lost.reward) == ("failed", None)
        with pytest.raises(StoreUnavailable, match="No space left on device"):
            await opened(table, "echo")
        ballast.unlink()
        after = await opened(table, "echo")
        told[after.handle] = [(await after.call("echo", {"message": "again"})).observation.text]
        for handle, seen in told.items():
            assert [step.observation.text for step in await archive.steps(handle) if not step.error] == seen
    with open_archive(store) as archive:
        assert [len(await archive.steps(handle)) for handle in told][1] == 1
    assert not os.listdir(store / "journals")
