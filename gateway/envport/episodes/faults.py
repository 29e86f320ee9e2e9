"""Reporting that an environment broke: the log gets all details, clients get none of the environment's internals."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from envport.errors import EpisodeFailed, StoreUnavailable, ToolError, UpstreamLost, WorkerLost
from envport.runtimes import Worker
from envport.telemetry.subject import EpisodeSubject
from envport.telemetry.tracing import begin_span
from envport.types import FaultOwner, Outcome, Reason

__all__ = ["Fault", "close_worker", "whose"]

logger = logging.getLogger(__name__)

_OWNERS: dict[FaultOwner, str] = {
    "player": "The code that it ran for its player was the cause, so this counts as a failure of the player.",
    "environment": "This is a fault of the environment, not of the player.",
    "infrastructure": "This is a fault of the infrastructure, not of the player.",
}


def whose(owner: FaultOwner) -> str:
    """A sentence that says who owns a fault."""
    return _OWNERS[owner]


@dataclass(frozen=True)
class Fault:
    """A fault that ends an episode.

    Attributes:
        reason: The reason in the episode's outcome.
        what: What happened, for people to read.
        error: The exception that was raised.
        owner: Who owns it.
    """

    reason: Reason
    what: str
    error: BaseException
    owner: FaultOwner = "environment"

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """The fault for an exception. Nothing else decides who owns it."""
        if isinstance(error, WorkerLost):
            return cls(error.reason, error.message, error, error.fault)
        if isinstance(error, UpstreamLost):
            return cls("upstream", "What the environment stands on has failed.", error, "infrastructure")
        return cls("environment_error", "The environment failed.", error)

    @classmethod
    def unrecorded(cls, error: StoreUnavailable) -> Fault:
        """The fault that a call could not be recorded."""
        return cls("store", "The gateway could not record the episode.", error, "infrastructure")

    @property
    def outcome(self) -> Outcome:
        """The outcome of the episode that it ends."""
        message = f"{self.what} {whose(self.owner)}"
        return Outcome(status="failed", reason=self.reason, message=message, fault=self.owner)

    def before_play(self) -> Fault:
        """The same fault before the first call. There it cannot be the player's, who had nothing run yet."""
        return replace(self, owner="environment") if self.owner == "player" else self

    def raised(self) -> EpisodeFailed:
        """The error for the caller, for a fault that is not the player's."""
        assert self.owner != "player"
        return EpisodeFailed(
            f"{self.what} The episode has ended. This is a fault of the {self.owner}, not of your call. "
            "Start a new episode.",
            self.owner,
            self.reason,
        )

    def told(self) -> ToolError:
        """The answer to the player's call, for a fault that is the player's."""
        return ToolError(f"{self.what} The code that you had run was the cause. The episode is over and has failed.")

    def log(self, subject: EpisodeSubject, where: str) -> None:
        """Log the fault, with the details that only the log may contain.

        Args:
            subject: The episode.
            where: What the environment was doing.
        """
        extra = subject.fields(self.reason, self.owner)
        if isinstance(self.error, WorkerLost):
            stderr = self.error.stderr
            # What players do wrong is their result. It is no fault that an operator has to look into.
            logger.log(
                logging.INFO if self.owner == "player" else logging.ERROR,
                "episode %s: environment %s was lost %s: %s%s",
                subject.episode_id,
                subject.environment,
                where,
                self.what,
                f" Its last lines on standard error:\n{stderr}" if stderr else "",
                extra=extra,
            )
            return
        if self.reason == "store":
            said = "episode %s of environment %s could not be recorded %s: %s"
            logger.error(said, subject.episode_id, subject.environment, where, self.error, extra=extra)
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
