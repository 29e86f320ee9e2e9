"""The tasks of BFCL as an environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from envport import Environment, Solution, Step, Task, TaskSource, ToolDefinition, ToolError, tool
from envport.types import LegalCall
from envport_envs.bfcl.calling import TooMuchWork, called, check_arguments, limited, parsed_call
from envport_envs.bfcl.library import (
    API_NAMES,
    BfclCategory,
    BfclFunction,
    BfclRow,
    functions_of,
    made,
    mismatch,
    preload,
    rows,
)
from envport_envs.lazy_tasks import LazyTasks

__all__ = ["BfclEnvironment"]

_MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
_MOST_SHOWN = 100_000


class BfclEnvironment(Environment):
    """Do with functions what a user asks for, one turn after another, for a reward of 1.

    The first observation is what the user says first. `end_turn` returns what the user says next. In the category
    `multi_turn_miss_func`, some functions are added by what the user says, and called by `call_added_function`.

    The reward is 1 if, after each turn, the checkers of `bfcl-eval` find that the state is that of the true calls, and
    that the results of all true calls are among those that the player has seen. Otherwise it is 0.

    Args:
        category: The category of the tasks.
    """

    instructions = (
        "Help a user by calling functions. The first observation is what the user says first. Try to do everything "
        "that the user asks for in a turn, call functions until it is done, and then call end_turn, which returns "
        "what the user says next. If no function can do it, or if an argument is missing that the user did not say, do "
        "not guess: tell it in end_turn."
    )
    # The functions keep some of their state in modules.
    runtime = "process"
    max_steps = 200
    memory_mb = 2_048

    def __init__(self, category: BfclCategory = "multi_turn_base"):
        preload(category)
        self._category: BfclCategory = category
        self._ended = False

    def splits(self) -> Mapping[str, TaskSource]:
        """The tasks, which are for testing."""
        return {"test": LazyTasks(range(len(rows(self._category))), self._task)}

    def tool_definitions(self) -> list[ToolDefinition]:
        """The functions of all tasks."""
        return [_definition(function) for api in API_NAMES for function in functions_of(api)]

    def tools_for(self, task: Task) -> Sequence[str]:
        """The functions of the task's classes, but for those that are added later."""
        row = self._row(task)
        later = [name for names in row.added.values() for name in names]
        names = [function.name for function in _functions(row) if function.name not in later]
        return ["end_turn", *(["call_added_function"] if later else []), *names]

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Make the instances, and let the user speak."""
        self._played = self._row(task) if task is not None else self.rng.choice(rows(self._category))
        self._instances = made(self._played, self._category)
        self._true_instances = made(self._played, self._category)
        self._turn = 0
        self._wrong = ""
        self._results: list[str] = []
        self._called = False
        self._functions = {function.name: function for function in _functions(self._played)}
        return self._user()

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def end_turn(self, message: Annotated[str, Field(max_length=20_000)] = "") -> Step[str]:
        """End this turn. Returns what the user says next.

        Args:
            message: What to say to the user.
        """
        self._wrong = self._wrong or self._mistake()
        self._turn += 1
        self._called = False
        if self._turn < len(self._played.messages):
            return Step(self._user())
        self._ended = True
        return Step("The user has no more requests.", terminated=True)

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def call_added_function(self, name: Annotated[str, Field(max_length=100)], arguments: dict[str, Any]) -> str:
        """Call a function that the user has added.

        Args:
            name: The function.
            arguments: Its arguments by name.
        """
        added = [one for turn, names in self._played.added.items() if turn <= self._turn for one in names]
        if name not in added:
            raise ToolError(f"no function {name[:100]!r} was added; added so far: {', '.join(added) or 'none'}")
        if (problems := self._functions[name].problems(arguments)) is not None:
            raise ToolError(problems)
        return self.call(name, arguments)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a function of the task."""
        if name not in self._functions:
            raise ToolError(f"this task has no function {name!r}; it has: {', '.join(self._functions)}")
        check_arguments(arguments)
        result = called(self._instances, name, (), arguments)
        self._results.append(result)
        self._called = True
        if result.startswith("Error during execution"):
            raise ToolError(result)
        return result if len(result) <= _MOST_SHOWN else f"{result[:_MOST_SHOWN]}... ({len(result)} characters)"

    def score(self) -> float:
        """1 if the user came to the end, and every turn was right."""
        return float(self._ended and not self._wrong)

    def final_state(self) -> dict[str, Any]:
        """Whether the user came to the end, and the type of the first mistake in the words of `bfcl-eval`."""
        return {"ended": self._ended, "mistake": self._wrong}

    def legal_calls(self) -> list[LegalCall]:
        """A sample: the functions that need no arguments, and the end of the turn."""
        later = [name for names in self._played.added.values() for name in names]
        free = [one.name for one in self._functions.values() if not one.schema.get("required")]
        return [("end_turn", {}), *((name, {}) for name in free if name not in later)]

    def reference_solution(self, task: Task | None) -> Solution | None:
        """The true calls, and the end of each turn; `None` if the tools do not allow a true call."""
        if task is None:
            return None
        row = self._row(task)
        functions = {function.name: function for function in _functions(row)}
        added_in = {name: turn for turn, names in row.added.items() for name in names}
        calls: list[LegalCall] = []
        for turn, truth in enumerate(row.truth):
            for name, arguments in (_named(functions, text) for text in truth):
                if functions[name].problems(arguments) is not None or added_in.get(name, 0) > turn:
                    return None
                added = ("call_added_function", {"name": name, "arguments": arguments})
                calls.append(added if name in added_in else (name, arguments))
            calls.append(("end_turn", {}))
        return Solution(calls)

    def _task(self, number: int) -> Task:
        return Task(id=rows(self._category)[number].id, metadata={"category": self._category, "row": number})

    def _row(self, task: Task) -> BfclRow:
        known, number = rows(self._category), task.metadata.get("row")
        if type(number) is not int or not 0 <= number < len(known):
            raise ToolError(f"the task's row is {number!r}; it has to be a whole number from 0 to {len(known) - 1}")
        return known[number]

    def _user(self) -> str:
        message = self._played.messages[self._turn]
        if message is not None:
            return f"User: {message}"
        added = [self._functions[name] for name in self._played.added.get(self._turn, ())]
        shown = [{"name": one.name, "description": one.description, "parameters": one.schema} for one in added]
        lines = "\n".join(json.dumps(one) for one in shown)
        return f"User: {_MORE_FUNCTIONS}\n\nAdded functions, for call_added_function:\n{lines}"

    def _mistake(self) -> str:
        truth = self._played.truth[self._turn]
        expected = [called(self._true_instances, *parsed_call(text)) for text in truth]
        if not truth:
            return ""
        if not self._called:
            return "multi_turn:empty_turn_model_response"
        try:
            return limited(lambda: mismatch(self._instances, self._true_instances, self._results, expected, self._turn))
        except (TooMuchWork, RecursionError):
            # Only folders that a player has nested on purpose take so long to compare.
            return "multi_turn:instance_state_mismatch"


def _functions(row: BfclRow) -> list[BfclFunction]:
    return [function for api in row.classes for function in functions_of(api)]


def _definition(function: BfclFunction) -> ToolDefinition:
    return ToolDefinition(function.name, function.schema, "call", function.description)


def _named(functions: Mapping[str, BfclFunction], text: str) -> LegalCall:
    name, positional, named = parsed_call(text)
    return name, {**dict(zip(functions[name].schema["properties"], positional, strict=False)), **named}
