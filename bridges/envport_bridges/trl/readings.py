"""Reading arguments that a chat format carries as bare text.

Qwen 3.5, Nemotron 3, GLM 4.5 and LFM 2 write `<parameter=count>3</parameter>` and the like. Only the tool's schema can
tell whether that is the number 3 or the text "3". This module is the one place that decides it, by these rules:

1. Text that the schema takes as text, with the call's other arguments, stays text.
2. `null`, and what else the format writes for null, is null where the schema takes null.
3. Other text is read as JSON if the schema takes the result, or as a Python literal, because some formats write `True`,
   `None` or `['a']`. A value of the right type that is too large or too long is read as well: the error is then about
   the value.
4. What fits no rule stays text, and is refused with everything else that breaks the schema.

A validator applies the schema, so it sees through `$ref`, `allOf`, untyped enums and conditions. If two readings
fit, rules 1 and 2 decide, always in the same way. Because of these rules, some values cannot arrive: `formats` names
the arguments for which that is so.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Mapping
from typing import Any

from envport_bridges.trl.arguments import ArgumentSchema

__all__ = ["read_arguments"]


def read_arguments(arguments: Mapping[str, Any], schema: ArgumentSchema, nulls: Collection[str]) -> dict[str, Any]:
    """Read the arguments of a call that were written as text.

    Args:
        arguments: The arguments by name; what is not text is kept as it is.
        schema: The tool's input schema.
        nulls: What the format writes for null.

    Returns:
        The arguments with the types that the schema asks for, as far as the text can be read so.
    """
    read = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, str):
            read[name] = _read(name, value, read, schema, nulls)
    for name, value in list(read.items()):
        # Another argument may say which kind this one is: text that fits here alone may not fit this call.
        if isinstance(value, str) and not isinstance(literal := _literal(value), str):
            changed = {**read, name: literal}
            read = changed if schema.accepts_all(changed) and not schema.accepts_all(read) else read
    return read


def _read(name: str, text: str, arguments: dict[str, Any], schema: ArgumentSchema, nulls: Collection[str]) -> Any:
    if text in nulls and schema.accepts(name, None, arguments):
        return None
    value = _literal(text)
    if isinstance(value, str) or schema.accepts(name, text, arguments):
        return text
    if schema.accepts(name, value, arguments):
        return value
    return value if schema.expects(name, value, arguments) and not schema.expects(name, text, arguments) else text


def _literal(text: str) -> Any:
    """The value that the text is JSON or a Python literal for; the text itself if it is for none."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    if not text.startswith(("[", "{")) and text not in ("True", "False", "None"):
        return text
    try:
        value = ast.literal_eval(text)
        return value if json.loads(json.dumps(value, allow_nan=False)) == value else text
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
