"""The environment `sqlite`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from envport import Environment, Solution, Step, Task, TaskSource, tool
from envport_envs.sqlite.data import SCHEMA
from envport_envs.sqlite.querying import run_query, running_queries
from envport_envs.sqlite.tasks import NUMBERS, is_right, number_of, prompt_of, question_of, splits

__all__ = ["SqliteEnvironment"]

Text = Annotated[str, Field(max_length=1_000)]
Items = Annotated[list[Text], Field(max_length=50)]


class SqliteEnvironment(Environment):
    """An analyst's questions about a database: query it with SQL and submit the answer, for a reward of 1.

    Each task has a small database of a shop of its own, and a question about it. Questions get harder within each
    round of 22 templates: aggregates, joins, what is missing (NULL), days, and windows. Queries that fall into the
    question's trap give another answer.

    Queries run in a process beside the gateway, each in a child with limits of CPU time and memory. The answer is in no
    database: it is computed where the reward is, and compared by its type.

    A task is a number. Every fifth is held out of `train` and makes up `test`. Played without a task, the seed chooses
    it.

    Args:
        seconds: Seconds of CPU time that a query may take.
    """

    # Queries run elsewhere, so no episode needs a process of its own; a thread, because it waits for them.
    deterministic = True
    runtime = "thread"
    max_steps = 100

    def __init__(self, seconds: Annotated[int, Field(ge=1, le=60)] = 5):
        self._seconds = seconds

    def splits(self) -> Mapping[str, TaskSource]:
        """Questions to train on, and questions that are held out."""
        return splits()

    @contextmanager
    def prepare(self) -> Generator[str]:
        """Run the process that runs queries."""
        with running_queries(self._seconds) as address:
            yield address

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Choose the question."""
        self._number = number_of({"number": self.rng.randrange(NUMBERS)} if task is None else task.metadata)
        told = "The database has the tables customers, products, orders, order_items and payments."
        return told if task is not None and task.prompt else f"{prompt_of(self._number)}\n\n{told}"

    @tool(name="schema", read_only=True, idempotent=True, open_world=False)
    def describe(self) -> str:
        """Show the tables, as they were created."""
        return SCHEMA

    @tool(read_only=True, idempotent=True, open_world=False)
    def query(self, sql: Annotated[str, Field(min_length=1, max_length=10_000)]) -> dict[str, Any]:
        """Run a query. At most 200 rows and 20,000 bytes of the result are shown.

        Args:
            sql: One SELECT of SQLite. Nothing can be changed.
        """
        return run_query(self.prepared, self._number, sql)

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def submit(self, answer: int | float | Text | Items) -> Step[str]:
        """Submit the answer. This ends the episode.

        Args:
            answer: A number, a text, or a list of texts, as the task says.
        """
        question, expected = question_of(self._number)
        right = is_right(question, expected, answer)
        return Step("Your answer has been submitted.", reward=float(right), terminated=True)

    def legal_calls(self) -> list[tuple[str, dict[str, Any]]]:
        """A sample: looking, counting, and guesses."""
        counts = [("query", {"sql": f"SELECT COUNT(*) FROM {table}"}) for table in ("customers", "products", "orders")]
        question, _ = question_of(self._number)
        guesses: dict[str, Any] = {"whole number": 0, "number": 100.0, "text": "Monday", "list": ["blue pot"]}
        return [("schema", {}), *counts, ("submit", {"answer": guesses[question.kind]})]

    def reference_solution(self, task: Task | None) -> Solution | None:
        """Look at the tables, query, and submit what the query gives."""
        if task is None:
            return None
        question, expected = question_of(number_of(task.metadata))
        return Solution([("schema", {}), ("query", {"sql": question.sql}), ("submit", {"answer": expected})])
