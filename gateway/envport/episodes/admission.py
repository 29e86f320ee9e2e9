"""Admission control: which request may open an episode now, which waits, and which is refused."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import anyio

from envport.definition import EnvironmentDefinition
from envport.episodes.limits import Limits
from envport.errors import AtCapacity, Draining

__all__ = ["Admission"]


@dataclass(eq=False, slots=True)
class _Waiter:
    principal: str
    environment: str
    called: anyio.Event = field(default_factory=anyio.Event)
    admitted: bool = False


class Admission:
    """Counts the episodes that hold resources: in total, by principal, and by environment.

    A request that exceeds a limit waits for a bounded time, in a queue of bounded length. Requests are admitted in
    order of arrival. A later request goes first only if the earlier one is blocked by the limit of its principal or
    its environment.

    Args:
        capacity: Maximum number of episodes in total.
        per_principal: Maximum for one principal; `None` if only `capacity` limits it.
        max_waiting: Maximum number of waiting requests.
        wait_seconds: How long a request waits before it is refused.
        per_environment: Maximum for each environment, by name. Only `capacity` limits an environment that is not
            named.
    """

    def __init__(
        self,
        capacity: int,
        per_principal: int | None,
        max_waiting: int,
        wait_seconds: float,
        per_environment: Mapping[str, int] | None = None,
    ):
        self._capacity = capacity
        self._per_principal = per_principal
        self._per_environment = dict(per_environment or {})
        self._max_waiting = max_waiting
        self._wait_seconds = wait_seconds
        self._held = 0
        self._by_principal: Counter[str] = Counter()
        self._by_environment: Counter[str] = Counter()
        self._waiting: deque[_Waiter] = deque()
        self._closed = False
        self._emptied = anyio.Event()

    @classmethod
    def within(cls, limits: Limits, environments: Iterable[EnvironmentDefinition]) -> Admission:
        """The admission that keeps these limits."""
        return cls(
            limits.max_episodes,
            limits.max_episodes_per_principal,
            limits.max_waiting,
            limits.wait_seconds,
            {spec.name: most for spec in environments if (most := limits.episodes(spec)) is not None},
        )

    @property
    def held(self) -> int:
        """How many places are taken."""
        return self._held

    @property
    def waiting(self) -> int:
        """How many requests wait for a place."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether all new requests are refused."""
        return self._closed

    async def acquire(self, principal: str, environment: str, *, wait: bool = True) -> None:
        """Take a place.

        Args:
            principal: Name of the principal that takes it.
            environment: Name of the environment of the episode.
            wait: Whether to wait for a free place.

        Raises:
            AtCapacity: No place became free in time, or too many requests are waiting already.
            Draining: All new requests are refused.
        """
        if self._closed:
            raise Draining
        # Every waiting request is blocked by a limit, otherwise it would have been admitted already. So this request
        # does not take a place that an earlier one could use.
        if self._full(principal, environment) is None:
            self._take(principal, environment)
            return
        if not wait or len(self._waiting) >= self._max_waiting or self._wait_seconds <= 0:
            raise self._refusal(principal, environment)
        waiter = _Waiter(principal, environment)
        self._waiting.append(waiter)
        try:
            with anyio.move_on_after(self._wait_seconds):
                await waiter.called.wait()
        except BaseException:
            # The caller is gone. If it was admitted at the same moment, the next request gets its place.
            if waiter.admitted:
                self.release(principal, environment)
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        if not waiter.admitted:
            raise Draining if self._closed else self._refusal(principal, environment)

    def at_once(self, principal: str, environment: str) -> bool:
        """Whether `acquire` would return or raise at once, without waiting."""
        return self._closed or self._full(principal, environment) is None

    def release(self, principal: str, environment: str) -> None:
        """Give a place back."""
        self._held -= 1
        for counter, key in ((self._by_principal, principal), (self._by_environment, environment)):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]
        self._call()
        if not self._held:
            self._emptied.set()

    def limit(self, environment: str, most: int | None) -> None:
        """Set the maximum of an environment; `None` if only the total limits it. Live episodes stay."""
        self._per_environment.pop(environment, None)
        if most is not None:
            self._per_environment[environment] = most
        self._call()

    def close(self) -> None:
        """Refuse all new requests, and refuse the waiting ones now."""
        self._closed = True
        while self._waiting:
            self._waiting.popleft().called.set()

    async def emptied(self) -> None:
        """Wait until no place is taken."""
        while self._held:
            self._emptied = anyio.Event()
            await self._emptied.wait()

    def _take(self, principal: str, environment: str) -> None:
        self._held += 1
        self._by_principal[principal] += 1
        self._by_environment[environment] += 1

    def _call(self) -> None:
        """Admit the waiting requests that have room now, in order of arrival."""
        for waiter in list(self._waiting):
            if self._held >= self._capacity:
                return
            if self._full(waiter.principal, waiter.environment) is None:
                self._take(waiter.principal, waiter.environment)
                self._waiting.remove(waiter)
                waiter.admitted = True
                waiter.called.set()

    def _full(self, principal: str, environment: str) -> tuple[str, str] | None:
        """The limit that is reached, as its name and in words; `None` if there is room."""
        if self._per_principal is not None and self._by_principal[principal] >= self._per_principal:
            return "principal", f"your {self._per_principal} episodes"
        most = self._per_environment.get(environment)
        if most is not None and self._by_environment[environment] >= most:
            return "environment", f"all {most} episodes of environment {environment!r}"
        return self._all if self._held >= self._capacity else None

    @property
    def _all(self) -> tuple[str, str]:
        return "total", f"all {self._capacity} episodes"

    def _refusal(self, principal: str, environment: str) -> AtCapacity:
        # Room may have appeared at the moment of the refusal. Then no limit is reached, and the total is reported.
        limit, words = self._full(principal, environment) or self._all
        return AtCapacity(
            f"No room for another episode: {words} are in use. Close one, or try again in a while.",
            retry_after=max(1.0, self._wait_seconds),
            limit=limit,
        )
