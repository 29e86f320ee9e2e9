"""The tasks of an OpenEnv server that has OpenEnv's task API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from envport import Task, ToolError
from envport.errors import InvalidOption
from envport_envs.upstream.http import UpstreamHttp
from envport_envs.upstream.task_api import all_tasks, chosen_splits, number_of_tasks, split_names, task_range

__all__ = ["Specs", "Tasks", "chosen", "read_specs"]

Specs = dict[str, tuple[Any, ...]]
"""What a server says of its tasks, by split and index."""

_PAGE = 500
_MOST_TASKS = 100_000


class Tasks(Sequence[Task]):
    """The tasks of a split, made when they are asked for.

    Args:
        split: The split.
        specs: What the server says of each.
    """

    def __init__(self, split: str, specs: Sequence[Any]):
        self._split = split
        self._specs = specs

    def __len__(self) -> int:
        return len(self._specs)

    def __getitem__(self, index: Any) -> Any:
        spec: Any = self._specs[index]
        said = cast("dict[str, Any]", spec) if isinstance(spec, dict) else {}
        prompt: Any = said.get("prompt")
        return Task(
            id=f"{self._split}/{index}" if said.get("id") is None else str(said["id"]),
            prompt=prompt if isinstance(prompt, str) else "",
            metadata={"split": self._split, "index": index, "spec": spec},
        )


def chosen(task: Task | None, specs: Specs) -> dict[str, Any]:
    """The arguments with which `reset` is told of a task.

    Args:
        task: The task.
        specs: The server's tasks.

    Raises:
        ToolError: It is none of the server's tasks.
    """
    if task is None:
        return {}
    split, index = task.metadata.get("split"), task.metadata.get("index")
    known = isinstance(split, str) and type(index) is int and 0 <= index < len(specs.get(split, ()))
    if not known:
        raise ToolError(f"The server has no task {task.id!r}: give the index of a task of a split.")
    return {"split": split, "index": index}


async def read_specs(http: UpstreamHttp, splits: Sequence[str] | None) -> Specs:
    """Read what a server says of its tasks; nothing from one without a task API.

    Args:
        http: Asks the server.
        splits: The splits to read; all if not given.

    Raises:
        UpstreamLost: Its answers are not those of the task API.
        InvalidOption: It has no such split, or too many tasks.
    """
    names: Any = await http.get("/list_environments")
    if not isinstance(names, list) or not names:
        return _none(splits)
    base = f"/{cast('list[Any]', names)[0]}"
    known = await split_names(http, base)
    if known is None:
        return _none(splits)
    return {name: await _specs(http, base, name) for name in chosen_splits(known, splits, "OpenEnv server")}


def _none(splits: Sequence[str] | None) -> Specs:
    if splits:
        raise InvalidOption("the option splits is for a server with OpenEnv's task API, and this server has none")
    return {}


async def _specs(http: UpstreamHttp, base: str, split: str) -> tuple[Any, ...]:
    number = await number_of_tasks(http, base, split)
    if number is None:
        http.unexpected(f"{base}/num_tasks", "has no number of tasks")
    if number > _MOST_TASKS:
        raise InvalidOption(
            f"the split {split!r} of the OpenEnv server has {number} tasks, and at most {_MOST_TASKS} can be served: "
            "name other splits in the option splits"
        )
    found: list[Any] = []
    while len(found) < number:
        page = await task_range(http, base, split, len(found), min(number, len(found) + _PAGE))
        if page is None:
            # An environment may list its tasks without ranges.
            found = await all_tasks(http, base, split)
            break
        found += page
    if len(found) != number:
        http.unexpected(f"{base}/tasks", f"has not the {number} tasks of the split {split!r}")
    return tuple(found)
