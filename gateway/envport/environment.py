"""The authoring API: an environment is a class, and its tools are typed methods."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, cast, get_args, overload

from envport.class_checks import check_class
from envport.errors import InvalidEnvironment
from envport.player_code import PlayerCode
from envport.types import LegalCall, Task

__all__ = [
    "Environment",
    "Progress",
    "RuntimeKind",
    "Solution",
    "TaskSource",
    "ToolDefinition",
    "ToolHints",
    "seed_generator",
    "tool",
    "tool_hints",
]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

TaskSource = Sequence[Task | Mapping[str, Any]]
"""The tasks of a split: anything with `len()` and `[index]`, such as a list or a `datasets.Dataset`.

An item is a `Task` or a mapping. The keys `id` and `prompt` of a mapping are optional. Its other keys become the
task's metadata.
"""

RuntimeKind = Literal["inline", "thread", "process"]
"""How environments are run: in the gateway's event loop, in its threads, or in one process for each episode."""

_TOOL_MARK = "__envport_tool__"

_CALLED_BY_GATEWAY = {
    "score": "at the end of an episode",
    "final_state": "at the end of an episode",
    "snapshot": "to copy the state of an episode",
    "restore": "to put the state of an episode back",
}


class Progress(Protocol):
    """A tool calls this to report its progress. The gateway passes it to a parameter of this type."""

    def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the player, if the player's client asked for it.

        Args:
            progress: How much is done. Has to increase with every report.
            total: How much there is to do, if known.
            message: What the tool is doing.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolHints:
    """The arguments of `@tool`: the tool's name and title, and MCP's behavioural hints. `None` if not given.

    Attributes:
        name: Name of the tool; the method's name if not given.
        title: Name for people to read.
        read_only: Whether a call changes nothing in the episode.
        destructive: Whether a call may undo or destroy something.
        idempotent: Whether a second call with the same arguments changes nothing more.
        open_world: Whether the tool reaches things outside the environment.
    """

    name: str | None = None
    title: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def annotations(self) -> dict[str, bool]:
        """MCP's `ToolAnnotations`, with only the hints that were given."""
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

    The JSON Schema of the arguments comes from the type hints. The description comes from the docstring. The
    description of each argument comes from the docstring's `Args:` section, or from
    `Annotated[..., Field(description=...)]`.

    Args:
        function: The method, if the decorator is used without parentheses.
        **hints: The fields of `ToolHints`.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _TOOL_MARK, ToolHints(**hints))
        return function

    return mark if function is None else mark(function)


def tool_hints(member: object) -> ToolHints | None:
    """The hints of a method marked with `@tool`; `None` for anything else."""
    hints = getattr(member, _TOOL_MARK, None)
    return hints if isinstance(hints, ToolHints) else None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that is known only when the environment is created, such as a foreign server's or a game's legal moves.

    Attributes:
        name: Name of the tool.
        input_schema: JSON Schema 2020-12 of the arguments. It is shown unchanged, and checked before each call.
        method: Name of the environment's method that implements it, called as `method(name, arguments)`. If it has a
            further parameter of type `Progress`, it gets that too.
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


@dataclass(frozen=True, slots=True)
class Solution:
    """A reference solution of a task.

    Attributes:
        calls: Calls from the first observation on, as pairs of a tool's name and arguments.
        reward: What an episode with these calls earns.
        idle: What an episode without any call earns.
    """

    calls: Sequence[LegalCall]
    reward: float = 1.0
    idle: float = 0.0


class _Undeclared:
    """Stands where an instance has no `player_code`, and says why."""

    def __get__(self, instance: Environment | None, owner: type[Environment]) -> Self:
        if instance is None:
            return self
        how = "it is there from reset on" if owner.runs_player_code else "set runs_player_code = True in the class"
        raise InvalidEnvironment(f"{owner.__qualname__} has no player_code: {how}")


