"""A check ends when its time is over, and says what it did not come to, and what hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import pytest
from patience import patient

from envport import Environment, Task, tool
from envport.checker import CheckReport, CheckWatch, check_environment, examine
from envport.errors import InvalidEnvironment

LET_GO = threading.Event()


@pytest.fixture(autouse=True)
def _hanging_threads_end() -> Iterator[None]:
    LET_GO.clear()
    CLOCK.now = 0.0
    yield
    LET_GO.set()


class Hangs(Environment):
    """Hangs somewhere."""

    runtime = "thread"
    where = ""

    def _at(self, where: str) -> None:
        if where == self.where:
            LET_GO.wait()

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._at(f"reset of seed {seed}")
        return "ready"

    @tool
    def act(self) -> str:
        """Act."""
        self._at("act")
        return "done"

    def close(self) -> None:
        self._at("close")


class HangsInAct(Hangs):
    """Hangs in a tool."""

    where = "act"


class HangsInReset(Hangs):
    """Hangs in the first reset."""

    where = "reset of seed 0"


class HangsInClose(Hangs):
    """Hangs when it is closed."""

    where = "close"


class HangsInCoroutine(Environment):
    """Hangs in the event loop, without blocking it."""

    async def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    async def act(self) -> str:
        """Act."""
        await anyio.sleep_forever()
        return "never"


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


async def examined(cls: type[Environment], seconds: float, seeds: Sequence[int] = (0,), steps: int = 3) -> CheckReport:
    with CheckWatch(seconds, clock=CLOCK) as watch:
        return await examine(cls, seeds, steps, watch, another_process=False)


@pytest.mark.parametrize(
    ("cls", "check", "what"),
    [
        (HangsInAct, "call", "act({}) hangs"),
        (HangsInReset, "reset", "reset() hangs"),
        (HangsInClose, "close", "close() hangs"),
        (HangsInCoroutine, "call", "act({}) hangs"),
    ],
)
async def test_what_hangs_is_named(cls: type[Environment], check: str, what: str) -> None:
    # A step may take half of the time. close() has a limit of its own, 5 s, which this never exceeds.
    seconds = patient(1.0)
    report = await examined(cls, seconds)
    assert not report.ok
    found = [str(it) for it in report.findings if it.check == check]
    assert what in found[0]
    assert f"{seconds / 2:g} s" in found[0]


class CallsSlowly(Environment):
    """Takes its time."""

    runtime = "thread"

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def act(self) -> str:
        """Act."""
        CLOCK.now += 1
        return "done"


async def test_what_the_time_did_not_suffice_for_is_a_warning_if_something_was_played() -> None:
    report = await examined(CallsSlowly, 60, (3, 5, 8), 100)
    assert report.ok
    (finding,) = report.findings
    assert str(finding).startswith("warning [coverage] stopped after 60 s, ")
    assert str(finding).endswith(": seeds 3, 5, 8 were not played to the end")
    assert report.unplayed == [3, 5, 8]


async def test_no_time_to_play_is_an_error() -> None:
    seconds = patient(5.0)

    class Sleeps(CallsSlowly):
        """Starts slowly."""

        def reset(self, *, seed: int, task: Task | None) -> str:
            if CLOCK.now:
                LET_GO.wait()
            else:
                # Then the time of the check is over before that of a single step.
                CLOCK.now = 0.9 * seconds
            return "ready"

    report = await examined(Sleeps, seconds)
    assert not report.ok
    (finding,) = report.findings
    assert str(finding).startswith(f"error [coverage] stopped after {seconds:g} s, before reset(): nothing was played")


class Tasks(Sequence[Any]):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: Any) -> Any:
        CLOCK.now += self._seconds
        return {"id": str(index)}


async def test_slow_tasks_leave_time_to_play() -> None:
    class ManyTasks(CallsSlowly):
        """Has tasks that are read slowly."""

        def splits(self) -> dict[str, Any]:
            return {"train": Tasks(1)}

    report = await examined(ManyTasks, 60, steps=1)
    assert report.calls == 3
    (finding,) = report.findings
    # Each is read twice, and a third of the time is for reading.
    said = "split 'train': only 11 of 52 tasks were checked, as reading them is slow"
    assert str(finding) == f"warning [coverage] {said}"


async def test_reading_of_tasks_is_stopped_between_two_tasks() -> None:
    class SlowTasks(CallsSlowly):
        """Has tasks that are read very slowly."""

        def splits(self) -> dict[str, Any]:
            return {"train": Tasks(40)}

    report = await examined(SlowTasks, 60)
    assert not report.ok
    (finding,) = report.findings
    said = "stopped after 60 s, before reading split 'train', task 2 of 52: nothing was played"
    assert str(finding).startswith(f"error [coverage] {said}")


def test_a_call_that_blocks_everything_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Blocks(Environment):
        """Blocks the event loop."""

        def reset(self, *, seed: int, task: Task | None) -> str:
            return "ready"

        @tool
        def act(self) -> str:
            """Act."""
            # Without the line, the assertions below say so.
            until = time.monotonic() + patient(30)
            while not caplog.records and time.monotonic() < until:
                LET_GO.wait(0.01)
            return "done"

    seconds = patient(1.0)
    with pytest.raises(InvalidEnvironment, match="nothing was played") as caught:
        check_environment(Blocks, seconds=seconds)
    assert "error [coverage]" in str(caught.value)
    (said,) = [record.getMessage() for record in caplog.records if record.name.startswith("envport.checker")]
    assert f"is over its limit of {seconds:g} s, but the call act({{}}) blocks it" in said


async def test_what_is_being_done_is_told_again_and_again() -> None:
    told: list[str] = []
    with CheckWatch(patient(2.0), told.append, first=0.05, every=0.05) as watch:
        await examine(HangsInAct, (4, 6), 3, watch)
    assert len(told) >= 3
    assert any("s: playing seed 4 (1 of 2): the call act({})" in line for line in told)


async def test_without_a_limit_nothing_is_cut_short() -> None:
    report = await examine(CallsSlowly, (0,), 2, another_process=False)
    assert report.ok
    assert report.unplayed == []
