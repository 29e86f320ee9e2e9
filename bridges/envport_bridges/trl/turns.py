"""Reading what a model wrote with the parser that TRL uses for its chat template."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["read_turn"]


def read_turn(
    tokenizer: Any, ids: Sequence[int], *, prefix: Sequence[int], tools: Sequence[Any] | None
) -> dict[str, Any]:
    """The assistant's message in a turn.

    Args:
        tokenizer: The model's, completed for parsing by TRL's `add_response_schema`.
        ids: The tokens of the turn.
        prefix: The tokens before it.
        tools: The tools that the model was shown.

    Returns:
        The message, with `tool_calls` where there are any that can be read.
    """
    parse, takes_tools = _parser()
    return parse(tokenizer, ids, prefix=prefix, **({"tools": tools} if takes_tools else {}))


@cache
def _parser() -> tuple[Any, bool]:
    """TRL's parser, and whether it is told the tools: that of TRL 1.15 and older is not."""
    parse: Any = import_module("trl.chat_template_utils").parse_response
    return parse, "tools" in inspect.signature(parse).parameters
