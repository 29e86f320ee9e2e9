"""Environments that can be served, and how a reference becomes one (see `envport.references`)."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic_core import to_json

from envport.blocks import prompt_of
from envport.classes import find_class
from envport.environment import Environment, TaskSource
from envport.environment_file import EnvironmentFile
from envport.errors import (
    ConfigurationError,
    EnvironmentNotFound,
    InvalidEnvironment,
    InvalidOption,
    UnknownEnvironment,
    UnknownTask,
)
from envport.given_options import OptionTypes
from envport.modules import import_module
from envport.references import ParsedReference, SchemeText, is_address
from envport.scoring import Scorer
from envport.tools.schema import ToolSpec, documentation, progress_parameter
from envport.tools.toolset import TaskTools, Toolset
from envport.tools.writable import why_unwritable
from envport.types import Task, text_prompt

__all__ = ["EnvironmentDefinition", "Scheme", "load", "schemes", "served"]

_SCHEMES = "envport.schemes"
_RESERVED = ("http", "https")
_INSPECTION_SECONDS = 300.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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
    name = str(item.get("id", f"{split}/{index}"))
    metadata = {str(key): value for key, value in item.items() if key not in ("id", "prompt")}
    try:
        prompt = prompt_of(item.get("prompt") or "")
    except ValueError as error:
        raise InvalidEnvironment(f"task {name!r} of split {split!r}: {error}") from None
    return Task(id=name, prompt=prompt, metadata=metadata)


class Scheme(Protocol):
    """What a package registers under the entry point group `envport.schemes`, by the scheme as its name.

    The definition has to name an importable class whose options are plain data, because episodes may run in other
    processes. So a scheme inspects the foreign system once, and gives what it found to the class in
    `unshown_options`. Import an extra in the module of the scheme, and raise `MissingExtra` if it is not installed.
    """

    def __call__(self, rest: str, /, **options: Any) -> EnvironmentDefinition | Awaitable[EnvironmentDefinition]:
        """Make an environment of a reference. May be async, for a costly inspection.

        Args:
            rest: The text after the colon, without quotes.
            **options: The options of the reference. A scheme declares them as keyword-only parameters with types;
                others are refused.

        Returns:
            The environment. Its name is the one to serve it under if the reference gives no other.

        Raises:
            ConfigurationError: The rest names nothing that can be served.
        """
        ...


def schemes() -> dict[str, EntryPoint]:
    """The entry points of the schemes that installed packages register, by scheme.

    Raises:
        ConfigurationError: Two packages register the same scheme.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=_SCHEMES), key=lambda point: point.name):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise ConfigurationError(
                f"two packages register the scheme {point.name!r}: {other.value} and {point.value}; remove one of them"
            )
    return found


def load(
    reference: str, name: str | None = None, score: str | None = None, options: Mapping[str, Any] | None = None
) -> EnvironmentDefinition:
    """Find an environment, and check that it can be served.

    Args:
        reference: What to load: `NAME`, `package.module:Class`, `./path/file.py:Class`, `scheme:rest` or
            `./envport.toml:name`, optionally
            with options (`catch?rows=8&columns=4`), optionally with another name to serve it under
            (`small=catch?rows=5`). See `envport.references`.
        name: The name to serve it under. Overrides the name in the reference.
        score: Function that scores final states: `package.module:function` or `./path/file.py:function`.
        options: Options as data, instead of those in the reference.

    Raises:
        EnvironmentNotFound: There is nothing at the reference.
        InvalidEnvironment: The object at the reference is not a usable environment.
        InvalidOption: An option is unknown or has a bad value.
        MissingExtra: The environment needs a package that is not installed.
    """
    parsed = ParsedReference.parse(reference)
    if is_address(parsed.target):
        raise EnvironmentNotFound(
            f"{parsed.target} is an address, and a reference is needed here; a scheme precedes an address that it is "
            "to use, as in mcp:http://host/mcp"
        )
    served = name or parsed.alias
    if served is not None:
        # Before the foreign system of a scheme is looked at.
        _require_name(served)
    if parsed.where.endswith(".toml"):
        return _by_file(parsed, served, score, options)
    known = schemes()
    if parsed.may_have_scheme and parsed.where in known and parsed.where not in _RESERVED:
        spec = _by_scheme(known[parsed.where], parsed, options)
    else:
        spec = _by_class(parsed, known, served, options)
    if served is not None and served != spec.name:
        spec = replace(spec, name=served)
    if score is not None:
        spec = replace(spec, scorer=Scorer.find(score))
    _require_name(spec.name)
    spec.check()
    return spec


