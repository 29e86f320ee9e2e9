"""Reporting that an environment broke: the log gets all details, clients get none of the environment's internals."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from envport.errors import EpisodeFailed, UpstreamLost, WorkerLost
from envport.runtimes import Worker
from envport.telemetry.subject import EpisodeSubject
from envport.telemetry.tracing import begin_span
from envport.types import Outcome, Reason

__all__ = ["Fault", "close_worker"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fault:
    """A fault that ends an episode.

    Attributes:
        reason: The reason in the episode's outcome.
        what: What happened, for people to read.
        error: The exception that was raised.
    """

    reason: Reason
    what: str
    error: BaseException

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """The fault for an exception."""
        if isinstance(error, WorkerLost):
            return cls(error.reason, error.message, error)
        if isinstance(error, UpstreamLost):
            return cls("upstream", "What the environment stands on has failed.", error)
        return cls("environment_error", "The environment failed.", error)

    @property
    def message(self) -> str:
        """The message in the episode's outcome."""
        return f"{self.what} This is a fault of the environment, not of the player."

    def raised(self) -> EpisodeFailed:
        """The error for the caller."""
        return EpisodeFailed(
            f"{self.what} The episode has ended. This is a fault of the environment, not of your call. "
            "Start a new episode."
        )

    def log(self, subject: EpisodeSubject, where: str) -> None:
        """Log the fault, with the details that only the log may contain.

        Args:
            subject: The episode.
            where: What the environment was doing.
        """
        extra = subject.fields(self.reason)
        if isinstance(self.error, WorkerLost):
            stderr = self.error.stderr
            logger.error(
                "episode %s: environment %s was lost %s: %s%s",
                subject.episode_id,
                subject.environment,
                where,
                self.what,
                f" Its last lines on standard error:\n{stderr}" if stderr else "",
                extra=extra,
            )
            return
        logger.error(
            "episode %s: environment %s broke %s",
            subject.episode_id,
            subject.environment,
            where,
            exc_info=self.error,
            extra=extra,
        )


async def close_worker(worker: Worker, subject: EpisodeSubject, outcome: Outcome | None) -> None:
    """Close the worker of an episode. If its environment breaks while it is closed, log that and go on.

    Args:
        worker: The worker.
        subject: The episode.
        outcome: How the episode ended.
    """
    span, broke = begin_span("episode.close", subject.environment, subject.episode_id), None
    try:
        await worker.close()
    except (Exception, SystemExit) as error:
        broke = type(error).__qualname__
        logger.exception(
            "episode %s: environment %s broke while it was being closed",
            subject.episode_id,
            subject.environment,
            extra=subject.fields(),
        )
    finally:
        if span is not None:
            span.set({"envport.outcome": outcome.reason if outcome is not None else None})
            span.end(broke)
