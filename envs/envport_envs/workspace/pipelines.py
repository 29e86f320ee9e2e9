"""Exercises in which a log is to be passed through a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from envport_envs.workspace.exercise import Exercise
from envport_envs.workspace.hidden import ProgramTest
from envport_envs.workspace.logs import FIELDS, Log, Query, draw_log, draw_query

__all__ = ["pipeline_exercise"]

_PROMPT = """\
Write pipeline.sh, a script for bash that reads a log from standard input and prints a report. It is run as bash \
pipeline.sh, and the log may be empty. A line of the log is:

{fields}

with one blank between two fields, and TIME as in 2026-03-04T13:05:59Z. sample.log is a log of this kind.

{query}

For sample.log, the report is:
{report}
Only pipeline.sh counts, with the programs of the system. When it is done, call submit."""
_SAMPLE_LINES = 60
_LINES = (0, 40, 100, 250)


def pipeline_exercise(rng: Random, level: int) -> Exercise:
    """An exercise of a level from 1 to 6."""
    while True:
        query = draw_query(rng, level)
        sample = draw_log(rng, query, _SAMPLE_LINES)
        logs = [draw_log(rng, query, lines) for lines in _LINES]
        if query.answer(sample.records) and _tells_apart(query, logs):
            break
    return Exercise(
        prompt=_PROMPT.format(fields=FIELDS, query=query.words(), report=query.answer(sample.records)),
        path="pipeline.sh",
        solution=query.pipeline(),
        test=ProgramTest(["bash", "pipeline.sh"], [(log.text, query.answer(log.records)) for log in logs]),
        files={"sample.log": sample.text},
    )


def _tells_apart(query: Query, logs: Sequence[Log]) -> bool:
    """Whether leaving out any part of the question gives other answers."""
    places = range(len(query.filters))
    others = [replace(query, filters=query.filters[:it] + query.filters[it + 1 :]) for it in places]
    others += [] if query.most is None else [replace(query, most=None)]
    answers = [query.answer(log.records) for log in logs]
    return len({*answers}) == len(answers) and all([it.answer(log.records) for log in logs] != answers for it in others)
