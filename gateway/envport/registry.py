"""Finds environments: by entry point, by `package.module:Class`, or by `./path/file.py:Class`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, cast, get_type_hints
from urllib.parse import parse_qsl

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from envport.environment import Environment, TaskSource
from envport.errors import (
    ConfigurationError,
    EnvironmentNotFound,
    InvalidEnvironment,
    InvalidOption,
    UnknownEnvironment,
    UnknownTask,
)
from envport.modules import import_module, module_at
from envport.scoring import Scorer
from envport.tools.allowed import describe_allowed
from envport.tools.schema import ToolSpec, documentation, fingerprint, tools_of
from envport.tools.writable import why_unwritable
from envport.types import Task

__all__ = ["GROUP", "EnvironmentDefinition", "installed", "load", "served"]

GROUP = "envport.environments"
"""The entry point group in which packages register their environments."""

START_EPISODE = "start_episode"
EPISODE_ID = "episode_id"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class EnvironmentDefinition:
    """An environment that can be served: its class, its options, and cached data that is derived from them.

    Attributes:
        name: The name under which it is served.
        cls: The class.
        options: The constructor's keyword arguments, validated.
        scorer: Scores final states in place of the environment's own `score`; `None` if nothing from outside does.
    """

    name: str
    cls: type[Environment]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scorer: Scorer | None = None

    def make(self) -> Environment:
        """A new instance, for one episode."""
        return self.cls(**self.options)

    @cached_property
    def prototype(self) -> Environment:
        """The instance that tools and tasks are read from. It never plays an episode."""
        try:
            return self.make()
        except ConfigurationError:
            raise
        except (TypeError, ValueError) as error:
            raise InvalidOption(f"environment {self.name!r} cannot be made: {error}") from error

    @cached_property
    def tools(self) -> dict[str, ToolSpec]:
        """Its tools by name, in order."""
        tools = tools_of(self.prototype)
        for spec in tools.values():
            if spec.name == START_EPISODE or EPISODE_ID in spec.input_schema["properties"]:
                raise InvalidEnvironment(
                    f"environment {self.name!r}: the tool name {START_EPISODE!r} and the argument name "
                    f"{EPISODE_ID!r} are the gateway's; rename them in tool {spec.name!r}"
                )
        return tools

    @cached_property
    def listing(self) -> list[dict[str, Any]]:
        """The tools as `tools/list` shows them on an episode's URL. Do not modify it."""
        return [spec.listing for spec in self.tools.values()]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the listing in canonical JSON."""
        return fingerprint(self.listing)

    @cached_property
    def scored(self) -> bool:
        """Whether the final state of an episode is scored."""
        return self.scorer is not None or self.cls.score is not Environment.score

    @cached_property
    def description(self) -> str:
        """What people read about the environment: the docstring of the class, without its sections."""
        return documentation(self.cls)[0] if self.cls.__doc__ else ""

    @cached_property
    def instructions(self) -> str:
        """What a player is told to do where the task has no prompt of its own.

        Raises:
            InvalidEnvironment: The environment's `instructions` are not text.
        """
        own: Any = self.prototype.instructions
        if own is None:
            return self.description
        if not isinstance(own, str):
            raise InvalidEnvironment(
                f"environment {self.name!r}: instructions is a {type(own).__name__}; it has to be text for the player, "
                "or None. If it is a tool, rename the method and mark it with @tool(name='instructions')"
            )
        return inspect.cleandoc(own)

    def prompt(self, task: Task | None) -> str:
        """What the player of a task is told to do."""
        return task.prompt if task is not None and task.prompt else self.instructions

    @cached_property
    def splits(self) -> Mapping[str, TaskSource]:
        """The environment's tasks by split.

        Raises:
            InvalidEnvironment: `splits()` returns something else.
        """
        return _checked_splits(self.prototype.splits(), f"environment {self.name!r}: splits()")

    def check(self) -> None:
        """Check everything that a gateway shows of the environment, so that mistakes are reported at start-up.

        Raises:
            InvalidEnvironment: The tools, the splits or the description break the authoring contract.
            InvalidOption: An option cannot be shown.
        """
        _ = self.listing, self.splits
        for what, text in (("docstring", self.description), ("instructions", self.instructions)):
            if (why := why_unwritable(text)) is not None:
                raise InvalidEnvironment(f"environment {self.name!r}: its {what} cannot be shown: {why}")
        for key, value in self.options.items():
            try:
                to_json(value)
            except ValueError as error:
                raise InvalidOption(f"environment {self.name!r}: option {key!r} cannot be shown: {error}") from None

    def num_tasks(self, split: str) -> int:
        """The number of tasks in a split.

        Raises:
            UnknownTask: There is no such split.
        """
        return len(self._source(split))

    def task(self, split: str, index: int) -> Task:
        """The task with this index.

        Raises:
            UnknownTask: There is no such split or index.
        """
        source = self._source(split)
        if not len(source):
            raise UnknownTask(f"split {split!r} of {self.name!r} has no tasks")
        if not 0 <= index < len(source):
            raise UnknownTask(f"split {split!r} of {self.name!r} has no task {index}; allowed: 0 to {len(source) - 1}")
        return _as_task(source[index], split, index)

    def _source(self, split: str) -> TaskSource:
        try:
            return self.splits[split]
        except KeyError:
            known = ", ".join(map(repr, self.splits)) or "none"
            raise UnknownTask(f"environment {self.name!r} has no split {split!r}; its splits are: {known}") from None

    @property
    def default_split(self) -> str | None:
        """The split that is used if none is named: the first one. `None` if there are no splits."""
        return next(iter(self.splits), None)


def served(environments: Mapping[str, EnvironmentDefinition], name: str) -> EnvironmentDefinition:
    """Find an environment by its name.

    Raises:
        UnknownEnvironment: It is not served.
    """
    try:
        return environments[name]
    except KeyError:
        names = ", ".join(map(repr, environments)) or "none"
        raise UnknownEnvironment(f"there is no environment {name!r} here; served: {names}") from None


def _checked_splits(splits: Any, where: str) -> Mapping[str, TaskSource]:
    if not isinstance(splits, Mapping):
        raise InvalidEnvironment(
            f"{where} returned a {type(splits).__name__}; it has to return a mapping from the name of each split to "
            'its tasks, such as {"train": tasks}'
        )
    for name, source in cast("Mapping[Any, Any]", splits).items():
        if not isinstance(name, str) or not name or why_unwritable(name) is not None:
            raise InvalidEnvironment(f"{where}: {name!r} cannot name a split; use a text that is not empty")
        kind = type(source).__name__
        indexed = hasattr(source, "__len__") and hasattr(source, "__getitem__")
        if not indexed or isinstance(source, str | bytes | Mapping):
            raise InvalidEnvironment(
                f"{where}: split {name!r} is a {kind}; it has to have len() and [index], such as a "
                "list of tasks or a datasets.Dataset"
            )
    return cast("Mapping[str, TaskSource]", splits)


def _as_task(item: Task | Mapping[str, Any], split: str, index: int) -> Task:
    if isinstance(item, Task):
        return item
    if not isinstance(item, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidEnvironment(
            f"task {index} of split {split!r} is a {type(item).__name__}; it has to be a Task or a mapping"
        )
    metadata = {str(key): value for key, value in item.items() if key not in ("id", "prompt")}
    return Task(id=str(item.get("id", f"{split}/{index}")), prompt=str(item.get("prompt") or ""), metadata=metadata)


def installed() -> dict[str, EntryPoint]:
    """The entry points of the environments that installed packages register, by name."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def load(reference: str, name: str | None = None, score: str | None = None) -> EnvironmentDefinition:
    """Find an environment, and check that it can be served.

    Args:
        reference: `NAME`, `package.module:Class` or `./path/file.py:Class`, optionally with options
            (`catch?rows=8&columns=4`), optionally with another name to serve it under (`small=catch?rows=5`).
        name: The name to serve it under. Overrides the name in the reference.
        score: Function that scores final states: `package.module:function` or `./path/file.py:function`.

    Raises:
        EnvironmentNotFound: There is nothing at the reference.
        InvalidEnvironment: The object at the reference is not a usable environment.
        InvalidOption: An option is unknown or has a bad value.
        MissingExtra: The environment needs a package that is not installed.
    """
    alias, target, query = _split_reference(reference)
    cls, default_name = _resolve(target)
    served = name or alias or default_name
    if not _NAME.fullmatch(served):
        raise ConfigurationError(
            f"{served!r} cannot name an environment: use letters, digits, '.', '_' and '-', at most 64 of them"
        )
    scorer = Scorer.find(score) if score is not None else None
    spec = EnvironmentDefinition(served, cls, _options(cls, served, query), scorer)
    spec.check()
    return spec


