"""Environments made for tests."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import anyio
import anyio.lowlevel
from patience import patient
from pydantic import BaseModel, Field

from envport import Environment, Progress, Step, Task, TaskSource, ToolError, UpstreamLost, tool

SECRET = "hunter2-lies-in-the-traceback"


class Tracked(Environment):
    """Counts the instances that are alive, so that a leak shows."""

    alive: ClassVar[int] = 0

    def reset(self, *, seed: int, task: Task | None) -> str:
        type(self).alive += 1
        self._open = True
        return f"seed {seed}"

    def close(self) -> None:
        if getattr(self, "_open", False):
            type(self).alive -= 1
            self._open = False

    @tool
    def step(self) -> Step[str]:
        """Take a step worth 0.5."""
        return Step("stepped", reward=0.5)

    @tool
    def finish(self, reward: float) -> Step[str]:
        """End the task."""
        return Step("done", reward=reward, terminated=True, info={"why": "asked to"})

    @tool
    def cut(self) -> Step[str]:
        """Cut the episode off."""
        return Step("cut", truncated=True)

    @tool
    def refuse(self) -> str:
        """Refuse in words."""
        raise ToolError("The door is locked.")

    @tool
    def boom(self) -> str:
        """Break."""
        raise RuntimeError(SECRET)

    @tool
    def reward_of(self, kind: Literal["nan", "inf", "text"]) -> Step[str]:
        """Give a reward that is none."""
        bad: Any = {"nan": float("nan"), "inf": float("inf"), "text": "much"}[kind]
        return Step("?", reward=bad)

    @tool
    def strange(self) -> Any:
        """Return what no observation can be."""
        return object()


class Stubborn(Environment):
    """Breaks before it begins."""

    def __init__(self, where: Literal["reset", "nowhere"] = "reset"):
        self._where = where

    def reset(self, *, seed: int, task: Task | None) -> str:
        if self._where == "reset":
            raise RuntimeError(SECRET)
        return "fine"

    @tool
    def nothing(self) -> None:
        """Do nothing."""


class Elsewhere(Stubborn):
    """Its tasks are on a server that is down."""

    remote_tasks = True

    def splits(self) -> Mapping[str, Sequence[Task]]:
        return {"train": Down()}


class Down(Sequence[Task]):
    """One task that cannot be read."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        raise UpstreamLost("the server is down")


class Short(Environment):
    """Is cut off after three steps; its reward is the last one."""

    max_steps = 3
    reward = "last"

    def reset(self, *, seed: int, task: Task | None) -> None:
        self._steps = 0

    @tool
    def go(self) -> Step[str]:
        """Go on."""
        self._steps += 1
        return Step(f"{self._steps}", reward=float(self._steps))


class Gate(Environment):
    """Lets a test hold a call open."""

    entered: ClassVar[threading.Semaphore] = threading.Semaphore(0)
    opened: ClassVar[threading.Event] = threading.Event()
    inside: ClassVar[int] = 0
    most_inside: ClassVar[int] = 0
    runtime = "thread"

    @classmethod
    def rearm(cls) -> None:
        cls.entered, cls.opened = threading.Semaphore(0), threading.Event()
        cls.inside = cls.most_inside = 0

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "a gate"

    @tool
    def wait(self) -> str:
        """Wait until the gate is opened."""
        cls = type(self)
        cls.inside += 1
        cls.most_inside = max(cls.most_inside, cls.inside)
        cls.entered.release()
        assert cls.opened.wait(patient(30))
        cls.inside -= 1
        return "through"


class Chatty(Environment):
    """Reports its progress."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    async def work(self, steps: int, progress: Progress) -> str:
        """Work, one step after the other."""
        for step in range(steps):
            progress(step + 1, steps, f"step {step + 1} of {steps}")
            await anyio.lowlevel.checkpoint()
        return "worked"

    @tool
    def quiet(self) -> str:
        """Work without a word."""
        return "quiet"


class Threaded(Chatty):
    """Reports its progress from a thread."""

    runtime = "thread"

    @tool
    def toil(self, steps: int, progress: Progress) -> str:
        """Work in a thread."""
        for step in range(steps):
            progress(step + 1, steps)
        return f"toiled in {threading.current_thread().name}"


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Point(BaseModel):
    x: int
    y: float = 0.0


class Picky(Environment):
    """Takes arguments of many kinds. Größenordnungen: 1e-5 … 1e22."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self.touched = 0
        return "pick"

    @tool
    def pick(
        self,
        direction: Literal["left", "right"],
        color: Color = Color.RED,
        steps: Annotated[int, Field(ge=1, le=9)] = 1,
        weight: Annotated[float, Field(gt=1e-5, lt=1e22)] = 1.0,
        name: Annotated[str, Field(pattern="^[a-z]+$", max_length=8)] = "abc",
        point: Point | None = None,
        tags: list[str] | None = None,
    ) -> dict[str, Any]:
        """Wähle etwas aus — „ja“ 😀.

        Args:
            direction: Wohin?
            color: Which color.
        """
        self.touched += 1
        return {
            "direction": direction,
            "color": color.value,
            "steps": steps,
            "point": point.model_dump() if point else None,
            "tags": tags,
            "touched": self.touched,
        }

    @tool
    def say(self, text: str) -> str:
        """Say a text back."""
        return text


class Tasked(Environment):
    """Has tasks in two splits, one of them too large to be made at once."""

    def splits(self) -> dict[str, TaskSource]:
        return {"train": Endless(10**9), "test": [Task(id="a", prompt="Do a.", metadata={"answer": "42"})]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        assert task is not None
        return f"task {task.id} seed {seed} first {self.rng.random()}"

    @tool
    def roll(self) -> float:
        """Roll."""
        return self.rng.random()


class Endless(list[Task]):
    """A lazy task list that counts how many tasks were made."""

    made = 0

    def __init__(self, length: int):
        super().__init__()
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        Endless.made += 1
        return {"id": f"t{index}", "prompt": f"Do {index}.", "difficulty": index % 3}
