"""What the checker found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CheckReport", "Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that the checker found.

    Attributes:
        level: `error` if the contract is broken; `warning` if the environment works but should be improved.
        check: Name of the check.
        message: What is wrong, and where.
    """

    level: Literal["error", "warning"]
    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.level} [{self.check}] {self.message}"


@dataclass(slots=True)
class CheckReport:
    """The report of the checker.

    Attributes:
        environment: Name of the environment.
        unplayed: The seeds that have not been played to the end.
        findings: The problems that were found, without duplicates.
        episodes: How many episodes were played.
        calls: How many calls reached the environment.
        refused: How many calls with bad arguments were tried.
        limits_kept_by: What keeps the limits on memory, processes and CPU time, if it runs in processes of its own.
        sampled: How many calls were drawn, each of which several instances played.
        rejected: How many of these the environment answered with a `ToolError`.
        solved: How many tasks had their reference solution played.
        alone: How many episodes were played again with no other beside them.
        beside: Whether episodes were played beside others, which needs an environment that can have three at a time.
        elsewhere: How many episodes were played again in another process.
        not_elsewhere: Why none could be; `None` if some were, or it was not asked for.
    """

    environment: str
    unplayed: list[int] = field(default_factory=list[int])
    findings: list[Finding] = field(default_factory=list[Finding])
    episodes: int = 0
    calls: int = 0
    refused: int = 0
    limits_kept_by: str | None = None
    sampled: int = 0
    rejected: int = 0
    solved: int = 0
    alone: int = 0
    beside: bool = True
    elsewhere: int = 0
    not_elsewhere: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not any(finding.level == "error" for finding in self.findings)

    def error(self, check: str, message: str) -> None:
        """Add an error."""
        self._add(Finding("error", check, message))

    def warning(self, check: str, message: str) -> None:
        """Add a warning."""
        self._add(Finding("warning", check, message))

    def stop(self, limit: float, step: str, running: float) -> None:
        """Say what was not checked when the time was over.

        Args:
            limit: The time, in seconds.
            step: What was being done.
            running: For how long, in seconds.
        """
        where = f"in {step}, after {running:.0f} s of it" if running >= 1 else f"before {step}"
        seeds, were = ("seeds", "were") if len(self.unplayed) > 1 else ("seed", "was")
        unplayed = f"{seeds} {', '.join(map(str, self.unplayed))} {were} not played to the end"
        if not self.unplayed:
            unplayed = "not everything was played again, or solved"
        message = f"stopped after {limit:g} s, {where}: {unplayed if self.sampled else 'nothing was played'}"
        if running > limit / 2:
            self.error("coverage", f"{message}. It hangs, or needs more time")
        elif not self.sampled:
            self.error("coverage", f"{message}. Give it more time, or make the environment faster")
        else:
            self.warning("coverage", message)

    def _add(self, finding: Finding) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    def __str__(self) -> str:
        head = (
            f"{self.environment}: {'passed' if self.ok else 'failed'} "
            f"({self.episodes} episodes, {self.calls} calls, {self.refused} refused)"
        )
        return "\n".join([head, *(f"  {finding}" for finding in self.findings)])