def _by_file(
    parsed: ParsedReference, served: str | None, score: str | None, options: Mapping[str, Any] | None
) -> EnvironmentDefinition:
    target, query = parsed.plain()
    path, _, name = target.partition(":")
    if query or options is not None:
        raise InvalidOption(f"the options of {name!r} are in {path}: give none in the reference")
    table = EnvironmentFile.read(Path(path)).environment(name)
    spec = load(table.reference, served or name, score or table.score, table.options)
    return replace(spec, limits=table.limits, secrets=table.secrets)


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot name an environment: use letters, digits, '.', '_' and '-', at most 64 of them; "
            "another name can precede the reference: NAME=REFERENCE"
        )


def _by_class(
    parsed: ParsedReference, known: Mapping[str, Any], served: str | None, given: Mapping[str, Any] | None
) -> EnvironmentDefinition:
    target, query = parsed.plain()
    if parsed.may_have_scheme and not parsed.target.partition(":")[2].partition("?")[0].isidentifier():
        raise EnvironmentNotFound(
            f"there is no scheme {parsed.where!r}; installed: {', '.join(known) or 'none'}; install the package that "
            "registers it, or give NAME, package.module:Class or ./path/file.py:Class"
        )
    try:
        cls, default_name = find_class(target)
    except EnvironmentNotFound as error:
        if parsed.may_have_scheme and str(error) == f"there is no module {parsed.where!r}":
            raise EnvironmentNotFound(f"{error}, and no scheme; installed: {', '.join(known) or 'none'}") from None
        raise
    name = served or default_name
    types = OptionTypes.of_class(f"environment {name!r}", cls)
    options = _options(types, query, given)
    types.require(options, name)
    return EnvironmentDefinition(name, cls, options)


def _by_scheme(point: EntryPoint, parsed: ParsedReference, given: Mapping[str, Any] | None) -> EnvironmentDefinition:
    scheme: Any = import_module(point.module)
    for part in point.attr.split("."):
        scheme = getattr(scheme, part)
    types = OptionTypes.of_function(f"scheme {point.name!r}", scheme)
    text = SchemeText.read(point.name, parsed.target.partition(":")[2], types.hints)
    _refuse_ambiguity(point.name, text)
    options = _options(types, text.query, given)
    types.require(options, f'{point.name}:"..."')
    made = _awaited(cast("Scheme", scheme)(text.rest, **options), point.name)
    if not isinstance(made, EnvironmentDefinition):
        raise InvalidEnvironment(f"scheme {point.name!r} gave {made!r}, not an EnvironmentDefinition")
    return made


def _options(types: OptionTypes, query: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None:
        return types.from_text(query)
    if query:
        raise InvalidOption(f"{types.whose}: its options are given twice, after a question mark and as data")
    return types.from_data(given)


def _refuse_ambiguity(scheme: str, text: SchemeText) -> None:
    """Refuse `scheme:Class` if a module of that name defines the class. Does not import the module."""
    if text.quoted or not text.rest.isidentifier():
        return
    found = importlib.util.find_spec(scheme)
    source = Path(found.origin) if found is not None and found.origin else None
    if source is None or source.suffix != ".py":
        return
    if re.search(rf"^class {text.rest}\b", source.read_text("utf-8", "replace"), re.MULTILINE):
        raise InvalidOption(
            f"{scheme}:{text.rest} is both the scheme {scheme!r} and a class of the module {scheme!r}: write "
            f'{scheme}:"{text.rest}" for the scheme, and {source}:{text.rest} for the class'
        )


def _awaited(made: Any, scheme: str) -> Any:
    """The result of a scheme. If it is awaitable, waits for it in an event loop of its own."""
    if not inspect.isawaitable(made):
        return made
    try:
        return _run(lambda: asyncio.run(_in_time(made)))
    except TimeoutError:
        raise ConfigurationError(
            f"scheme {scheme!r} did not make an environment within {_INSPECTION_SECONDS:g} s"
        ) from None


async def _in_time(made: Awaitable[Any]) -> Any:
    async with asyncio.timeout(_INSPECTION_SECONDS):
        return await made


def _run(work: Callable[[], Any]) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    # The caller runs an event loop, in which no other can run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()
