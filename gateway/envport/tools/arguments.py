"""Messages for invalid tool arguments: each names the argument, the problem, and what is allowed there.

Pydantic and JSON Schema validators find the problems. The words are the same for both, so that a policy reads the same
where the training bridge checks its arguments as where the gateway does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, cast

import jsonschema
from jsonschema.protocols import Validator
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from envport.tools.allowed import DESCRIBED, cut, describe_allowed, listed, show

__all__ = ["describe_problems", "schema_problems"]

_MOST_LINES = 20
_MOST_ERRORS = 200
_LONGEST_REASON = 200
# A JSON Schema validator is slow. Larger arguments are explained by what pydantic found.
_MOST_VALUES = 1_000
_DEEPEST = 10
_TELLING = {"value_error", "assertion_error", "string_unicode"}
_UNIONS = ("anyOf", "oneOf")

_Path = tuple[str | int, ...]
_Schema = Mapping[str, Any]


@dataclass(frozen=True)
class _Problem:
    """Something wrong with the arguments.

    Attributes:
        path: Where: the argument's name, then keys and indices. Empty if it is about the arguments as a whole.
        kind: Whether a value is wrong, missing or unknown.
        value: The wrong value.
        leaf: The schema of the value; of the object for an unknown key. `None` if nothing is allowed there.
        why: What else there is to say.
    """

    path: _Path
    kind: Literal["wrong", "missing", "unknown"]
    value: Any
    leaf: _Schema | None
    why: str = ""

    def line(self, root: _Schema) -> str:
        """The problem in one line."""
        if not self.path:
            return f"The arguments are not allowed: {self.why or describe_allowed(self.leaf or {}, root)}."
        name, *inner = self.path
        where = f" at {cut('.'.join(map(str, inner)))}" if inner else ""
        subject = f"Argument {cut(repr(name))}{where}"
        if self.leaf is None:
            return f"{subject} is not allowed."
        if self.kind == "unknown":
            known = listed(self.leaf.get("properties", {})) or "none"
            whose = "the keys there" if inner else "this tool's arguments"
            return f"{subject} is unknown; {whose} are: {known}."
        is_what = "missing" if self.kind == "missing" else show(self.value)
        why = f" ({self.why})" if self.why else ""
        return f"{subject} is {is_what}{why}; it has to be {describe_allowed(self.leaf, root)}."


def schema_problems(validator: Validator, arguments: Mapping[str, Any]) -> str | None:
    """What a JSON Schema validator refuses, in one line for each argument; `None` if it refuses nothing.

    Args:
        validator: Validator of the tool's input schema.
        arguments: The arguments that are checked.
    """
    root = cast("_Schema", validator.schema)
    return _lines(_by_schema(validator, arguments), root) or None


def describe_problems(error: ValidationError, arguments: Mapping[str, Any], validator: Validator) -> str:
    """What pydantic refused, in one line for each argument.

    Args:
        error: The error from pydantic. Its locations are names of the schema's properties.
        arguments: The arguments that were checked.
        validator: Validator of the tool's input schema. It says best which part of a union was meant, but it does not
            know the author's own checks.
    """
    root = cast("_Schema", validator.schema)
    small = _is_small(arguments)
    found = list(_by_schema(validator, arguments)) if small else []
    named = {problem.path[0] for problem in found if problem.path}
    for detail in error.errors(include_url=False, include_context=False):
        if not detail["loc"]:
            return f"The arguments are not valid JSON text: {detail['msg']}"
        if detail["loc"][0] not in named:
            found.append(_by_pydantic(detail, arguments, root))
    return _lines(found, root)


def _lines(problems: Iterable[_Problem], root: _Schema) -> str:
    worst: dict[Any, _Problem] = {}
    for problem in problems:
        name = problem.path[0] if problem.path else None
        # Of several problems in one argument, the deepest says most.
        if name not in worst or len(problem.path) > len(worst[name].path):
            worst[name] = problem
    order = {name: number for number, name in enumerate(root.get("properties", {}))}
    lines = [worst[name].line(root) for name in sorted(worst, key=lambda name: order.get(name, len(order)))]
    more = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], *([f"... and {more} more."] if more > 0 else [])])


def _is_small(arguments: Mapping[str, Any]) -> bool:
    left: list[tuple[Any, int]] = [(arguments, 0)]
    for _ in range(_MOST_VALUES):
        if not left:
            return True
        value, depth = left.pop()
        inside = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)
        if isinstance(value, dict | list) and depth < _DEEPEST:
            left.extend((item, depth + 1) for item in islice(inside, _MOST_VALUES))
        elif isinstance(value, dict | list):
            return False
    return not left


def _by_schema(validator: Validator, arguments: Mapping[str, Any]) -> Iterable[_Problem]:
    for error in islice(validator.iter_errors(dict(arguments)), _MOST_ERRORS):
        yield from _of_error(error)


def _of_error(error: jsonschema.ValidationError) -> Sequence[_Problem]:
    """The problems that an error is about: one, but for keys that are missing or unknown."""
    path = tuple(error.absolute_path)
    if not isinstance(error.schema, Mapping):
        return [_Problem(path, "wrong", None, None)]
    schema: _Schema = error.schema
    instance: Any = error.instance
    properties = cast("Mapping[str, _Schema]", schema.get("properties", {}))
    match error.validator:
        case "required":
            missing = [name for name in cast("list[str]", error.validator_value) if name not in instance]
            return [_Problem((*path, name), "missing", None, properties.get(name, {})) for name in missing]
        case "additionalProperties" if error.validator_value is False and "patternProperties" not in schema:
            unknown = [name for name in instance if name not in properties]
            return [_Problem((*path, name), "unknown", None, schema) for name in unknown]
        case validator if validator in _UNIONS and (inner := _of_union(error)):
            return inner
        case validator:
            why = "" if validator in DESCRIBED and path else cut(error.message, _LONGEST_REASON)
            return [_Problem(path, "wrong", instance, schema, why)]


def _of_union(error: jsonschema.ValidationError) -> Sequence[_Problem]:
    """The problems in the branch that the caller most likely meant; none if no branch can be told from the others."""
    branches: dict[Any, list[_Problem]] = {}
    for part in error.context or ():
        branches.setdefault(part.schema_path[0], []).extend(_of_error(part))
    # The branch that the value gets furthest into, and breaks in the fewest places.
    ranks = [(-max(len(problem.path) for problem in found), len(found)) for found in branches.values()]
    best = min(ranks, default=(0, 0))
    if -best[0] <= len(error.absolute_path):
        return []
    meant, *others = [found for found, rank in zip(branches.values(), ranks, strict=True) if rank == best]
    return meant if not others else _in_common(meant, others)


def _in_common(meant: Sequence[_Problem], others: Sequence[Sequence[_Problem]]) -> Sequence[_Problem]:
    """A value that is wrong in each of several branches, such as the one that says which branch it is."""
    for problem in meant:
        same = [problem, *(it for found in others for it in found if it.path == problem.path)]
        if problem.kind == "wrong" and len(same) == 1 + len(others):
            return [replace(problem, leaf={"anyOf": [it.leaf for it in same]})]
    return []


def _by_pydantic(detail: ErrorDetails, arguments: Mapping[str, Any], root: _Schema) -> _Problem:
    name = str(detail["loc"][0])
    properties = cast("Mapping[str, _Schema]", root.get("properties", {}))
    if name not in properties:
        return _Problem((name,), "unknown", None, root)
    path = _path(detail, arguments.get(name))
    leaf = _leaf(properties[name], path, root)
    if detail["type"] == "missing":
        return _Problem((name, *path), "missing", None, leaf or {})
    # Where the schema of the value cannot be told, pydantic's message is all that there is to say.
    why = detail["msg"] if detail["type"] in _TELLING or leaf is None else ""
    return _Problem((name, *path), "wrong", detail["input"], leaf or {}, why)


def _path(detail: ErrorDetails, value: Any) -> _Path:
    """The location of the problem in a value, without the type names that pydantic puts into its locations."""
    path: list[str | int] = []
    location = detail["loc"][1:]
    for number, part in enumerate(location, 1):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            if detail["type"] == "missing" and number == len(location):
                path.append(part)
        else:
            path.append(part)
    return tuple(path)


def _leaf(schema: Any, path: _Path, root: _Schema, depth: int = 20) -> _Schema | None:
    """The schema at a path into a value; `None` if no part of the schema is about it."""
    if not isinstance(schema, Mapping) or depth == 0:
        return None
    schema = cast("_Schema", schema)
    if not path:
        return schema
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        return _leaf(root.get("$defs", {}).get(name), path, root, depth - 1)
    step, *rest = path
    if isinstance(step, str):
        inner = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    else:
        parts = cast("list[Any]", schema.get("prefixItems", []))
        inner = parts[step] if step < len(parts) else schema.get("items")
    branches = [branch for key in _UNIONS for branch in cast("list[Any]", schema.get(key, []))]
    below = [(inner, tuple(rest)), *((branch, path) for branch in branches)]
    return next(filter(None, (_leaf(part, left, root, depth - 1) for part, left in below)), None)
