"""Who may open an episode now, who waits, and who is refused."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from patience import patient

from envport.episodes import Admission
from envport.errors import AtCapacity, Draining

LONG = 3600.0
ENVIRONMENT = "play"


async def waiting(admission: Admission, order: list[str], principal: str, environment: str = ENVIRONMENT) -> None:
    await admission.acquire(principal, environment)
    order.append(principal)


async def test_places_go_to_those_who_wait_in_the_order_in_which_they_came() -> None:
    admission = Admission(1, None, max_waiting=9, wait_seconds=LONG)
    await admission.acquire("a", ENVIRONMENT)
    order: list[str] = []
    async with anyio.create_task_group() as tasks:
        for principal in "bcd":
            tasks.start_soon(waiting, admission, order, principal)
            await anyio.wait_all_tasks_blocked()
        for expected in (["b"], ["b", "c"], ["b", "c", "d"]):
            admission.release("a" if expected == ["b"] else expected[-2], ENVIRONMENT)
            await anyio.wait_all_tasks_blocked()
            assert order == expected
    assert admission.held == 1


async def test_who_waits_for_a_place_of_their_own_does_not_keep_others_out() -> None:
    admission = Admission(3, 1, max_waiting=9, wait_seconds=LONG)
    await admission.acquire("a", ENVIRONMENT)
    order: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting, admission, order, "a")
        await anyio.wait_all_tasks_blocked()
        await admission.acquire("b", ENVIRONMENT)
        assert order == []
        admission.release("a", ENVIRONMENT)
    assert order == ["a"]
    assert admission.held == 2


@pytest.mark.parametrize(
    ("admission", "limit"),
    [
        (Admission(1, None, max_waiting=9, wait_seconds=LONG), "total"),
        (Admission(9, 1, max_waiting=9, wait_seconds=LONG), "principal"),
        (Admission(9, None, max_waiting=9, wait_seconds=LONG, per_environment={ENVIRONMENT: 1}), "environment"),
    ],
    ids=["total", "principal", "environment"],
)
async def test_who_does_not_wait_is_refused_at_once_and_told_the_limit(admission: Admission, limit: str) -> None:
    await admission.acquire("a", ENVIRONMENT, wait=False)
    with anyio.fail_after(patient(30)), pytest.raises(AtCapacity) as refused:
        await admission.acquire("a", ENVIRONMENT, wait=False)
    assert (refused.value.limit, admission.held, admission.waiting) == (limit, 1, 0)


async def test_a_full_queue_refuses_at_once() -> None:
    admission = Admission(1, None, max_waiting=1, wait_seconds=LONG)
    await admission.acquire("a", ENVIRONMENT)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting, admission, [], "b")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(AtCapacity, match="all 1 episodes are in use") as caught:
            await admission.acquire("c", ENVIRONMENT)
        assert caught.value.retry_after == LONG
        admission.release("a", ENVIRONMENT)


async def test_waiting_comes_to_an_end() -> None:
    admission = Admission(1, None, max_waiting=9, wait_seconds=0.01)
    await admission.acquire("a", ENVIRONMENT)
    with pytest.raises(AtCapacity):
        await admission.acquire("b", ENVIRONMENT)
    admission.release("a", ENVIRONMENT)
    await admission.acquire("b", ENVIRONMENT)
    assert admission.held == 1


async def test_who_goes_away_while_waiting_takes_no_place() -> None:
    admission = Admission(1, None, max_waiting=9, wait_seconds=LONG)
    await admission.acquire("a", ENVIRONMENT)
    order: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting, admission, order, "b")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        # In the same moment in which the place comes free.
        admission.release("a", ENVIRONMENT)
    assert order == []
    assert admission.held == 0
    await admission.acquire("c", ENVIRONMENT)


# Limits of environments.


async def test_who_waits_for_an_environment_does_not_keep_others_out() -> None:
    admission = Admission(3, None, max_waiting=9, wait_seconds=LONG, per_environment={"scarce": 1})
    await admission.acquire("a", "scarce")
    order: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting, admission, order, "b", "scarce")
        await anyio.wait_all_tasks_blocked()
        # In all there is room for two more; what has no limit of its own takes them both.
        await admission.acquire("c", "plenty")
        await admission.acquire("d", "plenty")
        tasks.start_soon(waiting, admission, order, "e", "plenty")
        await anyio.wait_all_tasks_blocked()
        admission.release("c", "plenty")
        await anyio.wait_all_tasks_blocked()
        assert order == ["e"], "the place went to the one whose limits have room"
        admission.release("a", "scarce")
    assert order == ["e", "b"]
    assert admission.held == 3


@pytest.mark.parametrize(
    ("principal", "environment", "limit"),
    [
        ("a", "plenty", "your 2 episodes"),
        ("z", "scarce", "all 1 episodes of environment 'scarce'"),
        ("z", "plenty", "all 3 episodes are"),
    ],
)
async def test_a_refusal_names_the_limit_that_was_reached(principal: str, environment: str, limit: str) -> None:
    admission = Admission(3, 2, max_waiting=0, wait_seconds=LONG, per_environment={"scarce": 1})
    for one, of in (("a", "scarce"), ("a", "plenty"), ("b", "plenty")):
        await admission.acquire(one, of)
    with pytest.raises(AtCapacity, match=limit):
        await admission.acquire(principal, environment)


async def test_a_place_is_taken_before_anybody_else_runs() -> None:
    admission = Admission(9, None, max_waiting=0, wait_seconds=0, per_environment={"scarce": 2})
    outcomes: list[str] = []

    async def arrive() -> None:
        try:
            await admission.acquire("a", "scarce")
            outcomes.append("in")
        except AtCapacity:
            outcomes.append("refused")

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(arrive)
    assert Counter(outcomes) == {"in": 2, "refused": 3}


# Letting nobody in any more.


async def test_once_closed_it_refuses_those_who_wait_and_those_who_come() -> None:
    admission = Admission(1, None, max_waiting=9, wait_seconds=LONG)
    await admission.acquire("a", ENVIRONMENT)
    refused: list[str] = []

    async def wait(principal: str) -> None:
        with pytest.raises(Draining):
            await admission.acquire(principal, ENVIRONMENT)
        refused.append(principal)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "b")
        tasks.start_soon(wait, "c")
        await anyio.wait_all_tasks_blocked()
        admission.close()
    assert sorted(refused) == ["b", "c"]
    assert admission.waiting == 0
    emptied = anyio.Event()

    async def empty() -> None:
        await admission.emptied()
        emptied.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(empty)
        await anyio.wait_all_tasks_blocked()
        assert not emptied.is_set()
        admission.release("a", ENVIRONMENT)
    assert emptied.is_set()
    with pytest.raises(Draining):
        await admission.acquire("a", ENVIRONMENT)


# Whatever is done in whatever order.

CAPACITY, PER_PRINCIPAL, MAX_WAITING = 4, 3, 4
PER_ENVIRONMENT = {"one": 1, "two": 2}


@dataclass(eq=False)
class Request:
    """A request and what became of it."""

    principal: str
    environment: str
    scope: anyio.CancelScope
    outcome: str = "waiting"


class Machine(RuleBasedStateMachine):
    """Admission beside its rules, written down as a list of those inside and a list of those who wait."""

    def __init__(self) -> None:
        super().__init__()
        self._portal_context = start_blocking_portal()
        self._portal = self._portal_context.__enter__()
        self.admission = self._portal.call(self._new)
        self.inside: list[Request] = []
        self.queue: list[Request] = []
        self.closed = False

    async def _new(self) -> Admission:
        return Admission(CAPACITY, PER_PRINCIPAL, MAX_WAITING, LONG, PER_ENVIRONMENT)

    def teardown(self) -> None:
        for request in self.queue:
            self._portal.call(request.scope.cancel)
        self._portal_context.__exit__(None, None, None)

    def _do(self, work: Callable[[], Any]) -> None:
        async def settled() -> None:
            work()
            await anyio.wait_all_tasks_blocked()

        self._portal.call(settled)

    async def _ask(self, request: Request) -> None:
        with request.scope:
            try:
                await self.admission.acquire(request.principal, request.environment)
                request.outcome = "inside"
            except Draining:
                request.outcome = "drained"
            except AtCapacity:
                request.outcome = "refused"

    def _room(self, request: Request) -> bool:
        own = sum(it.principal == request.principal for it in self.inside)
        of = sum(it.environment == request.environment for it in self.inside)
        most = PER_ENVIRONMENT.get(request.environment, CAPACITY)
        return len(self.inside) < CAPACITY and own < PER_PRINCIPAL and of < most

    def _let_in(self) -> None:
        for request in list(self.queue):
            if self._room(request):
                self.queue.remove(request)
                self.inside.append(request)

    @rule(principal=st.sampled_from("ab"), environment=st.sampled_from(["one", "two", "any"]))
    def arrive(self, principal: str, environment: str) -> None:
        request = Request(principal, environment, self._portal.call(anyio.CancelScope))
        if self.closed:
            expected = "drained"
        elif self._room(request):
            expected = "inside"
            self.inside.append(request)
        elif len(self.queue) < MAX_WAITING:
            expected = "waiting"
            self.queue.append(request)
        else:
            expected = "refused"
        asking: Callable[[], Coroutine[Any, Any, None]] = functools.partial(self._ask, request)
        self._portal.start_task_soon(asking)
        self._do(lambda: None)
        assert request.outcome == expected

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.inside:
            request = data.draw(st.sampled_from(self.inside))
            self.inside.remove(request)
            self._let_in()
            self._do(lambda: self.admission.release(request.principal, request.environment))

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if self.queue:
            request = data.draw(st.sampled_from(self.queue))
            self.queue.remove(request)
            self._do(request.scope.cancel)

    @rule(data=st.data())
    def give_up_while_another_leaves(self, data: st.DataObject) -> None:
        if self.queue and self.inside:
            request, gone = data.draw(st.sampled_from(self.queue)), data.draw(st.sampled_from(self.inside))
            self.inside.remove(gone)
            self._let_in()

            def both() -> None:
                self.admission.release(gone.principal, gone.environment)
                request.scope.cancel()

            self._do(both)
            if request in self.queue:
                self.queue.remove(request)
                return
            # The place had come to the one who gave up; it goes on to the next.
            self.inside.remove(request)
            self._let_in()
            if request.outcome == "inside":
                self._do(lambda: self.admission.release(request.principal, request.environment))

    @rule(sure=st.integers(0, 9))
    def close(self, sure: int) -> None:
        if sure == 0:
            self.closed = True
            self._do(self.admission.close)
            assert {request.outcome for request in self.queue} <= {"drained"}
            self.queue.clear()

    @invariant()
    def it_is_as_the_rules_say(self) -> None:
        assert all(request.outcome == "inside" for request in self.inside)
        assert all(request.outcome == "waiting" for request in self.queue)
        assert (self.admission.held, self.admission.waiting) == (len(self.inside), len(self.queue))


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMachine = Machine.TestCase
