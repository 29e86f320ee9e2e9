"""TRL's internals that the bridge leans on, and whether the installed TRL has them."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from envport.errors import ConfigurationError
from envport_bridges.trl.contract import KNOWN_TRL, trl_version

__all__ = ["fingerprint_of_loop", "loop_is_known", "missing_in", "require_internals"]

_LOOP = ("_tool_call_loop", "_get_tool_suffix_ids")
_KNOWN_LOOPS = {
    "b526b5248bd24a47986db1a61890a14f": "TRL 1.16.0",
    "9316ed3ab1e7d5e7b26f5e6ae492a85e": "TRL 1.15.0",
}
"""Fingerprints of the loops that the concurrent trainer was tested with."""


def fingerprint_of_loop(classes: Iterable[type[Any]]) -> str:
    """What the tool loop of a trainer is known by: its code, without comments and formatting.

    Args:
        classes: The trainer's class and those that it inherits from, in the order of the method resolution.

    Raises:
        LookupError: None of them has such a loop.
    """
    ordered = list(classes)
    methods = [next((vars(cls)[name] for cls in ordered if name in vars(cls)), None) for name in _LOOP]
    if None in methods:
        raise LookupError("there is no tool loop")
    sources = (textwrap.dedent(inspect.getsource(method)) for method in methods if method is not None)
    return hashlib.sha256("\n".join(ast.dump(ast.parse(source)) for source in sources).encode()).hexdigest()[:32]


def loop_is_known(classes: Iterable[type[Any]]) -> bool:
    """Whether the tool loop of a trainer is one that the concurrent trainer was tested with.

    Args:
        classes: See `fingerprint_of_loop`.
    """
    try:
        return fingerprint_of_loop(classes) in _KNOWN_LOOPS
    except (LookupError, OSError, TypeError, SyntaxError):
        return False


def missing_in(trainer: Any, names: Sequence[str]) -> list[str]:
    """Those attributes that a trainer does not have.

    Args:
        trainer: The trainer.
        names: The attributes that are needed.
    """
    return [name for name in names if not hasattr(trainer, name)]


def require_internals(trainer: Any, names: Sequence[str], what: str) -> None:
    """Check that a trainer has attributes without which a promise would be broken.

    Args:
        trainer: The trainer.
        names: The attributes that are needed.
        what: What they are needed for, as the end of "TRL 1.16.0 is needed to ...".

    Raises:
        ConfigurationError: It has not; the message names the attribute and the versions of TRL that have it.
    """
    if missing := missing_in(trainer, names):
        raise ConfigurationError(
            f"{type(trainer).__name__} of TRL {trl_version()} has no attribute {missing[0]!r}, which is needed to "
            f"{what}. Install a version that works: {', '.join(KNOWN_TRL)}."
        )
