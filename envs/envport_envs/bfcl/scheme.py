"""The scheme `bfcl:`."""

from __future__ import annotations

import difflib
from typing import cast, get_args

from envport.errors import EnvironmentNotFound
from envport.registry import EnvironmentDefinition
from envport_envs.bfcl.environment import BfclEnvironment
from envport_envs.bfcl.library import BfclCategory, rows

__all__ = ["bfcl"]


def bfcl(rest: str, /) -> EnvironmentDefinition:
    """Multi-turn tasks of the Berkeley Function-Calling Leaderboard: `bfcl:multi_turn_base`.

    Args:
        rest: The category: `multi_turn_base`, `multi_turn_miss_func`, `multi_turn_miss_param` or
            `multi_turn_long_context`.

    Raises:
        EnvironmentNotFound: There is no such category.
        MissingExtra: `bfcl-eval` is not installed.
    """
    categories = get_args(BfclCategory)
    if rest not in categories:
        near = difflib.get_close_matches(rest, categories, 1, 0.4)
        hint = f" Near: {near[0]}." if near else ""
        raise EnvironmentNotFound(
            f"bfcl:{rest}: there is no category {rest!r} of several turns; allowed: {', '.join(categories)}.{hint}"
        )
    rows(cast("BfclCategory", rest))
    return EnvironmentDefinition(rest, BfclEnvironment, {"category": rest})
