"""An instance of an environment, and how its methods are called. All runtimes use it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from envport.definition import EnvironmentDefinition
from envport.environment import seed_generator
from envport.player_code import PlayerCode
from envport.runtimes.base import ProgressSink
from envport.runtimes.snapshots import pack, state_of, unpack
from envport.types import Task

__all__ = ["Instance", "Work"]

Work = Callable[[], Any]
"""A method with its arguments; its result may be awaitable."""


class Instance:
    """A new instance of an environment.

    Args:
        spec: The environment.
        prepared: What its `prepare` yielded.
        notice: Told when code of the player begins to run, and when it has ended.

    Attributes:
        name: The environment's name.
    """

    def __init__(self, spec: EnvironmentDefinition, prepared: Any = None, notice: Callable[[bool], None] | None = None):
        self.name = spec.name
        self._spec = spec
        self._tools = spec.tools
        self._environment = spec.make()
        if prepared is not None:
            self._environment.prepared = prepared
        self._begun_with: object = None
        self._player_code = PlayerCode(notice) if spec.cls.runs_player_code else None
        if self._player_code is not None:
            self._environment.player_code = self._player_code

    def reset(self, *, seed: int, task: Task | None, secrets: Mapping[str, str]) -> Work:
        """The work that starts the episode; it returns the first observation as the environment gives it."""
        self._tools = self._spec.toolset_for(task).tools
        seed_generator(self._environment, seed)
        if secrets:
            self._environment.secrets = secrets
        return partial(self._environment.reset, seed=seed, task=task)

    def call(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> Work:
        """The work that calls a tool; it returns the observation or `Step` as the environment gives it.

        Raises:
            InvalidArguments: The arguments break the tool's schema.
        """
        spec = self._tools[tool]
        bound = spec.bind(arguments)
        self._begin()
        method = getattr(self._environment, spec.method)
        if spec.by_name:
            method, bound = partial(method, spec.name, bound), {}
        if spec.progress is not None:
            bound[spec.progress] = progress or _silent
        return partial(method, **bound)

    def legal_calls(self) -> Work:
        """The work that says which calls make sense now."""
        return self._environment.legal_calls

    def score(self) -> Work:
        """The work that scores the final state."""
        return self._environment.score

    def final_state(self) -> Work:
        """The work that gives the final state."""
        return self._environment.final_state

    def snapshot(self) -> Work:
        """The work that copies the state; it returns bytes."""
        self._begin()
        return self._snapshot_later if inspect.iscoroutinefunction(self._environment.snapshot) else self._snapshot

    def restore(self, snapshot: bytes) -> Work:
        """The work that puts a state back.

        Raises:
            ValueError: It is no snapshot.
        """
        self._begin()
        data = unpack(snapshot, self._environment.rng)
        return partial(self._environment.restore, data)

    def _begin(self) -> None:
        if self._begun_with is None and self._spec.has_snapshots:
            # Before a state is restored, `reset` draws the same numbers again. So this state need not be in a snapshot.
            self._begun_with = state_of(self._environment.rng)

    def _snapshot(self) -> Any:
        data = self._environment.snapshot()
        if inspect.isawaitable(data):
            return self._packed_later(data)
        return pack(data, self._environment.rng, self._begun_with)

    async def _snapshot_later(self) -> bytes:
        return pack(await self._environment.snapshot(), self._environment.rng, self._begun_with)

    async def _packed_later(self, data: Awaitable[Any]) -> bytes:
        return pack(await data, self._environment.rng, self._begun_with)

    def close(self) -> Work:
        """The work that releases the episode's resources."""
        return self._environment.close if self._player_code is None else self._close_all

    @property
    def player_code_runs(self) -> bool:
        """Whether code of the player is running."""
        return self._player_code is not None and self._player_code.running

    def stop_player_code(self) -> None:
        """End what is running of the player's code."""
        if self._player_code is not None:
            self._player_code.close()

    def _close_all(self) -> Any:
        self.stop_player_code()
        return self._environment.close()


def _silent(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Drop progress that the caller did not ask for."""
