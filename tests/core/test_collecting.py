"""Garbage is collected by the clock."""

from __future__ import annotations

import asyncio
import gc
import weakref

from patience import patient

from envport.collecting import collecting_by_the_clock


class Knot:
    """Refers to itself, so that only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


async def test_old_garbage_goes_by_the_clock_and_not_before():
    before = gc.get_threshold()
    freed = asyncio.Event()
    with collecting_by_the_clock(0.05):
        knot = Knot()
        # As old as it can be: the young generations are walked all the time.
        gc.collect(0)
        gc.collect(1)
        weakref.finalize(knot, freed.set)
        del knot
        keep = [[number] for number in range(300_000)]
        assert not freed.is_set()
        await asyncio.wait_for(freed.wait(), patient(30))
        assert len(keep) == 300_000
    assert gc.get_threshold() == before


async def test_nothing_is_walked_twice_after_the_end():
    with collecting_by_the_clock(0.01):
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
    generations: list[int] = []
    gc.callbacks.append(note := lambda phase, info: generations.append(info["generation"]))
    try:
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, done.set)
        await done.wait()
    finally:
        gc.callbacks.remove(note)
    assert 2 not in generations
