"""The source of a client: a class with a method for each tool."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from envport.types import EnvironmentInfo
from envport_bridges.client_source.hints import TypeHints, quoted
from envport_bridges.rollouts.typed_client import EnvironmentClient
from envport_bridges.safe_names import SafeNames

__all__ = ["client_source"]

_WIDTH = 110
_TYPING = ("Any", "Literal", "NotRequired", "TypedDict")
_CLIENT = ("NOT_GIVEN", "ClientReply", "EnvironmentClient", "NotGiven")
_OURS = {*_TYPING, *_CLIENT}


def client_source(info: EnvironmentInfo, where: str) -> str:
    """Write a client.

    Args:
        info: The environment. If its tasks have tools of their own, the methods are those of all tasks together.
        where: What the client plays if nothing else is given to it: an address, or a reference.

    Returns:
        Source of a module that needs `envport-client[rollouts]`, or `envport`.
    """
    classes: dict[str, str] = {}
    name = _class_name(info.name)
    methods = SafeNames.of([tool["name"] for tool in info.tools], prefix="tool_", reserved=dir(EnvironmentClient))
    bodies = [_Method.of(tool, methods.safe[tool["name"]], classes).source() for tool in info.tools]
    says = f"A client of the environment {info.name}. Made by `envport client`: make it anew when its tools change."
    example = f"    with {name}() as env:\n        first = env.reset(seed=0)\n        print(env.prompt, first.text)"
    head = [f"class {name}(EnvironmentClient):", textwrap.indent(_docstring(info.description), "    "), ""]
    fields = [f"    where = {quoted(where)}", f"    fingerprint = {quoted(info.fingerprint)}"]
    methods_text = "".join(f"\n\n{textwrap.indent(body, '    ')}" for body in bodies)
    rest = "\n\n\n".join([*classes.values(), "\n".join([*head, *fields]) + methods_text])
    parts = [
        _docstring(says, example),
        "from __future__ import annotations",
        *_imports(rest),
        f"__all__ = [{quoted(name)}]\n\n\n{rest}\n",
    ]
    return "\n\n".join(parts)


def _imports(rest: str) -> Iterator[str]:
    """What the rest of the module uses. What is not used would be found fault with by linters."""
    typing = [name for name in _TYPING if re.search(rf"\b{name}\b", rest)]
    if typing:
        yield f"from typing import {', '.join(typing)}"
    names = [name for name in _CLIENT if re.search(rf"\b{name}\b", rest)]
    yield f"from {EnvironmentClient.__module__} import {', '.join(names)}"


@dataclass(frozen=True)
class _Method:
    name: str
    tool: str
    description: str
    required: list[str]
    optional: list[str]
    arguments: list[str]
    documented: list[str]

    @classmethod
    def of(cls, tool: Mapping[str, Any], name: str, classes: dict[str, str]) -> _Method:
        schema = cast("Mapping[str, Any]", tool["inputSchema"])
        properties = cast("Mapping[str, Any]", schema.get("properties", {}))
        types = TypeHints(cast("Mapping[str, Any]", schema.get("$defs", {})), _class_name(name), classes)
        safe = SafeNames.of(properties, prefix="argument_", reserved={"self", *_OURS}).safe
        needed = set(cast("Sequence[str]", schema.get("required", ())))
        required: list[str] = []
        optional: list[str] = []
        documented: list[str] = []
        for key, value in properties.items():
            hint = types.hint(value, _class_name(f"{name}_{key}"))
            if key in needed:
                required.append(f"{safe[key]}: {hint}")
            else:
                optional.append(f"{safe[key]}: {hint} | NotGiven = NOT_GIVEN")
            documented.append(f"{safe[key]}: {_said(value)}")
        arguments = [f"{quoted(key)}: {safe[key]}" for key in properties]
        return cls(name, tool["name"], str(tool.get("description", "")), required, optional, arguments, documented)

    def source(self) -> str:
        star = ["*"] if self.optional else []
        head = f"def {self.name}({', '.join(['self', *self.required, *star, *self.optional])}) -> ClientReply:"
        if len(head) > _WIDTH:
            lines = "".join(f"    {part},\n" for part in ["self", *self.required, *star, *self.optional])
            head = f"def {self.name}(\n{lines}) -> ClientReply:"
        listed = "\n".join(["Args:", *(f"    {line}" for line in self.documented)]) if self.documented else ""
        call = f"return self.call_tool({quoted(self.tool)}, {{{', '.join(self.arguments)}}})"
        return "\n".join([head, textwrap.indent(_docstring(self.description, listed), "    "), f"    {call}"])


def _said(schema: Any) -> str:
    """What a schema says of an argument, in one line."""
    if not isinstance(schema, Mapping):
        return "Anything."
    schema = cast("Mapping[str, Any]", schema)
    said = " ".join(str(schema.get("description", "")).split()) or "No description."
    return f"{said} Default: {json.dumps(schema['default'])}." if "default" in schema else said


def _docstring(*paragraphs: str) -> str:
    """Untrusted text as a docstring. It is escaped, so that it cannot end the docstring early."""
    text = "\n\n".join(part for part in paragraphs if part.strip()) or "No description."
    kept = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    kept = (
        kept.replace("\\", "\\\\").replace('"', '\\"') if '"""' in kept or "\\" in kept or kept.endswith('"') else kept
    )
    lines = [line for part in kept.split("\n") for line in (_wrapped(part) or [""])]
    return f'"""{lines[0]}"""' if len(lines) == 1 else "\n".join([f'"""{lines[0]}', *lines[1:], '"""'])


def _wrapped(line: str) -> list[str]:
    start = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, _WIDTH, subsequent_indent=f"{start}    " if start else "", break_long_words=False)


def _class_name(name: str) -> str:
    words = "".join(char if char.isalnum() and char.isascii() else " " for char in name).split()
    joined = "".join(word[:1].upper() + word[1:] for word in words)
    return joined if joined[:1].isalpha() and joined not in _OURS else f"Client{joined}"
