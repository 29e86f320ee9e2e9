"""The environment `sqlite`: questions that have one answer, and queries that can harm nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opening import open_episode
from patience import patient
from slow import slow

from envport.checker import check_environment
from envport.episodes import Episode, Episodes
from envport.errors import EnvportError, InvalidArguments, InvalidOption
from envport.registry import load
from envport_envs.sqlite.data import database
from envport_envs.sqlite.questions import TEMPLATES
from envport_envs.sqlite.tasks import NUMBERS, is_right, question_of

SQLITE = load("sqlite")
KINDS = ("whole number", "number", "text", "list")


@asynccontextmanager
async def table(options: str = "") -> AsyncIterator[Episodes]:
    episodes = Episodes({"sqlite": load(f"sqlite{options}")})
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, number: int = 1) -> Episode:
    split = "test" if number % 5 == 0 else "train"
    index = [task for task in range(NUMBERS) if (task % 5 == 0) == (split == "test")].index(number)
    return await open_episode(episodes, "sqlite", split=split, task=index, seed=0)


async def asked(episode: Episode, sql: str) -> dict[str, Any]:
    result = await episode.call("query", {"sql": sql})
    assert not result.is_error, result.observation.text
    assert result.observation.structured_content is not None
    return result.observation.structured_content


def number_with(kind: str) -> int:
    return next(number for number in range(1, NUMBERS) if question_of(number)[0].kind == kind)


async def test_an_episode_with_the_reference_solution_earns_1_and_a_wrong_answer_0() -> None:
    async with table() as episodes:
        for kind in KINDS:
            number = number_with(kind)
            episode = await opened(episodes, number)
            assert question_of(number)[0].text in episode.prompt
            solution = SQLITE.prototype.reference_solution(episode.info().task)
            assert solution is not None
            results = [await episode.call(name, arguments) for name, arguments in solution.calls]
            assert (results[-1].reward, results[-1].terminated) == (1.0, True)
            answer = solution.calls[-1][1]["answer"]
            wrong = [*answer[:-1], "x"] if isinstance(answer, list) else f"{answer}x" if kind == "text" else answer + 1
            episode = await opened(episodes, number)
            assert (await episode.call("submit", {"answer": wrong})).reward == 0.0


def test_every_question_has_one_answer_that_nobody_guesses_and_its_traps_give_others() -> None:
    answers: Counter[str] = Counter()
    for number in range(NUMBERS):
        question, answer = question_of(number)
        answers[json.dumps(answer)] += 1
        if number >= len(TEMPLATES):
            continue
        connection = database(number)
        for sql in question.wrong:
            rows = [row[0] for row in connection.execute(sql)]
            given: Any = rows if question.kind == "list" else rows[0] if rows else None
            assert given is None or given == [] or not is_right(question, answer, given), (number, sql)
        connection.close()
    assert NUMBERS >= 200
    assert max(answers.values()) <= NUMBERS * 0.05
    levels = Counter(question_of(number)[0].level for number in range(NUMBERS))
    assert sorted(levels) == [1, 2, 3, 4, 5]
    assert NUMBERS % len(TEMPLATES) == 0


async def test_an_answer_of_another_type_is_refused_and_may_be_given_again() -> None:
    others: dict[str, list[Any]] = {
        "whole number": [1.5, "3"],
        "number": ["1", ["3"]],
        "text": [1, ["3"]],
        "list": ["one, two", 3],
    }
    async with table() as episodes:
        for kind in KINDS:
            number = number_with(kind)
            episode = await opened(episodes, number)
            for wrong in others[kind]:
                refused = await episode.call("submit", {"answer": wrong})
                assert refused.is_error
                assert f"this is no {kind}. The answer is a" in refused.observation.text
            assert (await episode.call("submit", {"answer": question_of(number)[1]})).reward == 1.0


def test_numbers_have_the_tolerance_of_the_prompt_and_texts_none() -> None:
    question, answer = question_of(number_with("number"))
    assert isinstance(answer, float)
    assert [is_right(question, answer, answer + off) for off in (0.01, -0.01, 0.02)] == [True, True, False]
    question, answer = question_of(number_with("whole number"))
    assert isinstance(answer, int)
    assert [is_right(question, answer, given) for given in (float(answer), answer + 1, 10**400)] == [True, False, False]
    question, answer = question_of(number_with("text"))
    assert isinstance(answer, str)
    assert [is_right(question, answer, given) for given in (f" {answer} ", answer.upper())] == [True, False]


async def test_what_can_be_no_answer_never_reaches_the_environment() -> None:
    async with table() as episodes:
        episode = await opened(episodes)
        for answer in (None, True, {"a": 1}, [1, 2], ["x"] * 51, "x" * 10_000_000):
            with pytest.raises(InvalidArguments, match="answer"):
                await episode.call("submit", {"answer": answer})
        assert episode.live


def nested(times: int) -> str:
    named = [f"t{at} AS (SELECT x FROM t{at - 1} WHERE x IN (SELECT x FROM t{at - 1}))" for at in range(1, times)]
    return f"WITH t0 AS (SELECT 1 AS x), {', '.join(named)} SELECT COUNT(*) FROM t{times - 1}"


REFUSED = {
    "ATTACH '/etc/passwd' AS x": "/etc/passwd is not allowed: a query reads the tables with SELECT",
    "ATTACH '/tmp/envport-attached.db' AS x": "is not allowed",
    "PRAGMA table_info(orders)": "table_info is not allowed",
    "PRAGMA query_only = OFF": "query_only is not allowed",
    "SELECT * FROM pragma_database_list": "is not allowed",
    "DELETE FROM orders": "is not allowed",
    "WITH x AS (SELECT 1) INSERT INTO customers SELECT 99, 'x', 'x', NULL, 'x' FROM x": "is not allowed",
    "CREATE TEMP TABLE x (y)": "is not allowed",
    "VACUUM INTO '/tmp/envport-vacuumed.db'": "is not allowed",
    "BEGIN": "is not allowed",
    "SELECT load_extension('x')": "load_extension is not allowed",
    "SELECT randomblob(1e9)": "randomblob is not allowed",
    "SELECT random()": "random is not allowed",
    "SELECT zeroblob(1e9)": "too big",
    "SELECT group_concat(name || printf('%.*c', 900000, 'x')) FROM customers": "too big",
    "SELECT 1; SELECT 2": "one statement at a time",
    "SELECT absent FROM orders": "no such column: absent",
    "-- nothing": "it has to be one SELECT",
    "SELECT '\0'": "null character",
    "SELEC 1": "syntax error",
    "(" * 9_000: "SQLite: ",
}


async def test_a_query_can_neither_write_nor_reach_files_nor_draw_lots() -> None:
    async with table() as episodes:
        episode = await opened(episodes)
        before = await asked(episode, "SELECT COUNT(*) FROM orders")
        for sql, complaint in REFUSED.items():
            refused = await episode.call("query", {"sql": sql})
            assert (refused.is_error, complaint in refused.observation.text) == (True, True), (
                sql[:80],
                refused.observation.text,
            )
        assert await asked(episode, "SELECT COUNT(*) FROM orders") == before


RUNAWAY = {
    "recursion": "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT COUNT(*) FROM r",
    "printf": "SELECT length(printf('%.*c', 1000000000, 'x')), length(printf('%.*c', 1000000000, 'x'))",
    "nested": nested(24),
    "memory": (
        "WITH RECURSIVE r(x) AS (SELECT zeroblob(900000) UNION ALL SELECT zeroblob(900000) FROM r) "
        "SELECT COUNT(*) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY length(x)) FROM r)"
    ),
}


@pytest.mark.parametrize("name", ["recursion", "memory", *slow(["printf", "nested"])])
async def test_a_query_that_takes_too_much_is_stopped_and_the_episode_goes_on(name: str) -> None:
    # The limit of memory is reached long before this limit of time.
    async with table("?seconds=30" if name == "memory" else "?seconds=1") as episodes:
        episode = await opened(episodes)
        began = time.monotonic()
        refused = await episode.call("query", {"sql": RUNAWAY[name]})
        assert refused.is_error, refused.observation.text
        said = refused.observation.text
        # On a fast machine, the nested query takes up the memory before its second is over.
        assert ("the query was stopped" in said and name != "memory") or (
            "MiB of memory" in said and name in ("memory", "nested")
        )
        assert time.monotonic() - began < patient(30.0)
        assert await asked(episode, "SELECT 1 AS one") == {"columns": ["one"], "rows": [[1]]}


async def test_results_are_data_and_cut_with_a_note() -> None:
    async with table() as episodes:
        episode = await opened(episodes)
        mixed = await asked(episode, "SELECT 1 AS a, 2.5, 'é', NULL, x'00ff', 9e999, CAST(x'ff' AS TEXT)")
        assert mixed["rows"] == [[1, 2.5, "é", None, "x'00ff'", "inf", "\ufffd"]]
        many = await asked(episode, "SELECT 1 AS one FROM orders a, orders b")
        assert (len(many["rows"]), many["note"]) == (
            200,
            "The first 200 rows. There are more, but a result is cut at 200 rows.",
        )
        wide = await asked(episode, "SELECT printf('%.*c', 1900, 'x') FROM orders")
        assert (len(wide["rows"]), "cut at 20000 bytes" in wide["note"]) == (10, True)
        long = await asked(episode, "SELECT printf('%.*c', 900000, 'x')")
        assert long["rows"][0][0].endswith("... (900000 characters)")
        schema = await episode.call("schema", {})
        assert "CREATE TABLE payments" in schema.observation.text


async def test_each_task_has_a_database_of_its_own_and_the_answer_is_not_in_it() -> None:
    number = number_with("number")
    async with table() as episodes:
        one, other = await opened(episodes, number), await opened(episodes, number + 1)
        sql = "SELECT name FROM customers ORDER BY id LIMIT 3"
        assert await asked(one, sql) != await asked(other, sql)
        named = await asked(one, "SELECT name FROM sqlite_master ORDER BY name")
        tables = [row[0] for row in named["rows"] if not row[0].startswith("sqlite_")]
        assert tables == ["customers", "order_items", "orders", "payments", "products"]


async def test_a_task_that_there_is_not_is_refused() -> None:
    async with table() as episodes:
        for metadata in ({}, {"number": NUMBERS}, {"number": "1"}, {"number": False}):
            with pytest.raises(EnvportError, match="a whole number from 0 to 263"):
                await open_episode(episodes, "sqlite", task={"id": "x", "metadata": metadata})


@pytest.mark.slow
def test_it_passes_the_checker_without_a_warning() -> None:
    report = check_environment("sqlite", seeds=range(2), steps=10)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []
    assert SQLITE.prototype.max_steps == 100
    with pytest.raises(InvalidOption, match="'seconds' is '0'"):
        load("sqlite?seconds=0")
