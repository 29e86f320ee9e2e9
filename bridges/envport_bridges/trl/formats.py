"""How a model's chat format writes tool calls, and what it cannot carry.

Nothing is known here about any format by name: calls are rendered by the model's own chat template and read back by the
parser that TRL uses for it, and what does not come back is what the format cannot carry.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from random import Random
from typing import Any, cast

from envport.tools.sampling import ArgumentSampler
from envport_bridges.trl.classes import tools_of
from envport_bridges.trl.readings import read_arguments
from envport_bridges.trl.tools import ListedTool
from envport_bridges.trl.turns import read_turn

__all__ = ["AS_WRITTEN", "CallFormat", "CallWriter", "Losses", "format_for", "losses_of", "same_json"]

logger = logging.getLogger(__name__)

_EXACT: tuple[Any, ...] = (1, 1.5, True, None, {"a": 1}, [1, "a", None], "7", "null", "None")
_RENDERS = 2_000
_DRAWS = 12
_UNDECLARED = "undeclared"
_USER = {"role": "user", "content": "Go."}


@dataclass(frozen=True)
class _Feature:
    """Something that a format may not carry, whatever the tool.

    Attributes:
        name: What it is, after "values with".
        probe: A value that has it.
        has: Whether a value has it.
    """

    name: str
    probe: Any
    has: Callable[[Any], bool]


def _text(name: str, probe: str, pattern: str) -> _Feature:
    return _Feature(name, probe, lambda value: isinstance(value, str) and re.search(pattern, value) is not None)


_FEATURES = (
    _text("a single quote in a text", "it's", "'"),
    _text("a double quote in a text", 'say "hi"', '"'),
    _text("white space at the ends of a text", " a ", r"^\s|\s$"),
    _text("line breaks in a text", "a\nb", "\n"),
    _text("brackets in a text", "a) b] c}, d", r"[)\]}]"),
    _Feature(
        "keys other than letters, digits and _ in an object",
        {"a-b": "x"},
        lambda value: isinstance(value, dict) and not all(re.fullmatch(r"\w+", key) for key in _keys(value)),
    ),
)


def _keys(value: Any) -> list[str]:
    return list(cast("dict[str, Any]", value))


@dataclass(frozen=True)
class CallFormat:
    """How the arguments of a call have to be read.

    Attributes:
        exact: Values come back with the types that they were written with, so that there is nothing to read.
        nulls: What is read as null, if the schema takes null.
    """

    exact: bool
    nulls: frozenset[str] = frozenset()

    @classmethod
    def of(cls, writer: CallWriter) -> CallFormat:
        """Find out how a chat template writes values."""
        back = {repr(value): writer.value(value) for value in _EXACT}
        if all(type(back[repr(value)]) is type(value) and back[repr(value)] == value for value in _EXACT):
            return cls(exact=True)
        nulls = {null for null in (back["None"],) if isinstance(null, str)}
        # Where a number is bare text, so is null, and models write it both ways.
        return cls(exact=False, nulls=frozenset({"null", "None"} if back["1"] == "1" else nulls))

    def read(self, definition: ListedTool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call, read by the tool's schema where the format writes text."""
        return arguments if self.exact else read_arguments(arguments, definition.arguments, self.nulls)


AS_WRITTEN = CallFormat(exact=True)
"""Arguments are taken as they are."""


