"""The scheme `bfcl:`: tasks of several turns from `bfcl-eval`, scored by its own checkers."""

from __future__ import annotations

import copy
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from random import Random
from typing import Any, get_args

import pytest
from opening import open_episode

from envport import Task, ToolError
from envport.checker import check_environment
from envport.definition import EnvironmentDefinition
from envport.episodes import Episode, Episodes
from envport.errors import EnvironmentNotFound, EnvportError, InvalidArguments, MissingExtra, UnknownTool
from envport.registry import load
from envport.types import LegalCall
from envport_envs.bfcl.calling import parsed_call
from envport_envs.bfcl.library import API_NAMES, BfclCategory, functions_of, rows

pytest.importorskip("bfcl_eval", reason="bfcl-eval is not installed (pip install --no-deps bfcl-eval mpmath)")
pytest.importorskip("mpmath", reason="mpmath is not installed")

CATEGORIES: tuple[BfclCategory, ...] = get_args(BfclCategory)
# The truth of 173 gives a text where the function wants a whole number; 49 calls `tail` before it is added.
UNSOLVED = {f"{category}_173" for category in CATEGORIES} | {"multi_turn_miss_func_49"}
TYPES = {"object", "array", "string", "number", "integer", "boolean"}


@lru_cache
def definition_of(category: str) -> EnvironmentDefinition:
    return load(f"bfcl:{category}", "it")


@asynccontextmanager
async def table(category: str = "multi_turn_base") -> AsyncIterator[Episodes]:
    # In threads, because processes take longer to begin with. The checker plays it in processes.
    episodes = Episodes({"it": definition_of(category)}, runtime="thread")
    async with episodes.run():
        yield episodes


def solution(category: str, task: Task) -> list[LegalCall]:
    found = definition_of(category).prototype.reference_solution(task)
    assert found is not None
    return list(found.calls)


async def opened(episodes: Episodes, task: int) -> Episode:
    return await open_episode(episodes, "it", split="test", task=task, seed=0)


async def reward_of(episodes: Episodes, episode: Episode) -> float | None:
    return (await episodes.finish(episode.handle, episode.principal)).reward


def made(category: str, number: int) -> Any:
    definition = definition_of(category)
    environment: Any = definition.make()
    environment.rng = Random(0)
    environment.reset(seed=0, task=definition.task("test", number))
    return environment


@pytest.mark.parametrize("category", CATEGORIES)
async def test_the_truth_earns_1_nothing_0_and_less_than_the_truth_0(category: str) -> None:
    definition = definition_of(category)
    async with table(category) as episodes:
        for number in (0, 3, 50, 101, 199):
            calls = solution(category, definition.task("test", number))
            episode = await opened(episodes, number)
            assert episode.first_observation.text.startswith("User: ")
            for name, arguments in calls:
                result = await episode.call(name, arguments)
                assert result.reward is None
            assert (result.terminated, result.observation.text) == (True, "The user has no more requests.")
            assert await reward_of(episodes, episode) == 1.0
            for lazy in (
                [("end_turn", {})] * len(rows(definition.options["category"])[number].messages),
                [],
                calls[:-1],
            ):
                episode = await opened(episodes, number)
                for name, arguments in lazy:
                    await episode.call(name, arguments)
                assert await reward_of(episodes, episode) == 0.0


def variants(truth: list[list[LegalCall]], rng: Random) -> list[list[list[LegalCall]]]:
    """The true calls, and the same with one call left out, one made twice, and one turn in another order."""
    places = [(turn, at) for turn, calls in enumerate(truth) for at in range(len(calls))]
    turn, at = rng.choice(places)
    without, twice, shuffled = ([list(calls) for calls in truth] for _ in range(3))
    del without[turn][at]
    twice[turn].append(twice[turn][at])
    rng.shuffle(shuffled[turn])
    return [truth, without, twice, shuffled]


def verdict(category: str, number: int, turns: Sequence[Sequence[LegalCall]]) -> str:
    environment = made(category, number)
    for calls in turns:
        for name, arguments in calls:
            try:
                # A function may keep its arguments, and change them later.
                environment.call(name, copy.deepcopy(arguments))
            except ToolError:
                continue
        environment.end_turn()
    state = environment.final_state()
    assert environment.score() == float(state["ended"] and not state["mistake"])
    return state["mistake"]


