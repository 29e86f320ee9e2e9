"""Sets inside observations. Their order differs from process to process, so as JSON they are sorted lists."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import SchemaSerializer, core_schema, to_jsonable_python

__all__ = ["holds_set", "in_fixed_order"]

_ANYTHING = SchemaSerializer(core_schema.any_schema())
_SET = (set, frozenset)
_LIST = (list, tuple)
_LEAVES = {str, int, float, bool, type(None), bytes}


def holds_set(value: Any) -> bool:
    """Whether there is a set anywhere in a value of mappings, lists, tuples, dataclasses and pydantic models."""
    left: list[Any] = [value]
    while left:
        item = left.pop()
        if isinstance(item, _SET):
            return True
        left.extend([inner for inner in _inside(item) if type(inner) not in _LEAVES])
    return False


def _inside(value: Any) -> Iterable[Any]:
    # Lists first: looking for a mapping is slow.
    if isinstance(value, _LIST):
        return cast("Iterable[Any]", value)
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value).values()
    if isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return [getattr(value, name) for name in _fields(value)]
    return ()


def _fields(value: Any) -> Iterable[str]:
    if isinstance(value, BaseModel):
        return (*type(value).model_fields, *(value.model_extra or ()))
    return (field.name for field in dataclasses.fields(value))


def in_fixed_order(value: Any, data: Any) -> Any:
    """Sort what was a set: numbers by size, anything else by its JSON text.

    Args:
        value: What the environment returned.
        data: The same in plain data, with sets as lists. It is changed.
    """
    return _sorted(_ANYTHING.to_python(value, by_alias=True), data)


def _sorted(raw: Any, data: Any) -> Any:
    if isinstance(raw, _SET) and isinstance(data, list):
        members = cast("Iterable[Any]", raw)
        items = [_sorted(item, to_jsonable_python(item, by_alias=True)) for item in members]
        cast("list[Any]", data)[:] = sorted(items, key=_by_size_or_text)
    elif isinstance(raw, Mapping) and isinstance(data, dict):
        _sort_each(cast("Mapping[Any, Any]", raw).values(), cast("dict[str, Any]", data).values())
    elif isinstance(raw, _LIST) and isinstance(data, list):
        _sort_each(cast("Iterable[Any]", raw), cast("list[Any]", data))
    return cast("Any", data)


def _sort_each(raw: Iterable[Any], data: Iterable[Any]) -> None:
    for one, other in zip(raw, data, strict=True):
        _sorted(one, other)


def _by_size_or_text(item: Any) -> tuple[bool, float, str]:
    if isinstance(item, int | float):
        return False, item, ""
    return True, 0, json.dumps(item, ensure_ascii=False)
