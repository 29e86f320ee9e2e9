"""An environment that can be served: its class with its options, and what is derived from them."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import to_json

from envport.blocks import prompt_of
from envport.environment import Environment, TaskSource
from envport.errors import ConfigurationError, InvalidEnvironment, InvalidOption, UnknownEnvironment, UnknownTask
from envport.scoring import Scorer
from envport.source import source_fingerprint
from envport.tools.schema import ToolSpec, documentation, progress_parameter
from envport.tools.toolset import TaskTools, Toolset
from envport.tools.writable import why_unwritable
from envport.types import Task, text_prompt

__all__ = ["EnvironmentDefinition", "served"]


@dataclass(frozen=True)
class EnvironmentDefinition:
    """An environment that can be served: its class, its options, and cached data that is derived from them.

    Attributes:
        name: The name under which it is served.
        cls: The class.
        options: The constructor's keyword arguments, validated. Clients of the control plane see them.
        unshown_options: Further keyword arguments, which nobody sees, such as what a scheme found out about a foreign
            system.
        limits: Limits that replace those of the class, such as `max_steps`, by attribute.
        secrets: Secrets of every episode, by name. An episode may be given others.
        scorer: Scores final states in place of the environment's own `score`; `None` if nothing from outside does.
    """

    name: str
    cls: type[Environment]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unshown_options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    scorer: Scorer | None = None

    def make(self) -> Environment:
        """A new instance, for one episode."""
        made = self.cls(**self.options, **self.unshown_options)
        vars(made).update(self.limits)
        return made

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
    def toolset(self) -> Toolset:
        """The tools that it declares. Those of a task may be others; see `toolset_for`."""
        try:
            return Toolset.declared(self.prototype)
        except InvalidEnvironment as error:
            raise InvalidEnvironment(f"environment {self.name!r}: {error}") from None

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """The declared tools by name, in order."""
        return self.toolset.tools

    @property
    def listing(self) -> list[dict[str, Any]]:
        """The declared tools as `tools/list` shows them on an episode's URL. Do not modify it."""
        return self.toolset.listing

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the listing of the declared tools in canonical JSON."""
        return self.toolset.fingerprint

    @cached_property
    def source_fingerprint(self) -> str | None:
        """SHA-256 of the source of the environment and of its scorer; `None` if it has no source."""
        return source_fingerprint(self.cls, *([self.scorer.function] if self.scorer is not None else []))

    @cached_property
    def options_fingerprint(self) -> str:
        """SHA-256 of the options and the limits."""
        return hashlib.sha256(to_json([dict(self.options), dict(self.limits)], fallback=repr)).hexdigest()

    @property
    def tools_vary(self) -> bool:
        """Whether tasks may have tools of their own."""
        return self.cls.tools_for is not Environment.tools_for

    def toolset_for(self, task: Task | None) -> Toolset:
        """The tools of an episode with this task, which are those that it lists.

        Raises:
            InvalidEnvironment: The environment's `tools_for` fails, or returns what it must not.
            InvalidRequest: The environment refuses the task.
        """
        return self._task_tools.of(task) if task is not None and self.tools_vary else self.toolset

    @cached_property
    def _task_tools(self) -> TaskTools:
        return TaskTools(self.prototype, self.toolset)

    @cached_property
    def scored(self) -> bool:
        """Whether the final state of an episode is scored."""
        return self.scorer is not None or self.cls.score is not Environment.score

    @property
    def has_snapshots(self) -> bool:
        """Whether the state of an episode can be copied."""
        return self.cls.snapshot is not Environment.snapshot

    @property
    def deterministic(self) -> bool:
        """Whether the same task, seed and calls give the same episode."""
        return self.prototype.deterministic

    @cached_property
    def progress_tools(self) -> frozenset[str] | None:
        """The names of the tools that may report progress; `None` if any may, because tasks have tools of their own."""
        if self.tools_vary and any(progress_parameter(getattr(self.cls, name, None)) for name in dir(self.cls)):
            return None
        return frozenset(tool.name for tool in self.tools.values() if tool.progress is not None)

    @cached_property
    def is_async(self) -> bool:
        """Whether any method of the class that the runtime calls is a coroutine function."""
        methods = {
            "reset",
            "score",
            "final_state",
            "snapshot",
            "restore",
            "legal_calls",
            "close",
            *(tool.method for tool in self.tools.values()),
        }
        if self.tools_vary:
            # A task may have a tool of its own, with any method.
            methods.update(dir(self.cls))
        return any(inspect.iscoroutinefunction(getattr(self.cls, method, None)) for method in methods)

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
        """What the player of a task is told to do; empty if the first observation says it, with images."""
        return text_prompt(task, self.instructions)

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
            InvalidEnvironment: `reset` is missing, or the tools, the splits or the description break the authoring
                contract.
            InvalidOption: An option cannot be shown.
        """
        if self.cls.reset is Environment.reset:
            raise InvalidEnvironment(
                f"environment {self.name!r}: {self.cls.__qualname__} has no reset(), which begins an episode: write "
                "def reset(self, *, seed: int, task: Task | None)"
            )
        # The source is read now, because its files may be edited while this process goes on with the old code.
        _ = self.listing, self.splits, self.source_fingerprint
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
        try:
            item = source[index]
        except SystemExit as error:
            # It would end the gateway.
            raise RuntimeError(
                f"task {index} of split {split!r} of {self.name!r} raised SystemExit: {error}"
            ) from error
        return _as_task(item, split, index)

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
    name = str(item.get("id", f"{split}/{index}"))
    metadata = {str(key): value for key, value in item.items() if key not in ("id", "prompt")}
    try:
        prompt = prompt_of(item.get("prompt") or "")
    except ValueError as error:
        raise InvalidEnvironment(f"task {name!r} of split {split!r}: {error}") from None
    try:
        return Task(id=name, prompt=prompt, metadata=metadata)
    except ValidationError as error:
        raise InvalidEnvironment(
            f"task {name!a} of split {split!r}: {error.errors(include_url=False)[0]['msg']}"
        ) from None
