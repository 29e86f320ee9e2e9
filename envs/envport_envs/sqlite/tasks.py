"""The tasks: a question about a database of its own, by number."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Any

from envport import Task, TaskSource, ToolError
from envport_envs.lazy_tasks import LazyTasks, held_out
from envport_envs.sqlite.data import database
from envport_envs.sqlite.questions import TEMPLATES, SqlQuestion

__all__ = ["NUMBERS", "SqlAnswer", "is_right", "number_of", "prompt_of", "question_of", "splits"]

NUMBERS = 264
"""How many tasks there are."""

SqlAnswer = int | float | str | Sequence[str]

_ATTEMPTS = 200
_TOLERANCE = 0.01
_PROMPT = """\
Answer a question about a database of a shop with SQL (SQLite). Look at its tables with schema, query it, and then \
call submit once with the answer.

{text}

{answer} The revenue of an item is its quantity, times its unit price, less its discount, which is in percent; the \
revenue of an order is the sum over its items. All days are written as YYYY-MM-DD."""
_ANSWERS = {
    "whole number": "The answer is a whole number.",
    "number": f"The answer is a number. It may be off by {_TOLERANCE}.",
    "text": "The answer is a text, exactly as it is in the database unless the question says otherwise.",
    "list": "The answer is a list of texts, exactly as they are in the database, in the order that is asked for.",
}


def number_of(metadata: Any) -> int:
    """The number of a task.

    Args:
        metadata: The task's metadata.

    Raises:
        ToolError: It names no task.
    """
    number = metadata.get("number")
    if type(number) is not int or not 0 <= number < NUMBERS:
        raise ToolError(f"the task's number is {number!r}; it has to be a whole number from 0 to {NUMBERS - 1}")
    return number


@lru_cache(maxsize=NUMBERS)
def question_of(number: int) -> tuple[SqlQuestion, SqlAnswer]:
    """The question of a task, and its answer.

    A question is drawn again until it has one clear answer, and until the queries that fall into its trap give others.

    Args:
        number: The number of the task.

    Raises:
        RuntimeError: None of many questions was clear.
    """
    rng = Random(f"sqlite question {number}")
    template = TEMPLATES[number % len(TEMPLATES)]
    connection = database(number)
    try:
        for _ in range(_ATTEMPTS):
            question = template(rng)
            answer = _answered(connection, question)
            if answer is not None and all(not _gives(connection, wrong, question, answer) for wrong in question.wrong):
                return question, answer
    finally:
        connection.close()
    raise RuntimeError(f"no clear question was found for task {number} with {template.__name__}")


def is_right(question: SqlQuestion, answer: SqlAnswer, given: SqlAnswer) -> bool:
    """Whether an answer is right.

    Args:
        question: The question.
        answer: Its answer.
        given: What was submitted.

    Raises:
        ToolError: It has not the type that was asked for.
    """
    if isinstance(given, str) and isinstance(answer, str):
        return given.strip() == answer
    if isinstance(given, int | float) and isinstance(answer, int | float):
        if question.kind == "number":
            # A little more, because sums of fractions depend on their order.
            return abs(given - answer) <= _TOLERANCE * 1.001
        if given == given // 1:
            return given == answer
    elif not isinstance(given, str | int | float) and not isinstance(answer, str | int | float):
        return [item.strip() for item in given] == [*answer]
    raise ToolError(f"this is no {question.kind}. {_ANSWERS[question.kind]} Submit it again.")


def splits() -> dict[str, TaskSource]:
    """Tasks to train on, and tasks that are held out."""
    return {
        split: LazyTasks([number for number in range(NUMBERS) if held_out(number, split)], _task)
        for split in ("train", "test")
    }


def prompt_of(number: int) -> str:
    """What the player of a task is told."""
    question, _ = question_of(number)
    return _PROMPT.format(text=question.text, answer=_ANSWERS[question.kind])


def _task(number: int) -> Task:
    template = TEMPLATES[number % len(TEMPLATES)].__name__
    metadata = {"number": number, "template": template, "level": question_of(number)[0].level}
    return Task(id=f"{template}-{number}", prompt=prompt_of(number), metadata=metadata)


def _answered(connection: sqlite3.Connection, question: SqlQuestion) -> SqlAnswer | None:
    rows: Sequence[Any] = [row[0] for row in connection.execute(question.sql).fetchall()]
    # Zero is what a query that finds nothing gives.
    if len(rows) != question.items or rows[0] in (None, 0):
        return None
    return [*rows] if question.kind == "list" else rows[0]


def _gives(connection: sqlite3.Connection, sql: str, question: SqlQuestion, answer: SqlAnswer) -> bool:
    rows: list[Any] = [row[0] for row in connection.execute(sql).fetchall()]
    given = rows if question.kind == "list" else rows[0] if rows else None
    if isinstance(answer, float) and isinstance(given, int | float):
        return abs(given - answer) <= 10 * _TOLERANCE
    return given == answer