def _split_reference(reference: str) -> tuple[str | None, str, str]:
    head, _, query = reference.partition("?")
    alias, equals, target = head.partition("=")
    return (alias, target, query) if equals else (None, head, query)


def _resolve(target: str) -> tuple[type[Environment], str]:
    if ":" not in target:
        points = installed()
        if target not in points:
            raise EnvironmentNotFound(
                f"there is no environment {target!r}; installed: {', '.join(points) or 'none'}; "
                "or give package.module:Class or ./path/file.py:Class"
            )
        point = points[target]
        return _class(import_module(point.module), point.attr, point.value), target
    where, _, attribute = target.rpartition(":")
    module = module_at(where)
    cls = _class(module, attribute, target)
    return cls, _snake(cls.__name__)


def _class(module: ModuleType, attribute: str, target: str) -> type[Environment]:
    found = getattr(module, attribute, None)
    if found is None:
        candidates = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Environment) and value.__module__ == module.__name__
        ]
        raise EnvironmentNotFound(
            f"{target}: there is no {attribute!r}; environments there: {', '.join(candidates) or 'none'}"
        )
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise InvalidEnvironment(f"{target} is not a subclass of envport.Environment")
    return found


def _snake(name: str) -> str:
    stem = name.removesuffix("Environment").removesuffix("Env") or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()


