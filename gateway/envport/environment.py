"""The authoring API: an environment is a class, its tools are its typed methods."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, get_args, overload

from envport.errors import InvalidEnvironment
from envport.types import Task

__all__ = [
    "Environment",
    "Progress",
    "RuntimeKind",
    "TaskSource",
    "ToolDefinition",
    "ToolHints",
    "tool",
    "tool_hints",
]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

TaskSource = Sequence[Task | Mapping[str, Any]]
"""The tasks of a split: anything with `len()` and `[index]`, such as a list or a `datasets.Dataset`.

An item is a `Task`, or a mapping whose `id` and `prompt` are used if it has them and whose other keys become
the task's metadata.
"""

RuntimeKind = Literal["inline", "thread", "process"]
"""How environments are run: in the gateway's event loop, in its threads, or each episode in a process of its own."""

_TOOL_MARK = "__envport_tool__"


class Progress(Protocol):
    """What a tool calls to report how far it is; a parameter of this type is filled in by the gateway."""

    def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the player, if the player's client asked for it.

        Args:
            progress: How much is done; has to grow from call to call.
            total: How much there is to do, if known.
            message: What is being done.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolHints:
    """What `@tool` was told: the tool's shown name and MCP's behavioural hints, `None` where unsaid.

    Attributes:
        name: Name of the tool; the method's name unless given.
        title: Name for people to read.
        read_only: Calling it changes nothing in the episode.
        destructive: It may undo or destroy what was there.
        idempotent: Calling it again with the same arguments changes nothing more.
        open_world: It reaches things outside the environment.
    """

    name: str | None = None
    title: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def annotations(self) -> dict[str, bool]:
        """MCP's `ToolAnnotations`, holding only what was said."""
        said = {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }
        return {key: value for key, value in said.items() if value is not None}


@overload
def tool(function: FunctionT, /) -> FunctionT: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Callable[[FunctionT], FunctionT]: ...
def tool(function: Callable[..., Any] | None = None, /, **hints: Any) -> Any:
    """Mark a method as a tool of its environment.

    The arguments' JSON Schema comes from the type hints, the description from the docstring, the description
    of each argument from the docstring's `Args:` section or from `Annotated[..., Field(description=...)]`.

    Args:
        function: The method, where the decorator is used without parentheses.
        **hints: The fields of `ToolHints`.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _TOOL_MARK, ToolHints(**hints))
        return function

    return mark if function is None else mark(function)


def tool_hints(member: object) -> ToolHints | None:
    """The hints of a method marked with `@tool`, `None` for anything else."""
    hints = getattr(member, _TOOL_MARK, None)
    return hints if isinstance(hints, ToolHints) else None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that is known only when the environment is made: a foreign server's, or a game's legal moves.

    Attributes:
        name: Name of the tool.
        input_schema: JSON Schema 2020-12 of the arguments, shown exactly as it is and checked before each call.
        method: Name of the environment's method that is called, as `method(name, arguments)`.
        description: What the tool does.
        output_schema: JSON Schema of the structured result, if it has one.
        hints: Title and behavioural hints.
    """

    name: str
    input_schema: Mapping[str, Any]
    method: str
    description: str = ""
    output_schema: Mapping[str, Any] | None = None
    hints: ToolHints = ToolHints()


class Environment:
    """Base class of environments. An instance plays one episode.

    The constructor's keyword parameters are the environment's options (`catch?rows=8`): typed, with defaults,
    cheap. One instance is made when serving starts, to read tools and tasks from; every episode gets its own.

    Attributes:
        version: Version of the environment's behaviour; raise it when results stop being comparable.
        reward: Whether the episode's reward is the sum of the steps' rewards or the last one.
        runtime: How it is run unless whoever serves it says otherwise: `inline` (cheap and never blocking),
            `thread` (may block), or `process` (may burn CPU, crash, hang or leak: every episode is a process).
        sandbox: Its processes see no network and cannot write outside a `/tmp` of their own (bubblewrap); for
            `process` only.
        max_episodes: Episodes of it that may be live at once, such as the seats of what it drives; `None` for no limit
            of its own. Whoever serves it may say otherwise.
        max_steps: Tool calls after which an episode is truncated, `None` for no limit.
        max_seconds: Seconds after its reset at which an episode is truncated, `None` for no limit.
        call_seconds: Seconds that a tool call may take, `None` for no limit. Only `process` can stop a tool that
            is not async: `thread` leaves it behind in its thread, `inline` has to wait for it.
        reset_seconds: The same for making and resetting the environment.
        close_seconds: Seconds that `close` may take. It is then given up: `process` ends the process, an async `close`
            is cancelled, a thread is left behind. A blocking `close` that runs `inline` cannot be stopped.
        memory_mb: Memory in MiB that an episode may take beside what all of them share, `None` for no limit;
            watched during calls, for `process` only.
        rng: Seeded anew from the episode's seed before `reset` is called.
    """

    version: ClassVar[str] = "1"
    reward: ClassVar[Literal["sum", "last"]] = "sum"
    runtime: ClassVar[RuntimeKind] = "inline"
    sandbox: ClassVar[bool] = False
    max_episodes: ClassVar[int | None] = None
    max_steps: int | None = None
    max_seconds: float | None = None
    call_seconds: float | None = 600.0
    reset_seconds: float | None = 600.0
    close_seconds: float | None = 5.0
    memory_mb: float | None = None
    rng: random.Random

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        allowed = {"reward": ("sum", "last"), "runtime": get_args(RuntimeKind)}
        for attribute, values in allowed.items():
            if (value := getattr(cls, attribute)) not in values:
                raise InvalidEnvironment(
                    f"{cls.__qualname__}.{attribute} is {value!r}; allowed: {', '.join(map(repr, values))}"
                )
        if cls.max_episodes is not None and (type(cls.max_episodes) is not int or cls.max_episodes < 1):
            raise InvalidEnvironment(
                f"{cls.__qualname__}.max_episodes is {cls.max_episodes!r}; allowed: a whole number from 1, or None"
            )
        if cls.sandbox and cls.runtime != "process":
            raise InvalidEnvironment(f"{cls.__qualname__}.sandbox needs runtime = 'process'")
        _check_reset(cls)

    def reset(self, *, seed: int, task: Task | None) -> Any:
        """Start the episode and return the first observation. May be async.

        The same task and seed have to give the same episode: draw from `self.rng`, or seed from `seed`.

        Args:
            seed: The episode's seed, at least 0 and below 2**63.
            task: The task to play, `None` if the environment has none.
        """
        raise NotImplementedError

    def close(self) -> Any:
        """Release what the episode holds. Called once, also after a failed `reset`. May be async."""

    def splits(self) -> Mapping[str, TaskSource]:
        """The environment's tasks by split. Read by index, never copied; none by default."""
        return {}

    def tool_definitions(self) -> Sequence[ToolDefinition]:
        """Tools beside those marked with `@tool`, for environments that learn them when they are made."""
        return ()


def _check_reset(cls: type[Environment]) -> None:
    parameters = inspect.signature(cls.reset).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    missing = [name for name in ("seed", "task") if name not in parameters and not takes_any]
    if missing:
        raise InvalidEnvironment(
            f"{cls.__qualname__}.reset has to take {' and '.join(missing)}: "
            "def reset(self, *, seed: int, task: Task | None)"
        )
