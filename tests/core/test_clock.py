"""The clock that tests move by hand."""

from __future__ import annotations

import anyio

from envport.clock import Clock, ManualClock, SystemClock


async def test_sleepers_wake_in_the_order_of_their_time() -> None:
    clock = ManualClock(now=100.0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with anyio.create_task_group() as tasks:
        for name, seconds in (("late", 5.0), ("early", 1.0), ("never", 60.0)):
            tasks.start_soon(sleeper, name, seconds)
        await clock.advance(0.5)
        assert woken == []
        await clock.advance(10.0)
        assert woken == [("early", 1.0), ("late", 5.0)]
        assert clock.time() == 110.5
        tasks.cancel_scope.cancel()


async def test_a_sleeper_that_sleeps_again_is_woken_within_one_advance() -> None:
    clock = ManualClock()
    ticks: list[float] = []

    async def ticking() -> None:
        while True:
            await clock.sleep(1.0)
            ticks.append(clock.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ticking)
        await clock.advance(3.5)
        assert ticks == [1.0, 2.0, 3.0]
        tasks.cancel_scope.cancel()


async def test_the_systems_clock_moves_by_itself() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic(), clock.time()
    await clock.sleep(0)
    assert clock.monotonic() >= before[0]
    assert clock.time() > 1_600_000_000