def _options(cls: type[Environment], name: str, query: str) -> dict[str, Any]:
    """Parse and check constructor options.

    The text of an option is converted to the parameter's type in pydantic's lax mode, as on a command line.
    """
    parameters = {
        key: parameter
        for key, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    hints = get_type_hints(cls.__init__, include_extras=True)
    known = {key: hints.get(key, str) for key in parameters}
    options: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            allowed = ", ".join(f"{key} ({_allowed(hint)})" for key, hint in known.items()) or "none"
            raise InvalidOption(f"environment {name!r} has no option {key!r}; its options are: {allowed}")
        if key in options:
            raise InvalidOption(f"environment {name!r}: option {key!r} is given twice")
        options[key] = _parse(known[key], text, f"environment {name!r}: option {key!r}")
    missing = [
        key for key, parameter in parameters.items() if parameter.default is parameter.empty and key not in options
    ]
    if missing:
        raise InvalidOption(f"environment {name!r} needs the options {', '.join(missing)}: {name}?{missing[0]}=...")
    return options


def _parse(hint: Any, text: str, where: str) -> Any:
    adapter = _adapter(hint)
    try:
        return adapter.validate_strings(text)
    except ValidationError:
        pass
    try:
        # Lists and nested values are written as JSON.
        return adapter.validate_json(text)
    except ValidationError:
        raise InvalidOption(f"{where} is {text!r}; it has to be {_allowed(hint)}") from None


def _adapter(hint: Any) -> TypeAdapter[Any]:
    # A model, dataclass or TypedDict has its own configuration, and accepts no other.
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:
        return TypeAdapter(hint)


def _allowed(hint: Any) -> str:
    try:
        schema = _adapter(hint).json_schema()
    except PydanticUserError:
        return str(getattr(hint, "__name__", hint))
    return describe_allowed(schema, schema)
