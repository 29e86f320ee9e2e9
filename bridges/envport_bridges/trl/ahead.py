"""Episodes opened before they are asked for, where it is known which ones are next.

`AsyncGRPOTrainer` reads its dataset in order, each row once for each member of its group, and waits for every `reset`
while all its rollouts stand still. With the next episodes open already, a reset returns at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envport.errors import EnvportError
from envport.types import Choice
from envport_bridges.rollouts.backend import RolloutEpisode
from envport_bridges.rollouts.connection import Connection
from envport_bridges.trl.rows import choice_of

__all__ = ["Ahead", "OpeningPlan"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpeningPlan:
    """Which episodes come, in which order.

    Attributes:
        choices: The episodes of the dataset's rows, in order; the dataset begins again after the last.
        generations: How often each row is played, one right after the other.
        episodes: How many episodes to keep open ahead.
    """

    choices: tuple[Choice, ...]
    generations: int
    episodes: int

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], generations: int, episodes: int) -> OpeningPlan:
        """Plan for the rows of a dataset."""
        return cls(tuple(map(choice_of, rows)), generations, episodes)

    def at(self, turn: int) -> Choice:
        """The episode of a turn, counted from 0."""
        return self.choices[turn // self.generations % len(self.choices)]


class Ahead:
    """Opens the episodes of a plan ahead of time. One for all instances of a factory.

    Attributes:
        foreseen: How many episodes were opened before they were asked for.

    Args:
        connection: What opens them.
        plan: Which ones come.
    """

    def __init__(self, connection: Connection, plan: OpeningPlan):
        self._connection = connection
        self._plan = plan
        self._ready: dict[_Key, deque[asyncio.Task[RolloutEpisode]]] = defaultdict(deque)
        self._turns = {_key(choice): index * plan.generations for index, choice in enumerate(plan.choices)}
        self._next: int | None = None
        self._waiting = 0
        self.foreseen = 0

    async def open(self, choice: Choice) -> RolloutEpisode:
        """An episode for a choice: one that is open already if the plan foresaw it.

        Raises:
            EnvportError: It could not be opened.
        """
        ready = self._ready.get(_key(choice))
        task = ready.popleft() if ready else None
        if task is None:
            # Not foreseen: the first one, or the trainer went on elsewhere in the dataset.
            turn = self._turns.get(_key(choice))
            self._next = turn + 1 if turn is not None else None
        else:
            self._waiting -= 1
            self.foreseen += 1
        self._fill()
        if task is not None:
            try:
                return await task
            except EnvportError as error:
                logger.debug("an episode could not be opened ahead, and is opened now: %s", error)
        return await self._connection.open(choice)

    def _fill(self) -> None:
        while self._next is not None and self._waiting < self._plan.episodes:
            choice = self._plan.at(self._next)
            self._ready[_key(choice)].append(self._connection.spawn(self._connection.open(choice)))
            self._waiting += 1
            self._next += 1


_Key = tuple[int | None, str | None, str]


def _key(choice: Choice) -> _Key:
    return choice.seed, choice.split, repr(choice.task)
