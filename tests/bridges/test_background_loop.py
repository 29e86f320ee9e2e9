"""The loop in a thread of its own that plays episodes, for callers in other event loops."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from patience import patient

from envport_bridges.rollouts.loop import BackgroundLoop


async def wait_until_cancelled(began: threading.Event, cancelled: threading.Event) -> None:
    began.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.set()
        raise


async def test_many_callers_get_their_own_answers_and_errors():
    loop = BackgroundLoop("test")

    async def work(number: int) -> int:
        await asyncio.sleep(0)
        if number % 3 == 0:
            raise ValueError(str(number))
        return number

    try:
        async with asyncio.timeout(patient(20)):
            told = await asyncio.gather(*(loop.run_async(work(n)) for n in range(300)), return_exceptions=True)
    finally:
        loop.stop()
    assert [str(answer) for answer in told] == [str(number) for number in range(300)]
    assert [isinstance(answer, ValueError) for answer in told] == [number % 3 == 0 for number in range(300)]


async def test_work_is_cancelled_with_its_caller():
    loop = BackgroundLoop("test")
    began, cancelled = threading.Event(), threading.Event()
    try:
        caller = asyncio.create_task(loop.run_async(wait_until_cancelled(began, cancelled)))
        assert await asyncio.to_thread(began.wait, patient(20))
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert await asyncio.to_thread(cancelled.wait, patient(20))
    finally:
        loop.stop()


async def test_work_that_is_given_up_before_it_begins_leaves_nothing_behind():
    loop = BackgroundLoop("test")
    go_on = threading.Event()

    async def hold() -> None:
        assert go_on.wait(patient(20))

    async def work() -> None:
        raise AssertionError("it ran")

    try:
        held, never = loop.submit(hold()), work()
        caller = asyncio.create_task(loop.run_async(never))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        future = loop.submit(work())
        assert future.cancel()
        go_on.set()
        held.result(patient(20))
        # Whatever was handed over before has had its turn by then.
        assert loop.run(asyncio.sleep(0, "done")) == "done"
        assert inspect.getcoroutinestate(never) == inspect.CORO_CLOSED
    finally:
        loop.stop()


def test_a_caller_that_waits_no_longer_cancels_the_work():
    loop = BackgroundLoop("test")
    began, cancelled = threading.Event(), threading.Event()
    try:
        for seconds in (0.0, -1.0):
            with pytest.raises(TimeoutError):
                loop.run(wait_until_cancelled(began, cancelled), seconds)
        # On a busy machine, it may be given up before it has begun.
        while not began.is_set():
            with pytest.raises(TimeoutError):
                loop.run(wait_until_cancelled(began, cancelled), 0.01)
        assert cancelled.wait(patient(20))
    finally:
        loop.stop()


@pytest.mark.parametrize("way", ["run", "submit", "given up"])
def test_an_error_of_the_work_is_raised_and_holds_nothing(way: str):
    class Kept:
        pass

    loop = BackgroundLoop("test")
    kept = Kept()
    seen = weakref.ref(kept)

    async def work(kept: Kept) -> None:
        if way == "given up":
            await asyncio.Event().wait()
        raise ValueError("of the work")

    ways: dict[str, Callable[[Coroutine[Any, Any, None]], object]] = {
        "run": loop.run,
        "submit": lambda work: loop.submit(work).result(patient(20)),
        "given up": lambda work: loop.run(work, 0.01),
    }

    def fail(kept: Kept) -> None:
        handed_over = work(kept)
        with pytest.raises((ValueError, TimeoutError)):
            ways[way](handed_over)

    gc.disable()
    try:
        fail(kept)
        del kept
        # The loop's thread lets go of the work a moment after it has told its end.
        for _ in range(3):
            loop.run(asyncio.sleep(0))
        assert seen() is None
    finally:
        gc.enable()
        loop.stop()


async def test_a_loop_that_was_stopped_says_so_each_time():
    loop = BackgroundLoop("test")
    loop.stop()

    async def work() -> None:
        raise AssertionError("it ran")

    for _ in range(3):
        with pytest.raises(RuntimeError):
            async with asyncio.timeout(patient(20)):
                await loop.run_async(work())


def test_whatever_is_handed_over_while_a_loop_is_stopped_has_an_end():
    async def work() -> None:
        await asyncio.sleep(0)

    def hand_over(loop: BackgroundLoop, handed_over: list[Future[None]], begun: threading.Event) -> bool:
        try:
            for _ in range(100_000):
                handed_over.append(loop.submit(work()))
                begun.set()
        except RuntimeError:
            return True
        return False

    with ThreadPoolExecutor(1) as thread:
        for _ in range(10):
            loop = BackgroundLoop("test")
            handed_over, begun = list[Future[None]](), threading.Event()
            refused = thread.submit(hand_over, loop, handed_over, begun)
            assert begun.wait(patient(20))
            loop.stop()
            assert refused.result(patient(20))
            assert not wait(handed_over, patient(20)).not_done


def test_the_loops_of_callers_are_not_kept():
    """A training has a loop for each batch."""
    loop = BackgroundLoop("test")

    async def work() -> int:
        return 1

    def call() -> weakref.ref[asyncio.AbstractEventLoop]:
        caller = BackgroundLoop("caller")
        assert caller.run(loop.run_async(work())) == 1
        caller.stop()
        return weakref.ref(caller._loop)

    try:
        called = [call() for _ in range(3)]
        gc.collect()
        assert [loop() for loop in called] == [None] * 3
    finally:
        loop.stop()
