"""What a user writes: an environment as a dataset, a factory and reward functions for a trainer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from envport.errors import ConfigurationError, UnknownTask
from envport.references import is_address
from envport.types import EnvironmentInfo, Task
from envport_bridges.rollouts.backend import RolloutTarget
from envport_bridges.rollouts.connection import Connection, connect
from envport_bridges.trl.factory import EnvironmentFactory
from envport_bridges.trl.listings import ENVIRONMENT_COLUMN, ReadTasks
from envport_bridges.trl.outage import OnOutage, stops_at
from envport_bridges.trl.rows import row_of, seed_of
from envport_bridges.trl.trainable import Factories, Trainable

if TYPE_CHECKING:
    from envport_bridges.trl.rehearsal import Rehearsal

__all__ = ["EnvironmentSpec"]

_DEFAULT_ROWS = 256
_MOST_ROWS = 1_000_000
_PAGE = 500


class EnvironmentSpec(Trainable):
    """An environment to train on.

    Args:
        target: URL of the environment on a gateway (`http://127.0.0.1:8000/environments/catch`), or what
            `envport serve` takes (`catch`, `catch?rows=5`, `package.module:Class`): played in this process.
        split: The split to take tasks from; the first one if not given.
        num_tasks: How many rows the dataset has. Beyond the number of tasks, tasks come again with another seed.
            All tasks once if not given, or 256 rows if the environment has no tasks.
        indices: Indices of the tasks, instead of all.
        seed: Makes the rows' seeds: another seed gives other episodes.
        token: Bearer token for the gateway.
        patience: Seconds to wait for a gateway that is away or full, before an episode is left out of training.
        on_outage: What a run does when most of its episodes are lost, batch after batch: `stop` with a checkpoint,
            `wait` for the gateway, or `skip`; see `envport_bridges.trl.outage.OnOutage`.
        keep_alive: Seconds for which an episode is kept from expiring while the model generates.
        call_seconds: Seconds after which a call that is not answered counts as lost.
        score: Function that scores final states (`package.module:function` or `./file.py:function`), for an
            environment that is played in this process. A gateway has its own: `envport serve --score`.
        get_reward: Whether environments own their reward; `reward_funcs` is then empty.
        explicit_schemas: Whether the model is shown the tools' exact schemas. Type hints are the alternative.
        cast_strings: Whether text is read as the type that the schema asks for (`"7"` as 7). If not given, it is read
            where the model's chat format writes arguments as bare text, and kept where it writes JSON.
        include_metadata: Whether rows have the tasks' metadata, for reward functions (`env.metadata`).
        labels: Labels of every episode. `run`, `group` and `sample` are set unless given here.
        secrets: Secrets for the environment, by name.
        **options: Options of an environment that is played in this process, as data instead of in the reference:
            `EnvironmentSpec("catch", rows=5)`.

    Raises:
        ConfigurationError: The options contradict each other, or the environment is not installed.
    """

    def __init__(
        self,
        target: str,
        *,
        split: str | None = None,
        num_tasks: int | None = None,
        indices: Sequence[int] | None = None,
        seed: int = 0,
        token: str | None = None,
        patience: float = 60.0,
        on_outage: OnOutage = "stop",
        keep_alive: float = 4 * 3600.0,
        call_seconds: float = 600.0,
        score: str | None = None,
        get_reward: bool = False,
        explicit_schemas: bool = True,
        cast_strings: bool | None = None,
        include_metadata: bool = True,
        labels: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        **options: Any,
    ):
        if num_tasks is not None and indices is not None:
            raise ConfigurationError("give num_tasks or indices, not both")
        if num_tasks is not None and num_tasks < 1:
            raise ConfigurationError(f"num_tasks is {num_tasks}; it has to be at least 1")
        if options and is_address(target):
            raise ConfigurationError(
                f"{target} is an environment of a gateway, which has its options already: "
                f"{', '.join(options)} cannot be given here"
            )
        self.on_outage: OnOutage = on_outage
        self._stops = stops_at(on_outage)
        self.target = RolloutTarget(
            target,
            token,
            math.inf if on_outage == "wait" else patience,
            keep_alive,
            call_seconds,
            score=score,
            labels=tuple((labels or {}).items()),
            secrets=tuple((secrets or {}).items()),
            options=to_json(options).decode() if options else "",
        )
        self._split = split
        self._num_tasks = num_tasks
        self._indices = _checked(indices) if indices is not None else None
        self._metadata = include_metadata
        self._seed = seed
        self.get_reward = get_reward
        self._explicit = explicit_schemas
        self._cast_strings = cast_strings

    @cached_property
    def info(self) -> EnvironmentInfo:
        """The environment, as it was when it was first asked for.

        Raises:
            GatewayUnreachable: The gateway gave no usable answer in time.
            UnknownEnvironment: The gateway does not serve it.
        """
        return self._connection.loop.run(self._connection.describe())

    @property
    def _connection(self) -> Connection:
        return connect(self.target)

    def eval_dataset(self, split: str | None = None, num_tasks: int | None = None) -> Any:
        """Rows of another split, for `GRPOTrainer(eval_dataset=...)`. The same factory plays them.

        Args:
            split: The split; that of the training rows if not given, with other seeds.
            num_tasks: How many rows; see `EnvironmentSpec`.

        Raises:
            UnknownTask: There is no such split.
            ConfigurationError: Its tasks have tools that no task of the training rows has.
        """
        return self.for_evaluation(split, num_tasks).train_dataset

    def for_evaluation(self, split: str | None, num_tasks: int | None) -> EnvironmentSpec:
        """A specification of the rows that `eval_dataset` gives; see there."""
        other = self._changed(
            _split=split or self._split,
            _num_tasks=num_tasks,
            _indices=None,
            _seed=self._seed if split not in (None, self._split) else self._seed + 1,
        )
        if self.info.tools_vary:
            known = {row[ENVIRONMENT_COLUMN] for row in self.rows}
            if unknown := {row[ENVIRONMENT_COLUMN] for row in other.rows} - known:
                raise ConfigurationError(
                    f"tasks of split {other._split!r} have tools that no training task has ({', '.join(unknown)}): the "
                    "trainer knows the listings of its training rows only"
                )
        return other

    def with_rows(self, count: int) -> EnvironmentSpec:
        """The same with another number of rows: beyond the number of tasks, they come again with other seeds.

        Args:
            count: How many rows, at least 1.
        """
        if self._indices is None:
            return self._changed(_num_tasks=count)
        return self._changed(_indices=[self._indices[place % len(self._indices)] for place in range(count)])

    def _changed(self, **attributes: Any) -> EnvironmentSpec:
        other = copy(self)
        for name in ("rows", "train_dataset", "rollout_func", "rollout_dataset", "_chosen"):
            vars(other).pop(name, None)
        vars(other).update(attributes)
        return other

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the dataset, as TRL passes them to `reset`."""
        if not self.info.splits:
            if self._indices is not None or self._split is not None:
                raise UnknownTask(f"environment {self.info.name!r} has no tasks: leave out split and indices")
            count = self._num_tasks or _DEFAULT_ROWS
            return [row_of(self.info, seed_of(self._seed, position)) for position in range(count)]
        split, indices, read = self._chosen
        rows = [
            row_of(self.info, seed_of(self._seed, position), split, index, self._shown(read.tasks[index]))
            for position, index in enumerate(indices)
        ]
        if self.info.tools_vary:
            for row, index in zip(rows, indices, strict=True):
                row[ENVIRONMENT_COLUMN] = read.listings[index].name
        return rows

    @cached_property
    def _chosen(self) -> tuple[str, list[int], ReadTasks]:
        """The split, the index of each row's task, and the tasks."""
        split = self._split or self.info.splits[0].name
        total = self._total(split)
        if self._indices is None and self._num_tasks is None and total > _MOST_ROWS:
            raise ConfigurationError(f"split {split!r} has {total} tasks: say how many rows you want (num_tasks)")
        count = self._num_tasks if self._num_tasks is not None else total
        indices = self._indices if self._indices is not None else [position % total for position in range(count)]
        return split, indices, self._read(split, sorted(set(indices)))

    def _shown(self, task: Task) -> Task:
        return task if self._metadata else task.model_copy(update={"metadata": {}})

    def _total(self, split: str) -> int:
        totals = {one.name: one.num_tasks for one in self.info.splits}
        if split not in totals:
            raise UnknownTask(
                f"environment {self.info.name!r} has no split {split!r}; its splits are: {', '.join(map(repr, totals))}"
            )
        if wrong := [index for index in self._indices or () if not 0 <= index < totals[split]]:
            raise UnknownTask(
                f"split {split!r} of {self.info.name!r} has no task {wrong[0]}; allowed: 0 to {totals[split] - 1}"
            )
        if not totals[split]:
            raise UnknownTask(f"split {split!r} of {self.info.name!r} has no tasks")
        return totals[split]

    def _read(self, split: str, wanted: Sequence[int]) -> ReadTasks:
        read = ReadTasks(self.info)
        connection = self._connection
        for place, index in enumerate(wanted):
            if index not in read.tasks:
                # No further than what is wanted: a task may cost its environment something.
                last = max(one for one in wanted[place : place + _PAGE] if one < index + _PAGE)
                read.add(connection.loop.run(connection.source.tasks(split, index, last - index + 1)))
        return read

    @cached_property
    def environment_factory(self) -> Any:
        """What `GRPOTrainer(environment_factory=...)` takes: an `EnvironmentFactory`, which is picklable.

        Where tasks have tools of their own, a dict: a factory for each distinct listing, by the name that the
        dataset's column `environment` has for it.
        """
        return self._factories(asynchronous=False, scored=self.get_reward)

    @cached_property
    def async_environment_factory(self) -> Any:
        """The same for `AsyncGRPOTrainer`: async tools, and instances that own their reward. Pass no `reward_funcs`."""
        return self._factories(asynchronous=True, scored=True)

    def _factories(self, *, asynchronous: bool, scored: bool) -> Factories:
        factory = EnvironmentFactory(
            self.target,
            self.info,
            scored,
            asynchronous,
            self._explicit,
            self._cast_strings,
            on_outage=self.on_outage,
        )
        if not self.info.tools_vary or not self.info.splits:
            return factory
        _, indices, read = self._chosen
        listings = read.distinct(indices)
        return {name: dataclasses.replace(factory, listing=listing) for name, listing in listings.items()}

    def rehearse(self, episodes: int = 8, *, num_generations: int = 4, steps: int = 30, seed: int = 0) -> Rehearsal:
        """Play one batch with random calls, before a model is loaded: `print(spec.rehearse(32, num_generations=8))`.

        Calls are those that the environment names as legal, or drawn from the tools' schemas.

        Args:
            episodes: How many episodes a batch has, over all processes (`GRPOConfig.generation_batch_size`).
            num_generations: How often each row is played, as the trainer's configuration has it.
            steps: How many calls are made in each episode, at most.
            seed: Makes the calls.

        Returns:
            What it came to, and what would go wrong.
        """
        from envport_bridges.trl.rehearsal import rehearse

        factories = self._factories(asynchronous=False, scored=False)
        return rehearse(
            self.info,
            {None: factories} if isinstance(factories, EnvironmentFactory) else {**factories},
            self.rows,
            episodes=episodes,
            num_generations=num_generations,
            steps=steps,
            seed=seed,
        )

    @property
    def scored_by_environments(self) -> bool:
        """Whether the environments own their reward."""
        return self.get_reward


def _checked(indices: Sequence[int]) -> list[int]:
    given = list(indices)
    if not given:
        raise ConfigurationError("indices is empty: give the indices of the tasks to train on, or leave it out for all")
    if wrong := [index for index in given if not isinstance(index, int) or isinstance(index, bool)]:  # pyright: ignore
        raise ConfigurationError(f"indices holds {wrong[0]!r}; it has to hold integers, as in indices=[0, 5]")
    return given
