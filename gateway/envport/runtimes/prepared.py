"""What environments set up once for all of their episodes: their `prepare`, and its end."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, Protocol

from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import InvalidEnvironment, WorkerLost
from envport.runtimes.instance import Work
from envport.runtimes.own_task import OwnTask
from envport.runtimes.own_thread import OwnThread

__all__ = ["PreparedEnvironments"]

logger = logging.getLogger(__name__)

_END_SECONDS = 10.0
# Time limit for ending a `prepare` whose caller was cancelled: its thread goes on, and may take long.
_ABANDONED_SECONDS = 1.0


class _Runner(Protocol):
    """Runs the beginning and the end of a `prepare` in the same task or thread."""

    async def run(self, work: Work) -> Any: ...
    def end(self) -> None: ...


class _InTask:
    def __init__(self) -> None:
        self._task = OwnTask()

    async def run(self, work: Work) -> Any:
        return await self._task.run(work, None, _never)

    def end(self) -> None:
        self._task.end()


class PreparedEnvironments:
    """Runs `prepare` of each environment once, and ends it. Belongs to one runtime."""

    def __init__(self) -> None:
        self._entering: dict[int, asyncio.Task[Any]] = {}
        self._leaving: list[tuple[EnvironmentDefinition, _Runner, Callable[..., Any], float]] = []

    async def value(self, spec: EnvironmentDefinition) -> Any:
        """What `prepare` of the environment gave. Runs it if that has not been done, or has failed.

        Raises:
            InvalidEnvironment: It is no context manager.
            Exception: It failed.
        """
        if spec.cls.prepare is Environment.prepare:
            return None
        entering = self._entering.get(id(spec))
        if entering is None or (entering.done() and (entering.cancelled() or entering.exception() is not None)):
            entering = self._entering[id(spec)] = asyncio.create_task(self._enter(spec))
        # Other callers wait for the same one, so that a caller that is cancelled must not stop it.
        return await asyncio.shield(entering)

    async def end(self, of: EnvironmentDefinition | None = None) -> None:
        """End what was prepared for an environment, or everything if none is given, the latest first."""
        chosen = [key for key in self._entering if of is None or key == id(of)]
        entering = [self._entering.pop(key) for key in chosen]
        for task in entering:
            task.cancel()
        await asyncio.gather(*entering, return_exceptions=True)
        leaving = [it for it in self._leaving if of is None or it[0] is of]
        self._leaving = [it for it in self._leaving if it not in leaving]
        while leaving:
            spec, runner, leave, seconds = leaving.pop()
            try:
                async with asyncio.timeout(seconds):
                    await runner.run(partial(leave, None, None, None))
            except TimeoutError:
                logger.error("environment %s: the end of its prepare() took over %g s", spec.name, seconds)
            except Exception:
                logger.exception("environment %s broke at the end of its prepare()", spec.name)
            finally:
                runner.end()

    async def _enter(self, spec: EnvironmentDefinition) -> Any:
        environment = spec.prototype
        if spec.secrets:
            environment = copy.copy(environment)
            environment.secrets = spec.secrets
        manager: Any = environment.prepare()
        runner: _Runner
        if isinstance(manager, AbstractAsyncContextManager):
            runner, enter, leave = _InTask(), manager.__aenter__, manager.__aexit__
        elif isinstance(manager, AbstractContextManager):
            # It may block, and so it runs in a thread wherever the environment runs.
            runner, enter, leave = OwnThread(f"envport prepare {spec.name}"), manager.__enter__, manager.__exit__
        else:
            if inspect.iscoroutine(manager):
                manager.close()
            raise InvalidEnvironment(
                f"environment {spec.name!r}: prepare() returned a {type(manager).__name__}; it has to return a context "
                "manager: decorate it with contextlib.contextmanager or contextlib.asynccontextmanager"
            )
        entering = _Entering(enter, leave)
        try:
            value = await runner.run(entering.enter)
        except asyncio.CancelledError:
            # The thread still enters the context. So remember to leave it, which releases what it has set up.
            self._leaving.append((spec, runner, entering.leave, _ABANDONED_SECONDS))
            raise
        except BaseException:
            runner.end()
            raise
        self._leaving.append((spec, runner, leave, _END_SECONDS))
        return value


class _Entering:
    """A context that may have been entered or not when it is left."""

    def __init__(self, enter: Callable[[], Any], leave: Callable[..., Any]):
        self._enter = enter
        self._leave = leave
        self._entered = False

    def enter(self) -> Any:
        """Enter it; the result may be awaitable."""
        value = self._enter()
        self._entered = not inspect.isawaitable(value)
        return value

    def leave(self, *error: Any) -> Any:
        """Leave it, if it was entered to the end."""
        return self._leave(*error) if self._entered else None


def _never() -> WorkerLost:
    raise AssertionError("there is no limit")
