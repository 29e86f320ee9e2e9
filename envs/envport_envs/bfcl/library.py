"""The package `bfcl-eval`: its tasks, its functions and its checker."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

from jsonschema import Draft202012Validator

from envport.errors import MissingExtra
from envport.tools.arguments import schema_problems

__all__ = [
    "API_NAMES",
    "BfclCategory",
    "BfclFunction",
    "BfclRow",
    "functions_of",
    "made",
    "mismatch",
    "preload",
    "rows",
]

BfclCategory = Literal["multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context"]

# Most of what it depends on is for calling models, and its pins of numpy and others suit nobody else.
_COMMAND = "pip install --no-deps bfcl-eval mpmath"
_CHECKER = "bfcl_eval.eval_checker.multi_turn_eval"
_MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}

API_NAMES = tuple(_MODULES)
"""The classes whose methods are the functions of the tasks."""


@dataclass(frozen=True)
class BfclFunction:
    """A function, as a tool.

    Attributes:
        name: Its name, which no other function has.
        description: What it does.
        schema: JSON Schema 2020-12 of its arguments. Do not modify it.
    """

    name: str
    description: str
    schema: Mapping[str, Any]

    def problems(self, arguments: Mapping[str, Any]) -> str | None:
        """How arguments break the schema, and what is allowed; `None` if they do not."""
        return schema_problems(Draft202012Validator(dict(self.schema)), arguments)


@dataclass(frozen=True)
class BfclRow:
    """A task.

    Attributes:
        id: Its id.
        messages: What the user says in each turn; `None` where functions are added instead.
        truth: The calls of each turn that the checker compares with, as Python writes them.
        config: The state of each class at first. Do not modify it.
        classes: The classes whose functions it has.
        added: The names of functions that are added later, by turn.
    """

    id: str
    messages: tuple[str | None, ...]
    truth: tuple[tuple[str, ...], ...]
    config: Mapping[str, Any]
    classes: tuple[str, ...]
    added: Mapping[int, tuple[str, ...]]


@lru_cache(maxsize=4)
def rows(category: BfclCategory) -> tuple[BfclRow, ...]:
    """The tasks of a category, in the order of the data set.

    Raises:
        MissingExtra: `bfcl-eval` or `mpmath` is not installed.
    """
    name = f"BFCL_v4_{category}.json"
    truths = {answer["id"]: answer["ground_truth"] for answer in _lines(_data() / "possible_answer" / name)}
    return tuple(_row(entry, truths[entry["id"]]) for entry in _lines(_data() / name))


def preload(category: BfclCategory) -> None:
    """Read and import everything that episodes need, so that processes which are forked later have it."""
    rows(category)
    for api in API_NAMES:
        functions_of(api)
        _class(api)
    import_module(f"{_CHECKER}.multi_turn_checker")


def _class(api: str) -> Any:
    return getattr(import_module(f"{_CHECKER}.func_source_code.{_MODULES[api]}"), api)


@lru_cache(maxsize=len(_MODULES))
def functions_of(api: str) -> tuple[BfclFunction, ...]:
    """The functions of a class.

    Args:
        api: One of `API_NAMES`.
    """
    documented = _lines(_data() / "multi_turn_func_doc" / f"{_MODULES[api]}.json")
    return tuple(BfclFunction(doc["name"], doc["description"], _schema(doc["parameters"])) for doc in documented)


def made(row: BfclRow, category: BfclCategory) -> dict[str, Any]:
    """An instance of each class of a task, in its first state."""
    instances: dict[str, Any] = {}
    for api in row.classes:
        instances[api] = instance = _class(api)()
        if hasattr(instance, "_load_scenario"):
            config = copy.deepcopy(row.config.get(api, {}))
            instance._load_scenario(config, long_context=category == "multi_turn_long_context")
    return instances


def mismatch(
    instances: Mapping[str, Any],
    true_instances: Mapping[str, Any],
    results: Sequence[str],
    true_results: Sequence[str],
    turn: int,
) -> str:
    """What is wrong after a turn, by the state checker and the response checker of `bfcl-eval`.

    Args:
        instances: The player's instances.
        true_instances: Those with which the true calls were made.
        results: The results of all of the player's calls so far.
        true_results: The results of the true calls of this turn.
        turn: The number of the turn.

    Returns:
        The type of the error; empty if nothing is wrong.
    """
    checker = import_module(f"{_CHECKER}.multi_turn_checker")
    state = checker.state_checker(instances, true_instances)
    verdict = state if not state["valid"] else checker.response_checker([*results], [*true_results], turn)
    return "" if verdict["valid"] else str(verdict["error_type"])


@lru_cache(maxsize=1)
def _data() -> Path:
    found = find_spec("bfcl_eval")
    if found is None or not found.submodule_search_locations or find_spec("mpmath") is None:
        raise MissingExtra("References with bfcl:", "bfcl", _COMMAND)
    return Path(found.submodule_search_locations[0]) / "data"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _row(entry: Mapping[str, Any], truth: Sequence[Sequence[str]]) -> BfclRow:
    added = {int(turn): tuple(names) for turn, names in entry.get("missed_function", {}).items()}
    return BfclRow(
        entry["id"],
        tuple(turn[0]["content"] if turn else None for turn in entry["question"]),
        tuple(map(tuple, truth)),
        entry["initial_config"],
        tuple(entry["involved_classes"]),
        added,
    )


def _schema(given: Any) -> Any:
    """A schema in the dialect of BFCL as JSON Schema.

    The types `dict`, `float` and `tuple` have the names of Python there.
    """
    if isinstance(given, list):
        return [_schema(item) for item in cast("list[Any]", given)]
    if not isinstance(given, dict):
        return given
    schema = cast("dict[str, Any]", given)
    return {key: _keyword(key, value) for key, value in schema.items()}


def _keyword(key: str, value: Any) -> Any:
    if key == "type":
        return _TYPES.get(value, value)
    if key == "properties":
        # Their names are no keywords.
        return {name: _schema(schema) for name, schema in value.items()}
    return value if key in ("default", "enum") else _schema(value)