class Environment:
    """Base class of environments. An instance plays one episode.

    If any method is async, everything from `reset` to `close` runs in one asyncio task of the episode. So a task group
    or another async context manager may be entered in `reset` and left in `close`.

    The constructor's keyword parameters are the environment's options (`catch?rows=8`). They need type hints and
    defaults, and the constructor has to be cheap. One instance is created when serving starts, to read tools and
    tasks from. Every episode gets a new instance.

    Attributes:
        version: Version of the environment's behaviour. Raise it when results are no longer comparable.
        instructions: What a player is told to do where the task has no prompt of its own. If `None`, it is the class's
            docstring without its sections.
        reward: Whether the episode's reward is the sum of the steps' rewards or the last one.
        reward_floor: The most that play without skill earns on average, such as by luck; `None` if that is to be
            measured. This and the next two are for `envport audit`.
        reward_ceiling: What perfect play earns; `None` if that is not known.
        stalling: Why a player that stops early may earn more than one that loses; `None` if it may not.
        deterministic: Whether the same task, seed and calls give the same observations, rewards and end, in any process
            and at any time. The gateway may then play the calls of an episode again, to fork it or to go on with it
            after a restart. `envport check` finds a declaration that is wrong.
        runtime: How the environment is run, unless the gateway's settings override it: `inline` (cheap and never
            blocking, or async), `thread` (may block), or `process` (one process for each episode, for code that may use
            much CPU time, crash, hang or leak memory).
        remote_tasks: Whether reading a task of `splits()` may wait for another system, such as a server. The gateway
            then reads tasks in a thread. `tools_for` has to be quick all the same.
        own_thread: Whether all sync methods of an instance, from the constructor to `close`, run in one thread that no
            other episode uses, as connections of sqlite and Playwright's sync API need it. For `thread` only; in a
            process of its own, it is always so.
        sandbox: Whether each episode runs in a sandbox of its own, without network, in which it sees the interpreter,
            the installed packages and what `sandbox_paths` and `sandbox_variables` name, and can write only to its
            own `/tmp` and `/dev/shm`. For `process` only.
        sandbox_paths: Files and folders that sandboxed episodes may read. A relative path begins at the folder of the
            class's file, and `~` is the gateway's home.
        sandbox_variables: Names of the gateway's environment variables that sandboxed episodes see.
        runs_player_code: Whether it runs code that the player gives it. It then has `player_code`, and is refused at
            the start where this machine cannot run such code. For `thread` and `process` only.
        player_code: Runs code of the player in a sandbox that reaches neither the environment nor the gateway.
        max_episodes: Maximum number of live episodes, for example because a system that it uses has few seats. `None`
            for no limit of its own. The gateway's settings may override it.
        max_steps: An episode is truncated after this many tool calls; `None` for no limit.
        max_seconds: An episode is truncated this many seconds after its reset; `None` for no limit.
        call_seconds: Seconds that a tool call may take; `None` for no limit. Only `process` can stop a tool that
            is not async. `thread` leaves it running in its thread, and `inline` has to wait for it. An async tool is
            cancelled; one that ignores that is left running in the event loop. The episode has ended in each case.
        reset_seconds: The same for creating and resetting the environment.
        score_seconds: Seconds that `score`, or the function of `envport serve --score`, may take. The same holds for
            `final_state`.
        close_seconds: Seconds that `close` may take. After this, `process` ends the process, an async `close` is
            cancelled, and a thread is left running. A blocking `close` that runs `inline` cannot be stopped.
        memory_mb: Memory in MiB that an episode may use, without the memory that all episodes share; `None` for no
            limit. This and the following limits hold for `process` only, for all processes that the episode starts,
            during calls and between them.
        cpu_seconds: Seconds of CPU time that an episode may use; `None` for no limit.
        max_processes: Processes and threads that an episode may have; `None` for 512 in a sandbox, and for no limit
            elsewhere.
        disk_mb: MiB that a sandboxed episode may write to `/tmp` and `/dev/shm` together.
        prepared: What `prepare` yielded, from `reset` on. Do not modify it: other episodes have the same.
        secrets: Secrets by name, such as keys of a system that the environment uses: those of its `envport.toml`, and
            those that the episode was opened with. Set before `reset`; `prepare` has those of the file. They are
            recorded, logged and shown nowhere, except where the environment itself returns or prints them.
    """

    version: ClassVar[str] = "1"
    instructions: str | None = None
    reward: ClassVar[Literal["sum", "last"]] = "sum"
    reward_floor: float | None = None
    reward_ceiling: float | None = None
    stalling: str | None = None
    deterministic: bool = False
    runtime: ClassVar[RuntimeKind] = "inline"
    sandbox: ClassVar[bool] = False
    remote_tasks: ClassVar[bool] = False
    own_thread: ClassVar[bool] = False
    sandbox_paths: ClassVar[Sequence[str | os.PathLike[str]]] = ()
    sandbox_variables: ClassVar[Sequence[str]] = ()
    runs_player_code: ClassVar[bool] = False
    max_episodes: int | None = None
    max_steps: int | None = None
    max_seconds: float | None = None
    call_seconds: float | None = 600.0
    reset_seconds: float | None = 600.0
    score_seconds: float | None = 600.0
    close_seconds: float | None = 5.0
    memory_mb: float | None = None
    cpu_seconds: float | None = None
    max_processes: int | None = None
    disk_mb: float = 256.0
    prepared: Any = None
    player_code = cast("PlayerCode", _Undeclared())
    secrets: Mapping[str, str] = MappingProxyType({})
    _envport_seed: int | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_class(cls, {"reward": ("sum", "last"), "runtime": get_args(RuntimeKind)})
        for method, when in _CALLED_BY_GATEWAY.items():
            if tool_hints(getattr(cls, method)) is not None:
                raise InvalidEnvironment(
                    f"{cls.__qualname__}.{method} is a tool, but the gateway calls {method}() {when}: give the method "
                    f'another name, and the tool its name: @tool(name="{method}")'
                )
        if (cls.snapshot is Environment.snapshot) != (cls.restore is Environment.restore):
            raise InvalidEnvironment(f"{cls.__qualname__} has only one of snapshot() and restore(): it needs both")

    @cached_property
    def rng(self) -> random.Random:
        """Random generator, seeded from the episode's seed. It is there from the call of `reset` on."""
        # Made when it is first used: it takes 2.5 kB, and many environments draw nothing.
        if self._envport_seed is None:
            raise AttributeError(f"{type(self).__qualname__}.rng is there from the call of reset() on")
        return random.Random(self._envport_seed)

    def reset(self, *, seed: int, task: Task | None) -> Any:
        """Start the episode and return the first observation. May be async.

        The same task and seed have to give the same episode. Draw from `self.rng`, or use `seed` to seed another
        generator.

        Args:
            seed: The episode's seed, at least 0 and below 2**63.
            task: The task to play; `None` if the environment has none.

        Raises:
            ToolError: The task or seed cannot be played; the message goes to the client that opens the episode.
            UpstreamLost: A system that the environment uses has failed.
            AtCapacity: A system that the environment uses has no room now. The client is told when to try again.
        """
        raise NotImplementedError

    def score(self) -> Any:
        """Score the final state, for tasks that are judged by what the player leaves behind. May be async.

        Called once, when the episode has ended: by itself, at a limit, or because its owner finished, closed or
        abandoned it. Not called after a fault. The player never sees the score, and its last call does not wait for it.

        Returns:
            A finite number, or `None` for no score. If `reward` is `sum`, it is added to the rewards of the steps. If
            `reward` is `last`, it is the reward. An exception is a fault of the environment: the episode then has no
            reward.
        """
        raise NotImplementedError

    def final_state(self) -> Any:
        """What a scoring function outside the environment (`envport serve --score`) may read. May be async.

        Called in place of `score`, if there is such a function.

        Returns:
            Plain data that can be written as JSON.
        """
        return None

    def snapshot(self) -> Any:
        """The state of the episode, for `restore`. Optional; both or neither. May be async.

        Called between two calls of tools, and must change nothing. The state of `self.rng` is kept beside it.

        Returns:
            `bytes`, in any form. It may be stored, and read by another process with the same version of the
            environment.
        """
        raise NotImplementedError

    def restore(self, snapshot: bytes) -> Any:
        """Put a state back, so that the episode goes on as it would have from there. May be async.

        Called on a new instance, after a `reset` with the same seed and task. What it returns is ignored.

        Args:
            snapshot: What `snapshot` returned, on another instance and perhaps in another process.
        """
        raise NotImplementedError

    def close(self) -> Any:
        """Release the episode's resources. Called once, also after a failed `reset`. May be async."""

    def prepare(self) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        """Set up what is costly and serves all episodes, such as a server or a large file.

        Runs once for each gateway, or once for each host of a Ray cluster, on an instance that plays no episode. A
        context manager, so decorate it with `contextlib.contextmanager` (it then runs in a thread) or with
        `contextlib.asynccontextmanager`. What it yields is `prepared` in every episode. What is after the `yield` runs
        when the gateway stops, after all episodes have been closed. While it runs and after it failed, the gateway is
        not ready; it is tried again every 30 s.

        With the runtime `process`, it runs in the gateway all the same, and episodes get a copy of what it yields,
        which has to be picklable: yield an address, not a connection.
        """
        return nullcontext()

    def splits(self) -> Mapping[str, TaskSource]:
        """The environment's tasks by split. Tasks are read by index, and never copied. No splits by default."""
        return {}

    def legal_calls(self) -> Any:
        """The calls that make sense now, as `(tool, arguments)` pairs; `None`, the default, if that is not known.

        May be a sample if there are many, and may be async. The checker and the random policy draw from them. Players
        are never shown them. The same task, seed and calls have to give the same ones, so do not draw from `self.rng`.
        """
        return None

    def reference_solution(self, task: Task | None) -> Solution | None:
        """How a task is solved; `None`, the default, if that is not known.

        The checker plays it for some tasks, and does nothing for the same, and compares the rewards. Nobody else is
        shown it. Called on an instance that plays no episode, so it may depend on the options and the task only.

        Args:
            task: The task; `None` if the environment has none.
        """
        return None

    def cheats(self, task: Task | None) -> Mapping[str, Sequence[LegalCall]]:
        """Calls that try to get the reward without doing the task, by name; none by default.

        `envport audit` plays it, and fails if it earns more than play without skill. Nobody else is shown it. Called on
        an instance that plays no episode, so it may depend on the options and the task only.

        Args:
            task: The task; `None` if the environment has none.

        Returns:
            For each name, calls from the first observation on, as pairs of a tool's name and arguments.
        """
        return {}

    def tool_definitions(self) -> Sequence[ToolDefinition]:
        """Tools in addition to those marked with `@tool`, for tools that are known only when an instance is created."""
        return ()

    def tools_for(self, task: Task) -> Sequence[str | ToolDefinition] | None:
        """The tools of a task, in the order in which they are listed; `None` for all declared tools (the default).

        An episode lists exactly these tools, and refuses every other one as unknown. Called on an instance that plays
        no episode, and before the episode is opened, so the result may depend on the options and the task only. It
        has to be quick. A `ToolError` refuses the task.

        Args:
            task: The task. It may also be one that the client supplies.

        Returns:
            Names of declared tools, and definitions of tools that only such tasks have. A definition with the name
            of a declared tool takes its place. At the shared address of the environment, only tools with a declared
            name can be called.
        """
        return None


def seed_generator(environment: Environment, seed: int) -> None:
    """Seed the `rng` of an environment, before its `reset` is called.

    Args:
        environment: The environment.
        seed: The episode's seed.
    """
    own = vars(environment)
    own.pop("rng", None)
    own["_envport_seed"] = seed
