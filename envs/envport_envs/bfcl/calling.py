"""Calling functions of `bfcl-eval` with the arguments of a player, within limits."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, cast

from envport import ToolError

__all__ = ["TooMuchWork", "called", "check_arguments", "limited", "parsed_call"]

ResultT = TypeVar("ResultT")

_MOST_WORK = 500_000
_MOST_CHARACTERS = 100_000
_LARGEST_NUMBER = 10**15
_LARGEST = {"precision": 1_000, "decimal_places": 1_000, "exponent": 10_000}


class TooMuchWork(BaseException):
    """A function makes too many calls. No `Exception`, because the functions catch those."""


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments with which a function would work for hours, or fill the memory.

    Raises:
        ToolError: They are too large.
    """
    if len(json.dumps(arguments)) > _MOST_CHARACTERS:
        raise ToolError(f"the arguments are too long; at most {_MOST_CHARACTERS} characters are taken")
    for name, value in arguments.items():
        most = _LARGEST.get(name, _LARGEST_NUMBER)
        for number in cast("list[Any]", value if isinstance(value, list) else [value]):
            if isinstance(number, int | float) and abs(number) > most:
                raise ToolError(f"{name!r} is too large: at most {most} is taken, and at least -{most}")


def called(instances: Mapping[str, Any], name: str, positional: Sequence[Any], arguments: Mapping[str, Any]) -> str:
    """Call a function; an exception becomes a text, as in `bfcl-eval`.

    Args:
        instances: The instances of the classes.
        name: The function.
        positional: Arguments without names.
        arguments: Arguments by name.

    Returns:
        The text that the checker compares and the player is shown.
    """
    # The last class that has such a method, as in `execute_multi_turn_func_call`.
    method = next(getattr(one, name) for one in reversed([*instances.values()]) if hasattr(one, name))
    try:
        return limited(lambda: _as_text(method(*positional, **arguments)))
    except TooMuchWork:
        return "Error during execution: this takes too long"
    except Exception as error:
        return f"Error during execution: {error}"


def parsed_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The function, the positional and the named arguments of a call that Python would read.

    Args:
        text: A call with literals, such as `cd(folder='projects')`.

    Raises:
        ValueError: It is no such call.
    """
    call = ast.parse(text.strip(), mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{text!r} is no call of a function")
    named = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    return call.func.id, [ast.literal_eval(argument) for argument in call.args], named


def limited(work: Callable[[], ResultT]) -> ResultT:
    """Do something that may make a limited number of Python calls: the same number in every run.

    Raises:
        TooMuchWork: It makes more.
    """
    with _counting():
        return work()


@contextmanager
def _counting() -> Generator[None]:
    left = _MOST_WORK

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooMuchWork

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


def _as_text(result: Any) -> str:
    if isinstance(result, str):
        return result
    if type(result) is not dict:
        return str(result)
    try:
        return json.dumps(result)
    except Exception:
        return str(cast("Any", result))
