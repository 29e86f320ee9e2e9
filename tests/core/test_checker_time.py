"""A check ends when its time is over, and says what it did not come to, and what hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
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


async def examined(cls: type[Environment], seconds: float, seeds: Sequence[int] = (0,)) -> CheckReport:
    with CheckWatch(seconds) as watch:
        return await examine(cls, seeds, 3, watch, another_process=False)


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
    report = await examined(cls, 0.4)
    assert not report.ok
    found = [str(it) for it in report.findings if it.check == check]
    assert what in found[0]
    assert "0.2 s" in found[0]


class CallsSlowly(Environment):
    """Takes its time."""

    runtime = "thread"

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def act(self) -> str:
        """Act."""
        time.sleep(0.02)
        return "done"


async def test_what_the_time_did_not_suffice_for_is_a_warning_if_something_was_played() -> None:
    with CheckWatch(0.6) as watch:
        report = await examine(CallsSlowly, (3, 5, 8), 100, watch)
    assert report.ok
    (finding,) = report.findings
    assert str(finding).startswith("warning [coverage] stopped after 0.6 s, ")
    assert str(finding).endswith(": seeds 3, 5, 8 were not played to the end")
    assert report.unplayed == [3, 5, 8]


def test_no_time_to_play_is_an_error() -> None:
    class Sleeps(CallsSlowly):
        """Starts slowly."""

        def reset(self, *, seed: int, task: Task | None) -> str:
            LET_GO.wait(0.2)
            return "ready"

    with pytest.raises(InvalidEnvironment, match=r"stopped after 0.5 s, .*reset\(\).*: nothing was played") as caught:
        check_environment(Sleeps, seconds=0.5)
    assert "error [coverage]" in str(caught.value)


class Tasks(Sequence[Any]):
    def __init__(self, read: Callable[[int], Any]) -> None:
        self._read = read

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: Any) -> Any:
        return self._read(index)


def test_slow_tasks_leave_time_to_play() -> None:
    def read(index: int) -> Any:
        time.sleep(patient(0.02))
        return {"id": str(index)}

    class ManyTasks(CallsSlowly):
        """Has tasks that are read slowly."""

        def splits(self) -> dict[str, Any]:
            return {"train": Tasks(read)}

    report = check_environment(ManyTasks, seconds=patient(1.0), seeds=(0,), steps=1, another_process=False)
    assert report.calls == 3
    (finding,) = report.findings
    assert str(finding).startswith("warning [coverage] split 'train': only ")
    assert "of 52 tasks were checked, as reading them is slow" in str(finding)


def test_reading_of_tasks_is_stopped_between_two_tasks() -> None:
    def read(index: int) -> Any:
        time.sleep(0.15)
        return {"id": str(index)}

    class SlowTasks(CallsSlowly):
        """Has tasks that are read very slowly."""

        def splits(self) -> dict[str, Any]:
            return {"train": Tasks(read)}

    with pytest.raises(InvalidEnvironment, match=r"before reading split 'train', task 2 of 52: nothing was played"):
        check_environment(SlowTasks, seconds=0.25)


def test_a_call_that_blocks_everything_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Blocks(Environment):
        """Blocks the event loop."""

        def reset(self, *, seed: int, task: Task | None) -> str:
            return "ready"

        @tool
        def act(self) -> str:
            """Act."""
            while not caplog.records:
                time.sleep(0.01)
            return "done"

    with pytest.raises(InvalidEnvironment, match="nothing was played"):
        check_environment(Blocks, seconds=0.2)
    (said,) = [record.getMessage() for record in caplog.records if record.name.startswith("envport.checker")]
    assert "is over its limit of 0.2 s, but the call act({}) blocks it" in said


async def test_what_is_being_done_is_told_again_and_again() -> None:
    told: list[str] = []
    with CheckWatch(0.5, told.append, first=0.05, every=0.05) as watch:
        await examine(HangsInAct, (4, 6), 3, watch)
    assert len(told) >= 3
    assert any(line.endswith("s: playing seed 4 (1 of 2): the call act({})") for line in told)


async def test_without_a_limit_nothing_is_cut_short() -> None:
    report = await examine(CallsSlowly, (0,), 2, another_process=False)
    assert report.ok
    assert report.unplayed == []
