"""Asks a person for a tool's arguments, one question for each property of its JSON Schema.

Nothing is validated here. An answer that cannot be read as the schema's type is passed on as text. So the person sees
the tool's own error message, as a model would.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from envport.tools.allowed import describe_allowed

__all__ = ["BACK", "Ask", "WentBack", "ask_arguments"]

BACK = "<"
"""The answer that goes back to the question before. As an argument, it is written in double quotes."""

Ask = Callable[[str], str]
"""Shows a question and returns the answer, one line."""

_Schema = Mapping[str, Any]

_SHORT = 60
_LEFT_OUT: Final = object()
_YES, _NO = frozenset({"y", "yes", "true"}), frozenset({"n", "no", "false"})


class WentBack(Exception):
    """The person went back from the first question."""


def ask_arguments(
    schema: _Schema, ask: Ask, tell: Callable[[str], None], kept: Mapping[str, Any], *, explain: bool = True
) -> dict[str, Any]:
    """Ask for all arguments of a tool.

    Args:
        schema: The tool's input schema.
        ask: Asks for one line.
        tell: Shows a line.
        kept: Arguments of a refused call that were not at fault; an empty answer keeps them.
        explain: Whether to show the description of each argument.

    Raises:
        WentBack: The person does not want to be asked.
    """
    required = schema.get("required", ())
    questions = [
        _Question.about(name, declared, schema, required=name in required)
        for name, declared in cast("Mapping[str, _Schema]", schema["properties"]).items()
    ]
    arguments: dict[str, Any] = {question.name: question.choices[0] for question in questions if question.certain}
    open_questions = [question for question in questions if not question.certain]
    number = 0
    while number < len(open_questions):
        question = open_questions[number]
        for text in question.introduction(explain):
            tell(text)
        typed = ask(question.label(kept)).strip()
        if typed == BACK:
            number -= 1
            if number < 0:
                raise WentBack
            # What was answered before is suggested again.
            kept = {**kept, **arguments}
            arguments.pop(open_questions[number].name, None)
            continue
        answer = question.read(BACK if typed == f'"{BACK}"' else typed, kept)
        if answer is not _LEFT_OUT:
            arguments[question.name] = answer
        number += 1
    return {question.name: arguments[question.name] for question in questions if question.name in arguments}


@dataclass(frozen=True)
class _Question:
    name: str
    description: str
    allowed: str
    kinds: frozenset[str]
    choices: tuple[Any, ...]
    required: bool
    nullable: bool
    default: Any

    @classmethod
    def about(cls, name: str, declared: _Schema, root: _Schema, *, required: bool) -> _Question:
        branches = _branches(declared, root)
        choices = tuple(value for branch in branches for value in _choices(branch))
        every_branch_is_closed = all(_choices(branch) or branch.get("type") == "null" for branch in branches)
        kinds = frozenset(kind for branch in branches for kind in _kinds(branch))
        return cls(
            name=name,
            description=str(declared.get("description", "")),
            allowed=describe_allowed(declared, root),
            kinds=kinds - {"null"},
            choices=tuple(value for value in choices if value is not None) if every_branch_is_closed else (),
            required=required,
            nullable="null" in kinds or None in choices,
            default=declared.get("default", _LEFT_OUT),
        )

    @property
    def certain(self) -> bool:
        """Whether only one value is possible."""
        return self.required and len(self.choices) == 1 and not self.nullable

    @property
    def numbered(self) -> bool:
        """Whether choices can be named by number. Not if they are numbers themselves."""
        return bool(self.choices) and all(isinstance(value, str) for value in self.choices)

    @property
    def inline(self) -> str | None:
        """The numbered choices in one line; `None` if they do not fit."""
        line = ", ".join(f"{number} {value}" for number, value in enumerate(self.choices, 1))
        return line if self.numbered and len(line) <= _SHORT and "\n" not in line else None

    def introduction(self, explain: bool) -> list[str]:
        """The lines above the question."""
        lines = [f"{self.name}: {self.description}"] if self.description and explain else []
        if self.numbered and self.inline is None:
            lines.extend(f"  {number}  {value}" for number, value in enumerate(self.choices, 1))
        if self.kinds & {"object", "array"}:
            lines.append(f"  as JSON: {self.allowed}")
        return lines

    def label(self, kept: Mapping[str, Any]) -> str:
        """The question itself."""
        words = self.name
        if self.numbered:
            words += f" ({self.inline or f'1-{len(self.choices)}'})"
        elif not self.kinds & {"object", "array"}:
            words += f" ({self.allowed})"
        if self.name in kept:
            words += f" [{_shown(kept[self.name])}]"
        elif self.default is not _LEFT_OUT:
            words += f" [{_shown(self.default)}]"
        elif not self.required:
            words += " [leave out]"
        return f"{words}: "

    def read(self, answer: str, kept: Mapping[str, Any]) -> Any:
        """The value of an answer. An answer that cannot be parsed stays text, and the tool will refuse it."""
        if not answer:
            return kept.get(self.name, _LEFT_OUT)
        if self.choices:
            return self._choice(answer)
        if answer == "null" and self.nullable:
            return None
        if self._only("boolean"):
            return answer.lower() in _YES if answer.lower() in _YES | _NO else answer
        if self._only("string"):
            return "" if answer == '""' else answer
        return _json(answer)

    def _only(self, kind: str) -> bool:
        return len(self.kinds) == 1 and kind in self.kinds

    def _choice(self, answer: str) -> Any:
        for value in self.choices:
            if answer == _shown(value):
                return value
        if self.numbered and answer.isdecimal() and 1 <= int(answer) <= len(self.choices):
            return self.choices[int(answer) - 1]
        return None if answer == "null" and self.nullable else answer


def _branches(schema: _Schema, root: _Schema) -> list[_Schema]:
    """The alternatives of a schema, with their top-level references resolved."""
    seen: set[str] = set()
    while (reference := schema.get("$ref")) is not None and reference not in seen:
        seen.add(reference)
        definitions = cast("Mapping[str, _Schema]", root.get("$defs", {}))
        schema = definitions.get(str(reference).removeprefix("#/$defs/"), {})
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return [branch for choice in schema[key] for branch in _branches(choice, root)]
    return [schema]


def _choices(schema: _Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def _kinds(schema: _Schema) -> list[str]:
    kinds = schema.get("type", "any")
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _json(answer: str) -> Any:
    try:
        value = json.loads(answer, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return answer
    return answer if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
