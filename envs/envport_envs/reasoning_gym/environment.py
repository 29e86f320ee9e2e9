"""Tasks of reasoning-gym as an environment of envport."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from envport import Environment, Step, Task, TaskSource, ToolError, tool
from envport_envs.lazy_tasks import LazyTasks
from envport_envs.reasoning_gym.library import Questions
from envport_envs.reasoning_gym.scoring import score, scoring

__all__ = ["ConfigsByTask", "ReasoningGymEnvironment", "SplitSize"]

SplitSize = Annotated[int, Field(ge=1, le=1_000_000)]
ConfigsByTask = dict[str, dict[str, Any]]

_MOST_SEEDS = 2**31
# Many scorers give a little to any text.
_NOTHING = 0.05


class ReasoningGymEnvironment(Environment):
    """Answer a question of reasoning-gym, once.

    A question is a number. The first ones, `test_size` of them, are the split `test`, and the following ones `train`.
    Answers are scored by reasoning-gym, in a process of its own with a limit of CPU time.

    The reward is 1 for an answer with the full score, and else 0. With `partial`, it is reasoning-gym's score, of which
    0.05 or less counts as 0.

    Args:
        tasks: Names of tasks, with commas between them.
        weights: How often each task is drawn, compared with the others. Equally often if not given.
        train_size: Questions of the split `train`.
        test_size: Questions of the split `test`.
        seed: Seed of the questions.
        config: Settings of tasks, by the task's name.
        partial: Whether an answer that is not right may earn a part.
    """

    instructions = (
        "Answer the question. Call submit_answer once, with nothing but the answer, in the form that the question asks "
        "for."
    )
    deterministic = True
    runtime = "thread"

    def __init__(
        self,
        tasks: str = "chain_sum",
        weights: list[float] | None = None,
        train_size: SplitSize = 1_000,
        test_size: SplitSize = 200,
        seed: Annotated[int, Field(ge=0, lt=_MOST_SEEDS)] = 0,
        config: ConfigsByTask | None = None,
        partial: bool = False,
    ):
        names = tuple(name.strip() for name in tasks.split(","))
        drawn = tuple(weights) if weights is not None else (1.0,) * len(names)
        self._questions = Questions(names, drawn, train_size + test_size, seed, config or {})
        self._questions.check(partial)
        self._test_size = test_size
        self._partial = partial

    def splits(self) -> Mapping[str, TaskSource]:
        """The first questions for testing, and the others for training."""
        size = self._questions.size
        return {
            "train": LazyTasks(range(self._test_size, size), self._task),
            "test": LazyTasks(range(self._test_size), self._task),
        }

    def _task(self, number: int) -> Task:
        name = self._questions.name(number)
        return Task(id=f"{name}-{number}", metadata={"task": name, "question": number})

    @contextmanager
    def prepare(self) -> Generator[str]:
        """Run the process that scores answers."""
        with scoring(self._questions) as address:
            yield address

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Ask the question."""
        size = self._questions.size
        number = task.metadata.get("question") if task is not None else self.rng.randrange(self._test_size, size)
        if type(number) is not int or not 0 <= number < size:
            raise ToolError(f"the task's question is {number!r}; it has to be a number from 0 to {size - 1}")
        self._number = number
        return self._questions.text(number)

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def submit_answer(self, answer: Annotated[str, Field(max_length=20_000)]) -> Step:
        """Submit the answer. This ends the episode.

        Args:
            answer: The answer, and nothing else.
        """
        given = score(self.prepared, self._number, answer)
        reward = (given if given > _NOTHING else 0.0) if self._partial else float(given == 1)
        return Step("Your answer has been submitted.", reward=reward, terminated=True)
