"""The tools that a model is shown, where an environment's tasks have tools of their own.

TRL reads the tools of an environment once for each factory. So each distinct listing has a factory of its own, and each
row names its factory in the column `environment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envport.types import EnvironmentInfo, Task, TaskPage

__all__ = ["ENVIRONMENT_COLUMN", "ReadTasks", "TaskListing"]

ENVIRONMENT_COLUMN = "environment"
"""The column from which TRL reads which factory a row is for."""

_SHORT = 12


@dataclass(frozen=True)
class TaskListing:
    """The tools that some of an environment's tasks share.

    Attributes:
        name: Name of the factory that shows them. The same tools of an environment always have the same name.
        fingerprint: Fingerprint of the listing.
        tools: The tools, as MCP lists them.
    """

    name: str
    fingerprint: str
    tools: Sequence[Mapping[str, Any]] = field(repr=False)

    @classmethod
    def of(cls, info: EnvironmentInfo, fingerprint: str, tools: Sequence[Mapping[str, Any]]) -> TaskListing:
        """The listing with this fingerprint."""
        return cls(f"{info.name}@{fingerprint[:_SHORT]}", fingerprint, tools)


@dataclass
class ReadTasks:
    """The tasks of an environment that were read, with their listings if tasks have tools of their own.

    Attributes:
        info: The environment.
        tasks: The tasks by index.
        listings: The listing of each task, by index.
    """

    info: EnvironmentInfo
    tasks: dict[int, Task] = field(default_factory=dict[int, Task])
    listings: dict[int, TaskListing] = field(default_factory=dict[int, TaskListing])

    def add(self, page: TaskPage) -> None:
        """Add a page of tasks."""
        self.tasks |= {page.offset + number: task for number, task in enumerate(page.tasks)}
        distinct = {key: TaskListing.of(self.info, key, tools) for key, tools in page.listings.items()}
        self.listings |= {page.offset + number: distinct[key] for number, key in enumerate(page.fingerprints)}

    def distinct(self, indices: Sequence[int]) -> dict[str, TaskListing]:
        """The different listings of some tasks, by the names of their factories, in the order of the tasks."""
        return {self.listings[index].name: self.listings[index] for index in sorted(set(indices))}
