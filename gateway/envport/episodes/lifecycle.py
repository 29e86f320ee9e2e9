"""The status of an episode and how it ends: at once, or after its final state was scored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from envport.clock import Clock
from envport.episodes.states import GONE, NEXT
from envport.types import FaultOwner, Outcome, Reason, Status

__all__ = ["Lifecycle"]


class Lifecycle:
    """The status of an episode.

    Args:
        clock: The clock.
        scored: Whether the final state is scored at an end that is no fault.
        ended: Called each time the episode gets an outcome.

    Attributes:
        status: Its status.
        outcome: How it ended; `None` if it has not.
        ending: How it is to end once its final state is scored.
        ended_at: Unix time in seconds of its end.
    """

    def __init__(self, clock: Clock, ended: Callable[[Outcome], None], *, scored: bool):
        self._clock = clock
        self._scored = scored
        self._ended = ended
        self.status: Status = "opening"
        self._reset()

    def _reset(self) -> None:
        self.outcome: Outcome | None = None
        self.ending: Outcome | None = None
        self.ended_at: float | None = None
        self._decided: asyncio.Event | None = None
        self._gone: Status | None = None

    @property
    def over(self) -> Outcome | None:
        """How it ended, or is to end once its final state is scored."""
        return self.outcome or self.ending

    def become(self, status: Status) -> None:
        """Change the status."""
        if status not in NEXT[self.status]:
            raise RuntimeError(f"an episode that is {self.status} cannot become {status}")
        self.status = status

    def start_over(self) -> None:
        """Begin again as opening."""
        self.become("opening")
        self._reset()

    def end(self, status: Status, reason: Reason, message: str, *, fault: FaultOwner | None = None) -> None:
        """Give the episode an outcome, unless it has one already, or is about to get one.

        If its final state is to be scored, it gets the outcome after that.
        """
        self.end_as(Outcome(status=status, reason=reason, message=message, fault=fault))

    def end_as(self, outcome: Outcome) -> None:
        """The same as `end`, with the outcome as a whole."""
        self._end(outcome, to_score=self._scored)

    def break_off(self, outcome: Outcome) -> None:
        """Give the episode the outcome of a fault, unless it has one already. Its final state is not scored."""
        self._end(outcome, to_score=False)

    def _end(self, outcome: Outcome, *, to_score: bool) -> None:
        if self.over is None:
            if to_score and self.status == "running" and outcome.fault is None:
                self.ending = outcome
                self.become("scoring")
                return
            self._settle(outcome)
        if self.ending is None:
            if outcome.status in NEXT[self.status]:
                self.become(outcome.status)
        elif outcome.status in GONE:
            self._gone = outcome.status

    def scored(self, fault: Outcome | None) -> None:
        """The final state was scored: give the episode the outcome that was waiting for it.

        Args:
            fault: The outcome instead, if scoring failed.
        """
        assert self.ending is not None
        outcome, self.ending = fault or self.ending, None
        self._settle(outcome)
        self.become(outcome.status)
        if self._gone is not None and self._gone != self.status:
            self.become(self._gone)

    async def decided(self) -> None:
        """Wait for the score, if the final state is being scored."""
        if self.ending is not None:
            self._decided = self._decided or asyncio.Event()
            await self._decided.wait()

    def give_up(self) -> None:
        """Let go of whoever waits for the score: it will not come."""
        if self._decided is not None:
            self._decided.set()

    def _settle(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.ended_at = self._clock.time()
        self.give_up()
        self._ended(outcome)
