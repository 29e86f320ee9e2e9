"""A model's chat format as TRL trains it: its chat template, and the parser of its turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast

from jinja2 import TemplateError

from envport.errors import ConfigurationError
from envport_bridges.agents.model.chat import CannotRender
from envport_bridges.trl.formats import CallFormat, CallWriter
from envport_bridges.trl.tools import ListedTool
from envport_bridges.trl.turns import read_turn

__all__ = ["ChatTemplateFormat", "complete_for_tools", "prepare_for_tools"]

_NO_LIMIT = 1 << 30
_MOST_KEPT = 256
_CONTROL = {"sanitize_control_tokens": True}
"""What an environment shows must not end a turn and speak for the user."""


def complete_for_tools(processing_class: Any, chat_template: str | None) -> str | None:
    """Do what `GRPOTrainer` does when it knows of tools: add the parser of turns, and find a template for training.

    Args:
        processing_class: The tokenizer or processor; completed in place.
        chat_template: The template that replaces its own, if any.

    Returns:
        The template to use in place of its own, if any.
    """
    templates: Any = import_module("trl.chat_template_utils")
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    if getattr(tokenizer, "response_template", None) is None and getattr(tokenizer, "response_schema", None) is None:
        templates.add_response_schema(processing_class)
    if chat_template is None and not templates.is_chat_template_prefix_preserving(processing_class):
        return templates.get_training_chat_template(processing_class)
    return chat_template


def prepare_for_tools(trainer: Any) -> None:
    """Complete a trainer that was given no tools for conversations with tools.

    Raises:
        ConfigurationError: It was given tools, or environments that have some.
    """
    if getattr(trainer, "tools", None) or getattr(trainer, "environment_factories", None):
        raise ConfigurationError(
            "pass neither tools nor environment_factory beside rollout_func: the trainer would call the tools a second "
            "time, and train all that stands between the model's turns"
        )
    trainer.chat_template = complete_for_tools(trainer.processing_class, trainer.chat_template)
    trainer.chat_template_kwargs = {**_CONTROL, **trainer.chat_template_kwargs}


@dataclass
class ChatTemplateFormat:
    """A `ChatFormat` by a tokenizer's chat template.

    Attributes:
        processing_class: The tokenizer, or a vision model's processor.
        chat_template: The template that replaces its own, if any.
        template_settings: Further arguments of the template.
        end_ids: The ids that end a turn.
        most_ids: How many ids the model can see at once.
    """

    processing_class: Any
    chat_template: str | None
    template_settings: Mapping[str, Any]
    end_ids: frozenset[int]
    most_ids: int
    _ends: dict[str, tuple[list[int], int | None]] = field(default_factory=dict[str, Any], repr=False)
    _listed: dict[str, dict[str, ListedTool]] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def of_trainer(cls, trainer: Any) -> ChatTemplateFormat:
        """The format in which a trainer shows conversations to its model. Completes the trainer for tools."""
        prepare_for_tools(trainer)
        return cls(
            trainer.processing_class,
            trainer.chat_template,
            trainer.chat_template_kwargs,
            frozenset(trainer.eos_token_ids),
            _positions(trainer.model),
        )

    @classmethod
    def of_model(
        cls,
        processing_class: Any,
        model: Any,
        end_ids: Sequence[int] | None = None,
        template_settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> ChatTemplateFormat:
        """The format in which a saved model is served: the same as in training.

        Args:
            processing_class: Its tokenizer or processor.
            model: The model, or its configuration.
            end_ids: The ids that end a turn; those of its generation configuration if not given.
            template_settings: Further arguments of the template. They are not saved with a model.

        Raises:
            ConfigurationError: There is no chat template, or TRL knows no parser for it.
        """
        tokenizer = getattr(processing_class, "tokenizer", processing_class)
        if not tokenizer.chat_template:
            raise ConfigurationError("the model's tokenizer has no chat template")
        try:
            template = complete_for_tools(processing_class, None)
        except ValueError as error:
            raise ConfigurationError(f"the model's chat template cannot be used with tools: {error}") from error
        ids = list(end_ids) if end_ids is not None else _eos_of(model)
        ends = frozenset([*ids, tokenizer.eos_token_id])
        return cls(processing_class, template, {**_CONTROL, **template_settings}, ends, _positions(model))

    @cached_property
    def _tokenizer(self) -> Any:
        return getattr(self.processing_class, "tokenizer", self.processing_class)

    @cached_property
    def _arguments(self) -> CallFormat:
        return CallFormat.of(CallWriter(self.processing_class))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of a conversation, up to where the model's turn begins; see `ChatFormat`."""
        return self._ids([_plain(message) for message in messages], tools, True)

    def following(
        self, message: Mapping[str, Any], later: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[int | None, list[int]] | None:
        """The ids that follow a turn of the model; see `ChatFormat`.

        Found as in TRL's own tool loop: render a short conversation, and cut off what the template writes up to
        the end of the model's turn.
        """
        calls = [_unfilled(call) for call in message.get("tool_calls") or ()]
        short = [
            {"role": "user", "content": "dummy"},
            {"role": "assistant", "content": "" if calls else "dummy", **({"tool_calls": calls} if calls else {})},
        ]
        key = json.dumps([calls, list(tools)], sort_keys=True)
        if key not in self._ends:
            _make_room(self._ends)
            self._ends[key] = self._up_to_end(self._ids(short, tools, False))
        before, end = self._ends[key]
        whole = self._ids([*short, *map(_plain, later)], tools, True)
        return (end, whole[len(before) :]) if whole[: len(before)] == before else None

    def _up_to_end(self, ids: list[int]) -> tuple[list[int], int | None]:
        """The ids up to the one that ends the last turn, and that id."""
        last = max((place for place, one in enumerate(ids) if one in self.end_ids), default=None)
        # With text behind it, it ended an earlier message: the template writes no end of this turn.
        if last is None or self.text(ids[last + 1 :]).strip():
            return ids, None
        return ids[: last + 1], ids[last]

    def _ids(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], generation: bool
    ) -> list[int]:
        try:
            rendered = self.processing_class.apply_chat_template(
                [list(messages)],
                tools=list(tools) or None,
                chat_template=self.chat_template,
                add_generation_prompt=generation,
                tokenize=True,
                return_dict=True,
                **self.template_settings,
            )
        except (TemplateError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise CannotRender(f"{type(error).__name__}: {error}") from error
        return list(rendered["input_ids"][0])

    def read(self, ids: Sequence[int], prefix: Sequence[int], tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """A turn as a message; see `ChatFormat`. Arguments that the format writes as bare text get their types."""
        message = read_turn(self._tokenizer, list(ids), prefix=list(prefix), tools=list(tools) or None)
        calls = message.get("tool_calls") or ()
        if calls and not self._arguments.exact:
            known = self._tools(tools)
            for function in (call["function"] for call in calls):
                if function["name"] in known and isinstance(function.get("arguments"), dict):
                    given = cast("dict[str, Any]", function["arguments"])
                    function["arguments"] = dict(self._arguments.read(known[function["name"]], given))
        return message

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, ListedTool]:
        key = json.dumps(list(tools), sort_keys=True)
        if key not in self._listed:
            _make_room(self._listed)
            functions = [tool["function"] for tool in tools]
            self._listed[key] = {
                function["name"]: ListedTool.of(
                    {
                        "name": function["name"],
                        "description": function.get("description"),
                        "inputSchema": function.get("parameters"),
                    },
                    f"tool_{place}",
                )
                for place, function in enumerate(functions)
            }
        return self._listed[key]

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def _make_room(kept: dict[str, Any]) -> None:
    """Drop the oldest entries. A model may invent any number of tool names, so the cache has to be bounded."""
    while len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as TRL's tool loop has them: calls have no ids, which some templates would show."""
    kept = {key: message[key] for key in ("role", "content", "name") if message.get(key) is not None}
    kept.setdefault("content", "")
    if calls := message.get("tool_calls"):
        kept["tool_calls"] = [{"type": "function", "function": call["function"]} for call in calls]
    return kept


def _unfilled(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": call["function"]["name"], "arguments": {}}}


def _positions(model: Any) -> int:
    """How many positions a model has."""
    config = getattr(model, "config", model)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(getattr(text, "max_position_embeddings", None) or _NO_LIMIT)


def _eos_of(model: Any) -> list[int]:
    """The ids that end a turn by the model's generation configuration, or else by its configuration."""
    for holder in (getattr(model, "generation_config", None), getattr(model, "config", model)):
        found: Any = getattr(holder, "eos_token_id", None)
        if found is not None:
            return [int(found)] if isinstance(found, int) else list(found)
    return []
