"""Chat templates against tool schemas: what a model is shown of a tool, and what of its call arrives.

For each chat template of the installed TRL that calls tools and whose calls TRL can parse, and for each tool of a
corpus: is the prompt byte for byte that of the plain listing, and does a call that the template writes come back equal?
`python -m envport_bridges.trl.bench formats` prints it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from envport_bridges.trl.classes import environment_class, tools_of
from envport_bridges.trl.formats import CallFormat, CallWriter, losses_of, same_json
from envport_bridges.trl.rollout_environment import RolloutEnvironment

__all__ = ["PATHS", "Cell", "Corpus", "compare", "environment_tools", "tool_templates"]

PATHS = ("environment_factory", "rollout_func")
"""The ways in which a model is shown tools."""

_PROMPT = [{"role": "user", "content": "Go."}]

Corpus = Mapping[str, tuple[dict[str, Any], dict[str, Any]]]
"""Tools as MCP lists them, each with arguments that it takes, by a label."""


@dataclass
class Cell:
    """How one template does on one path.

    Attributes:
        template: The name of the template.
        path: One of `PATHS`.
        exact: Tools whose prompt is that of the listing.
        equal: Tools whose call came back equal.
        said: Tools whose call did not come back equal, as the bridge had said when the environment was made.
        wrong: Tools whose call did not come back equal although nothing was said, or whose prompt differs.
    """

    template: str
    path: str
    exact: int = 0
    equal: int = 0
    said: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])


def tool_templates() -> list[str]:
    """The chat templates of the installed TRL that call tools and whose calls TRL can parse."""
    templates: Any = import_module("trl.chat_template_utils")
    names: list[str] = []
    for path in sorted(_folder().glob("*.jinja")):
        tokenizer = SimpleNamespace(chat_template=path.read_text(encoding="utf-8"))
        try:
            templates.add_response_schema(tokenizer)
        except ValueError:
            continue
        if "tool_calls" in tokenizer.response_template["fields"]:
            names.append(path.stem)
    return names


def compare(tokenizer: Any, names: list[str], corpus: Corpus) -> Iterator[Cell]:
    """Compare templates with a corpus.

    Args:
        tokenizer: Any tokenizer that can encode and decode any text.
        names: Names of templates.
        corpus: The tools.

    Yields:
        A cell for each template and path.
    """
    for name in names:
        mine = copy.copy(tokenizer)
        mine.chat_template = (_folder() / f"{name}.jinja").read_text(encoding="utf-8")
        import_module("trl.chat_template_utils").add_response_schema(mine)
        writer = CallWriter(mine)
        form = CallFormat.of(writer)
        for path in PATHS:
            cell = Cell(name, path)
            for label, (listed, arguments) in corpus.items():
                _compare(cell, label, listed, arguments, writer, form)
            yield cell


def _folder() -> Path:
    trl: Any = import_module("trl")
    return Path(trl.__file__).parent / "chat_templates"


def _compare(
    cell: Cell, label: str, listed: dict[str, Any], arguments: dict[str, Any], writer: CallWriter, form: CallFormat
) -> None:
    player: Any = SimpleNamespace()
    made = environment_class("demo", [listed], RolloutEnvironment)
    environment: Any = made(player)
    (definition,) = tools_of(made).values()
    plain = {
        "name": listed["name"],
        "description": listed.get("description") or "",
        "parameters": listed["inputSchema"],
    }
    tools, prompt = _shown(cell.path, environment, writer.processing_class)
    if prompt == _rendered(writer.processing_class, [{"type": "function", "function": plain}]):
        cell.exact += 1
    else:
        cell.wrong.append(f"{label}: another prompt")
    back = writer.call(definition.name, arguments, tools or [])
    if back is not None and back[0] == definition.name and same_json(form.read(definition, back[1]), arguments):
        cell.equal += 1
    elif losses_of(writer, form, [definition]).cover(definition.name, arguments):
        cell.said.append(label)
    else:
        cell.wrong.append(f"{label}: {back}")


def _shown(path: str, environment: Any, tokenizer: Any) -> tuple[list[Any] | None, list[int]]:
    """The tools that the parser gets, and the token ids of the prompt."""
    if path == "rollout_func":
        from envport_bridges.trl.prompt_check import shown_tools
        from envport_bridges.trl.rollout import encode

        trainer = SimpleNamespace(processing_class=tokenizer, chat_template=None, chat_template_kwargs={})
        return shown_tools(environment), encode(_PROMPT, environment, trainer)
    tools = [getattr(environment, name) for name in environment_tools(environment)]
    return tools, _rendered(tokenizer, tools)


def environment_tools(environment: Any) -> list[str]:
    """The names of the members that TRL takes for tools."""
    members = inspect.getmembers(cast("type[Any]", type(environment)), predicate=inspect.isfunction)
    return [name for name, _ in members if name not in ("reset", "get_reward") and not name.startswith("_")]


def _rendered(tokenizer: Any, tools: list[Any]) -> list[int]:
    return tokenizer.apply_chat_template(
        _PROMPT, tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False
    )
