"""Who may open an episode now, who waits, and who is refused."""

from __future__ import annotations

import anyio
import pytest

from envport.episodes import Admission
from envport.errors import AtCapacity

LONG = 3600.0


async def waiting(admission: Admission, order: list[str], principal: str) -> None:
    await admission.acquire(principal)
    order.append(principal)


async def test_places_go_to_those_who_wait_in_the_order_in_which_they_came() -> None:
    admission = Admission(1, None, max_waiting=9, wait_seconds=LONG)
    await admission.acquire("a")
    order: list[str] = []
    async with anyio.create_task_group() as tasks:
        for principal in "bcd":
            tasks.start_soon(waiting, admission, order, principal)
            await anyio.wait_all_tasks_blocked()
        for expected in (["b"], ["b", "c"], ["b", "c", "d"]):
            admission.release("a" if expected == ["b"] else expected[-2])
            await anyio.wait_all_tasks_blocked()
            assert order == expected
    assert admission.held == 1


async def test_who_waits_for_a_place_of_their_own_does_not_keep_others_out() -> None:
    admission = Admission(3, 1, max_waiting=9, wait_seconds=LONG)
    await admission.acquire("a")
    order: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting, admission, order, "a")
        await anyio.wait_all_tasks_blocked()
        await admission.acquire("b")
        assert order == []
        admission.release("a")
    assert order == ["a"]
    assert admission.held == 2


async def test_a_full_queue_refuses_at_once() -> None:
    admission = Admission(1, None, max_waiting=1, wait_seconds=LONG)
    await admission.acquire("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting, admission, [], "b")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(AtCapacity, match="all 1 episodes are in use") as caught:
            await admission.acquire("c")
        assert caught.value.retry_after == LONG
        admission.release("a")


async def test_waiting_comes_to_an_end() -> None:
    admission = Admission(1, None, max_waiting=9, wait_seconds=0.01)
    await admission.acquire("a")
    with pytest.raises(AtCapacity):
        await admission.acquire("b")
    admission.release("a")
    await admission.acquire("b")
    assert admission.held == 1


async def test_who_goes_away_while_waiting_takes_no_place() -> None:
    admission = Admission(1, None, max_waiting=9, wait_seconds=LONG)
    await admission.acquire("a")
    order: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting, admission, order, "b")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        # In the same moment in which the place comes free.
        admission.release("a")
    assert order == []
    assert admission.held == 0
    await admission.acquire("c")