@dataclass
class CallWriter:
    """Writes tool calls as a model would, and reads them back as TRL does.

    Attributes:
        processing_class: The tokenizer, or a vision model's processor, with its chat template.

    Raises:
        ValueError: TRL has no parser for the chat template.
    """

    processing_class: Any
    _tokenizer: Any = field(init=False, repr=False)
    _templates: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._templates = import_module("trl.chat_template_utils")
        # The trainer's own is left for the trainer to complete.
        own = copy.copy(self.processing_class)
        if hasattr(own, "tokenizer"):
            own.tokenizer = copy.copy(own.tokenizer)
        inner = getattr(own, "tokenizer", own)
        if getattr(inner, "response_template", None) is None and getattr(inner, "response_schema", None) is None:
            self._templates.add_response_schema(own)
        self._tokenizer = inner

    def value(self, value: Any) -> Any:
        """What becomes of a value of which the parser knows no schema; the writer itself if the call is lost."""
        back = self.call("act", {"x": value}, [])
        return back[1].get("x", self) if back is not None else self

    def call(self, name: str, arguments: Mapping[str, Any], tools: Sequence[Any]) -> tuple[str, dict[str, Any]] | None:
        """Write a call and read it back: its name and its arguments, or `None` if no single call was read."""
        prompt, written = self.write(name, arguments)
        encode = self._tokenizer
        ids = encode(written, add_special_tokens=False)["input_ids"]
        prefix = encode(prompt, add_special_tokens=False)["input_ids"]
        message = read_turn(encode, ids, prefix=prefix, tools=list(tools))
        calls: list[Any] = message.get("tool_calls") or []
        if len(calls) != 1 or not isinstance(calls[0].get("function", {}).get("arguments"), dict):
            return None
        return calls[0]["function"]["name"], calls[0]["function"]["arguments"]

    def write(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
        """The prompt and the turn after it in which a model makes a call."""
        call = {"type": "function", "function": {"name": name, "arguments": dict(arguments)}}
        whole = self._render([_USER, {"role": "assistant", "content": "", "tool_calls": [call]}])
        # Some prompts open a thought that the template leaves out of a turn without one.
        for before in (self._prompt, self._user_alone):
            if whole.startswith(before):
                return self._prompt, whole[len(before) :]
        return self._prompt, whole

    @cached_property
    def _prompt(self) -> str:
        return self._render([_USER], add_generation_prompt=True)

    @cached_property
    def _user_alone(self) -> str:
        return self._render([_USER])

    def _render(self, messages: list[dict[str, Any]], **options: Any) -> str:
        if hasattr(self.processing_class, "tokenizer"):
            messages = self._templates.prepare_multimodal_messages(messages)
        return cast("str", self.processing_class.apply_chat_template(messages, tokenize=False, **options))


def format_for(trainer: Any, processing_class: Any, environment_type: type[Any]) -> CallFormat:
    """The format in which a trainer's model calls the tools of an environment.

    Says in the log what the format cannot carry, once for each trainer and class of environments.

    Args:
        trainer: The trainer.
        processing_class: Its tokenizer or processor.
        environment_type: A class made by `environment_class`.
    """
    known = cast("dict[type[Any], CallFormat]", cast("Any", vars(trainer)).setdefault("_envport_formats", {}))
    if environment_type not in known:
        known[environment_type] = _find_format(processing_class, environment_type)
    return known[environment_type]


def _find_format(processing_class: Any, environment_type: type[Any]) -> CallFormat:
    try:
        writer = CallWriter(processing_class)
    except ValueError as error:
        # The trainer refuses such a template itself, unless it parses by means of its own.
        logger.debug("the chat template cannot be tried: %s", error)
        return CallFormat(exact=False)
    form = CallFormat.of(writer)
    if losses := losses_of(writer, form, tools_of(environment_type).values()):
        logger.warning(
            "the model's chat format cannot carry these values to the tools of %s: %s",
            environment_type.__name__,
            losses,
        )
    return form


@dataclass(frozen=True)
class Losses:
    """What a chat format cannot carry of the calls of some tools.

    Attributes:
        tools: Tools that cannot be called.
        arguments: A value that does not arrive, by the names of tool and argument.
        features: What no value may have, whatever the tool.
    """

    tools: tuple[str, ...] = ()
    arguments: Mapping[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])
    features: tuple[_Feature, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tools or self.arguments or self.features)

    def __str__(self) -> str:
        said = [f"any call of the tool {name!r}" for name in self.tools]
        for (tool, name), value in self.arguments.items():
            argument = f"argument {name!r}" if name != _UNDECLARED else "an argument that is not declared"
            said.append(f"{value!r:.60} as {argument} of {tool!r}")
        return "; ".join([*said, *(f"values with {feature.name}" for feature in self.features)])

    def cover(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call is one of those that are said not to arrive."""
        if tool in self.tools or {(tool, name) for name in (*arguments, _UNDECLARED)} & self.arguments.keys():
            return True
        values = [part for value in arguments.values() for part in _parts(value)]
        return any(feature.has(value) for feature in self.features for value in values)


def _parts(value: Any) -> Iterator[Any]:
    """A value and everything in it."""
    yield value
    inside = cast("Any", value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    for part in inside:
        yield from _parts(part)


def losses_of(writer: CallWriter, form: CallFormat, definitions: Iterable[ListedTool]) -> Losses:
    """Find out what a chat format cannot carry, by writing calls with random valid arguments and reading them back.

    Args:
        writer: Writes and reads calls.
        form: How the format's arguments are read.
        definitions: The tools.
    """
    definitions = list(definitions)
    draws = 1 if form.exact else max(1, min(_DRAWS, _RENDERS // max(1, len(definitions))))
    callable_ = [tool for tool in definitions if _read_back(writer, form, tool, {}) is not None]
    lost = {
        (tool.name, name): value
        for tool in callable_
        for name, value in _values(tool, draws)
        if not _arrives(writer, form, tool, name, value)
    }
    silent = {tool.name for tool in definitions} - {tool.name for tool in callable_}
    features = [feature for feature in _FEATURES if _concerns(feature, callable_) and _loses(writer, form, feature)]
    return Losses(tuple(sorted(silent)), lost, tuple(features))


def _values(tool: ListedTool, draws: int) -> Iterator[tuple[str, Any]]:
    """Values that the tool's arguments take, by name."""
    sampler = ArgumentSampler(tool.arguments.schema)
    rng = Random(0)
    drawn: set[str] = set()
    for _ in range(draws):
        try:
            arguments = sampler.sample(rng)
        except Exception:  # Of a hostile schema nothing can be drawn, and it may fail in any way.
            break
        drawn |= arguments.keys()
        yield from arguments.items()
    for name in set(tool.parameters.safe) - drawn:
        # Optional ones were left out by chance; those of which nothing is known take a number like anything else.
        if tool.arguments.accepts(name, 1, {}):
            yield name, 1
    if tool.arguments.schema.get("additionalProperties") and tool.arguments.accepts(_UNDECLARED, 1, {}):
        yield _UNDECLARED, 1


def _concerns(feature: _Feature, tools: Sequence[ListedTool]) -> bool:
    return any(tool.arguments.accepts(name, feature.probe, {}) for tool in tools for name in tool.parameters.safe)


def _loses(writer: CallWriter, form: CallFormat, feature: _Feature) -> bool:
    kind = "string" if isinstance(feature.probe, str) else "object"
    schema = {"type": "object", "properties": {"x": {"type": kind}}}
    return not _arrives(writer, form, ListedTool.of({"name": "act", "inputSchema": schema}, "act"), "x", feature.probe)


def _arrives(writer: CallWriter, form: CallFormat, tool: ListedTool, name: str, value: Any) -> bool:
    return same_json(_read_back(writer, form, tool, {name: value}), {name: value})


def _read_back(
    writer: CallWriter, form: CallFormat, tool: ListedTool, arguments: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    try:
        called = writer.call(tool.name, arguments, [tool.function])
    except Exception:  # Templates raise what they like for a name or a value that they cannot write.
        return None
    return form.read(tool, called[1]) if called is not None and called[0] == tool.name else None


def same_json(left: Any, right: Any) -> bool:
    """Whether two values are equal as JSON: 1 is not true, and 1.0 is 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        mine, its = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return mine.keys() == its.keys() and all(same_json(mine[key], its[key]) for key in mine)
    if isinstance(left, list) and isinstance(right, list):
        items, others = cast("list[Any]", left), cast("list[Any]", right)
        return len(items) == len(others) and all(map(same_json, items, others))
    return left == right