def official_verdict(category: BfclCategory, number: int, turns: Sequence[Sequence[LegalCall]], run: str) -> str:
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    row = rows(category)[number]
    written = [
        [[f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"] for name, arguments in calls]
        for calls in turns
    ]
    entry = {"id": row.id, "initial_config": row.config, "involved_classes": list(row.classes)}
    found = multi_turn_checker(written, [list(calls) for calls in row.truth], entry, category, run)
    return "" if found["valid"] else found["error_type"]


def true_turns(category: BfclCategory, number: int) -> list[list[LegalCall]]:
    row = rows(category)[number]
    schemas = {one.name: one.schema for api in row.classes for one in functions_of(api)}

    def named(text: str) -> LegalCall:
        name, positional, arguments = parsed_call(text)
        return name, {**dict(zip(schemas[name]["properties"], positional, strict=False)), **arguments}

    return [[named(text) for text in calls] for calls in row.truth]


@pytest.mark.parametrize("numbers", [range(0, 200, 40), pytest.param(range(200), marks=pytest.mark.slow)])
def test_every_verdict_is_that_of_the_checker_of_bfcl_eval(numbers: Sequence[int]) -> None:
    rng, seen = Random(0), set[str]()
    for category in CATEGORIES:
        for number in numbers:
            for at, turns in enumerate(variants(true_turns(category, number), rng)):
                ours = verdict(category, number, turns)
                assert ours == official_verdict(category, number, turns, f"run_{len(numbers)}_{at}"), (
                    category,
                    number,
                    at,
                )
                assert at or not ours
                seen.add(ours)
    assert len(seen) > 2


@pytest.mark.slow
@pytest.mark.parametrize("category", CATEGORIES)
async def test_every_truth_earns_1_through_the_tools_of_its_task_and_doing_nothing_0(category: str) -> None:
    definition = definition_of(category)
    unsolved: set[str] = set()
    async with table(category) as episodes:
        for number in range(200):
            task = definition.task("test", number)
            found = definition.prototype.reference_solution(task)
            if found is None:
                unsolved.add(task.id)
                continue
            for calls, reward in ((found.calls, 1.0), ([], 0.0)):
                episode = await opened(episodes, number)
                for name, arguments in calls:
                    await episode.call(name, arguments)
                assert await reward_of(episodes, episode) == reward, task.id
    assert unsolved == {name for name in UNSOLVED if name.startswith(f"{category}_")}


def test_the_tools_are_those_of_the_task_with_json_schemas() -> None:
    definition = definition_of("multi_turn_base")
    listing = definition.toolset_for(definition.task("test", 0)).listing
    assert [tool["name"] for tool in listing][:3] == ["end_turn", "authenticate_twitter", "comment"]
    names = [one.name for api in API_NAMES for one in functions_of(api)]
    assert (len(names), len(set(names))) == (128, 128)
    for api in API_NAMES:
        for function in functions_of(api):
            assert function.schema["type"] == "object"
            check_types(function.schema)
    by_name = {one.name: one.schema for one in functions_of("MathAPI")}
    assert by_name["mean"]["properties"]["numbers"]["items"] == {"type": "number"}
    assert "default" in {one.name: one.schema for one in functions_of("GorillaFileSystem")}["ls"]["properties"]["a"]


def check_types(schema: Any) -> None:
    assert schema.get("type") in TYPES
    for inner in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        check_types(inner)


async def test_a_function_is_added_when_the_user_says_so() -> None:
    category = "multi_turn_miss_func"
    async with table(category) as episodes:
        episode = await opened(episodes, 3)
        with pytest.raises(UnknownTool):
            await episode.call("find", {"path": ".", "name": "test"})
        early = await episode.call("call_added_function", {"name": "find", "arguments": {}})
        assert (early.is_error, "added so far: none" in early.observation.text) == (True, True)
        said = (await episode.call("end_turn", {"message": "I have no function for that."})).observation.text
        assert "I have updated some more functions" in said
        assert '"name": "find"' in said
        assert '"type": "object"' in said
        wrong = await episode.call("call_added_function", {"name": "find", "arguments": {"path": 7}})
        assert (wrong.is_error, "'path'" in wrong.observation.text) == (True, True)
        found = await episode.call("call_added_function", {"name": "find", "arguments": {"name": "test"}})
        assert "matches" in found.observation.text


BAD: list[tuple[str, dict[str, Any], type[EnvportError], str]] = [
    ("cd", {}, InvalidArguments, "folder"),
    ("cd", {"folder": 1}, InvalidArguments, "folder"),
    ("mean", {"numbers": ["a"]}, InvalidArguments, "numbers"),
    ("post_tweet", {"content": "x"}, UnknownTool, "post_tweet"),
    ("_load_scenario", {}, UnknownTool, "_load_scenario"),
    ("power", {"base": 9, "exponent": 10**9}, ToolError, "'exponent' is too large: at most 10000"),
    ("logarithm", {"value": 2, "base": 10, "precision": 10**9}, ToolError, "'precision' is too large: at most 1000"),
    ("round_number", {"number": 5, "decimal_places": -(10**9)}, ToolError, "'decimal_places' is too large"),
    ("sum_values", {"numbers": [10**400]}, ToolError, "'numbers' is too large"),
    ("echo", {"content": "x" * 200_000}, ToolError, "at most 100000 characters"),
    ("power", {"base": 0, "exponent": -1}, ToolError, "Error during execution: "),
    ("cd", {"folder": "projects", "more": 1}, ToolError, "Error during execution: .*unexpected keyword"),
]


def with_both_kinds() -> int:
    """A task with files and mathematics."""
    wanted = {"GorillaFileSystem", "MathAPI"}
    return next(number for number, row in enumerate(rows("multi_turn_base")) if wanted <= {*row.classes})


async def test_bad_input_is_refused_with_what_is_allowed() -> None:
    async with table() as episodes:
        episode = await opened(episodes, with_both_kinds())
        for tool, arguments, error, complaint in BAD:
            if error is ToolError:
                result = await episode.call(tool, arguments)
                assert result.is_error, tool
                with pytest.raises(ToolError, match=complaint):
                    raise ToolError(result.observation.text)
                continue
            with pytest.raises(error, match=complaint):
                await episode.call(tool, arguments)
        assert episode.live
        assert (
            "\\u202e"
            in (await episode.call("echo", {"content": "\u202e'); import os; os._exit(1) #"})).observation.text
        )


def nest(environment: Any) -> None:
    """Make folders that hold each other twice, so that there are 2^30 ways through them."""
    environment.call("mkdir", {"dir_name": "d0"})
    for depth in range(30):
        environment.call("cp", {"source": f"d{depth}", "destination": "twin"})
        environment.call("mkdir", {"dir_name": f"d{depth + 1}"})
        for source in (f"d{depth}", "twin"):
            environment.call("mv", {"source": source, "destination": f"d{depth + 1}"})


def attack_find(environment: Any) -> None:
    nest(environment)
    with pytest.raises(ToolError, match="this takes too long"):
        environment.call("find", {"path": "."})


def attack_state(environment: Any) -> None:
    nest(environment)
    for true in environment._true_instances.values():
        if hasattr(true, "root"):
            # As if the truth had the same folders, so that they have to be compared.
            environment._instances, kept = environment._true_instances, environment._instances
            nest(environment)
            environment._instances = kept


@pytest.mark.parametrize("attack", [attack_find, attack_state])
def test_folders_that_are_nested_on_purpose_do_not_hang_it(attack: Callable[[Any], None]) -> None:
    environment = made("multi_turn_base", 0)
    attack(environment)
    environment.end_turn()
    assert environment.final_state()["mistake"] == "multi_turn:instance_state_mismatch"
    assert sys.getprofile() is None


async def test_the_same_calls_give_the_same_again() -> None:
    calls = solution("multi_turn_base", definition_of("multi_turn_base").task("test", 150))
    async with table() as episodes:
        seen: list[list[str]] = []
        for _ in range(2):
            episode = await opened(episodes, 150)
            seen.append([(await episode.call(name, arguments)).observation.text for name, arguments in calls])
        assert seen[0] == seen[1]
    assert definition_of("multi_turn_base").prototype.max_steps == 200


@pytest.mark.parametrize("metadata", [{}, {"row": 200}, {"row": "0"}, {"row": True}])
async def test_a_task_that_there_is_not_is_refused(metadata: dict[str, Any]) -> None:
    async with table() as episodes:
        with pytest.raises(EnvportError, match="a whole number from 0 to 199"):
            await open_episode(episodes, "it", task={"id": "x", "metadata": metadata})


@pytest.mark.parametrize(
    ("rest", "complaint"), [("multi_turn_bas", "Near: multi_turn_base"), ("simple", "allowed: multi_turn_base, multi")]
)
def test_a_category_that_there_is_not_is_named(rest: str, complaint: str) -> None:
    with pytest.raises(EnvironmentNotFound, match=complaint):
        load(f"bfcl:{rest}")


def test_without_the_package_one_is_told_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("envport_envs.bfcl")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    with pytest.raises(MissingExtra, match=r"References with bfcl: .* pip install --no-deps bfcl-eval mpmath$"):
        load("bfcl:multi_turn_base")


@pytest.mark.slow
def test_it_passes_the_checker_without_a_warning() -> None:
    report = check_environment("bfcl:multi_turn_miss_func", seeds=range(1), steps=10)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []


def test_the_long_context_has_more_files() -> None:
    number = with_both_kinds()
    short, long = (len(made(category, number).call("find", {})) for category in (CATEGORIES[0], CATEGORIES[3]))
    assert long > 2 * short
