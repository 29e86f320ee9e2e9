"""What an environment's class may declare. Checked when the class is defined."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from envport.errors import InvalidEnvironment
from envport.secrecy import without_secrets

__all__ = ["check_class"]

_COUNTS = ("max_steps", "max_processes")
_TIMES = ("max_seconds", "call_seconds", "reset_seconds", "score_seconds", "close_seconds", "cpu_seconds")


def check_class(cls: type[Any], words: Mapping[str, Sequence[str]]) -> None:
    """Check the attributes of a subclass of `Environment`, and the parameters of its `reset`.

    Args:
        cls: The class.
        words: The attributes that are one of a few words, with these.

    Raises:
        InvalidEnvironment: One of them is not allowed; the message says which, and what is.
    """
    for attribute, values in words.items():
        if (value := getattr(cls, attribute)) not in values:
            raise InvalidEnvironment(
                f"{cls.__qualname__}.{attribute} is {value!r}; allowed: {', '.join(map(repr, values))}"
            )
    if cls.max_episodes is not None and (type(cls.max_episodes) is not int or cls.max_episodes < 1):
        raise InvalidEnvironment(
            f"{cls.__qualname__}.max_episodes is {cls.max_episodes!r}; allowed: a whole number from 1, or None"
        )
    deterministic: Any = cls.deterministic
    # A property may compute it from the options.
    if type(deterministic) is not bool and not hasattr(deterministic, "__get__"):
        raise InvalidEnvironment(f"{cls.__qualname__}.deterministic is {deterministic!r}; allowed: True or False")
    _check_limits(cls)
    _check_runtime(cls)
    _check_sandbox(cls)
    _check_reset(cls)


def _check_runtime(cls: type[Any]) -> None:
    if cls.sandbox and cls.runtime != "process":
        raise InvalidEnvironment(f"{cls.__qualname__}.sandbox needs runtime = 'process'")
    if cls.own_thread and cls.runtime == "inline":
        raise InvalidEnvironment(f"{cls.__qualname__}.own_thread needs runtime = 'thread'")
    if cls.runs_player_code and cls.runtime == "inline":
        raise InvalidEnvironment(
            f"{cls.__qualname__}.runs_player_code needs runtime = 'process' or 'thread': "
            "an inline environment must not block the gateway"
        )


def _check_limits(cls: type[Any]) -> None:
    for attribute in (*_COUNTS, *_TIMES, "memory_mb"):
        value: Any = getattr(cls, attribute)
        # A constructor may set another one, and a property may compute it.
        if value is None or hasattr(value, "__get__"):
            continue
        whole = attribute in _COUNTS
        if type(value) not in ((int,) if whole else (int, float)) or not 0 < value < math.inf:
            allowed = "a whole number from 1" if whole else "a finite number above 0"
            raise InvalidEnvironment(f"{cls.__qualname__}.{attribute} is {value!r}; allowed: {allowed}, or None")


def _check_sandbox(cls: type[Any]) -> None:
    def refuse(attribute: str, allowed: str) -> NoReturn:
        raise InvalidEnvironment(f"{cls.__qualname__}.{attribute} is {getattr(cls, attribute)!r}; allowed: {allowed}")

    for attribute, what in (("sandbox_paths", "paths"), ("sandbox_variables", "names")):
        if isinstance(getattr(cls, attribute), str | bytes):
            refuse(attribute, f"a sequence of {what}")
    if hidden := set(cls.sandbox_variables) - set(without_secrets(dict.fromkeys(cls.sandbox_variables, ""))):
        raise InvalidEnvironment(
            f"{cls.__qualname__}.sandbox_variables names {min(hidden)!r}, which is the gateway's own; "
            "allowed: variables of the environment"
        )
    for attribute in ("memory_mb", "cpu_seconds", "max_processes", "disk_mb"):
        value = getattr(cls, attribute)
        if isinstance(value, int | float) and not value > 0:
            refuse(attribute, "a number above 0, or None" if attribute != "disk_mb" else "a number above 0")


def _check_reset(cls: type[Any]) -> None:
    parameters = inspect.signature(cls.reset).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    missing = [name for name in ("seed", "task") if name not in parameters and not takes_any]
    if missing:
        raise InvalidEnvironment(
            f"{cls.__qualname__}.reset has to take {' and '.join(missing)}: "
            "def reset(self, *, seed: int, task: Task | None)"
        )
