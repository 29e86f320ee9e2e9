"""One timer for the deadlines of all requests of a connection."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from patience import patient

from envport.client.deadlines import Deadlines


async def expired(deadlines: Deadlines, told: asyncio.Queue[int], number: int) -> list[int]:
    async with asyncio.timeout(patient(20)):
        return [await told.get() for _ in range(number)]


async def test_requests_expire_in_the_order_of_their_deadlines_and_those_that_end_do_not():
    told = asyncio.Queue[int]()
    seconds: dict[int, float] = {}

    def expire(number: int, had: float) -> None:
        seconds[number] = had
        told.put_nowait(number)

    deadlines = Deadlines(expire)
    # A later one first, so that the timer has to be set forward, and one that ends.
    given = {1: 0.06, 2: 0.02, 3: 0.01, 4: 0.04}
    for number, limit in given.items():
        deadlines.begin(number, limit)
    deadlines.end(3)
    assert await expired(deadlines, told, 3) == [2, 4, 1]
    assert seconds == {number: given[number] for number in (1, 2, 4)}
    # The timer has stopped. The next request sets it again.
    deadlines.begin(5, 0.01)
    assert await expired(deadlines, told, 1) == [5]


async def test_nothing_expires_once_it_is_stopped():
    told = asyncio.Queue[int]()
    stopped, other = (Deadlines(lambda number, _: told.put_nowait(number)) for _ in range(2))
    stopped.begin(1, 0.01)
    stopped.stop()
    other.begin(2, 0.03)
    assert await expired(other, told, 1) == [2]
    assert told.empty()


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 1 / 30])
def test_a_limit_that_is_no_whole_number_of_milliseconds_is_kept_on_either_loop(seconds: float):
    """The timers of uvloop count milliseconds."""

    async def main() -> None:
        told = asyncio.Queue[int]()
        deadlines = Deadlines(lambda number, _: told.put_nowait(number))
        for number in range(100):
            deadlines.begin(number, seconds)
        # Whoever is told begins the next request in the same turn.
        for number in range(100, 200):
            (over,) = await expired(deadlines, told, 1)
            deadlines.begin(number, seconds if over % 2 else 20.0)
            deadlines.end(number)
        deadlines.stop()

    asyncio.run(main())
    uvloop.run(main())
