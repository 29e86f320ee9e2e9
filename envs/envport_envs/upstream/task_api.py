"""The task API that Open Reward Standard servers have, and OpenEnv's of 0.10: splits, and tasks by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from envport.errors import InvalidOption
from envport_envs.upstream.http import UpstreamHttp

__all__ = ["all_tasks", "chosen_splits", "number_of_tasks", "split_names", "task_range"]


async def split_names(http: UpstreamHttp, base: str) -> list[str] | None:
    """The names of the splits; `None` if the server has no task API.

    Args:
        http: Asks the server.
        base: The path of the environment.

    Raises:
        UpstreamLost: The server's answers are not those of the task API.
    """
    listed: Any = await http.get(f"{base}/splits")
    if listed is None:
        return None
    if not isinstance(listed, list):
        http.unexpected(f"{base}/splits", "is no list")
    return [_split_name(http, base, split) for split in cast("list[Any]", listed)]


def chosen_splits(known: Sequence[str], chosen: Sequence[str] | None, what: str) -> Sequence[str]:
    """The splits to serve.

    Args:
        known: Those of the server.
        chosen: Those that are wanted; all if not given.
        what: What the server is.

    Raises:
        InvalidOption: The server has no such split.
    """
    if unknown := [name for name in chosen or () if name not in known]:
        raise InvalidOption(f"the {what} has no split {unknown[0]!r}; its splits are: {', '.join(known) or 'none'}")
    return known if chosen is None else chosen


async def number_of_tasks(http: UpstreamHttp, base: str, split: str) -> int | None:
    """How many tasks a split has; `None` if the server does not count them.

    Raises:
        UpstreamLost: The server's answer is no number.
    """
    answer: Any = await http.post(f"{base}/num_tasks", {"split": split})
    if answer is None:
        return None
    number = _item(answer, "num_tasks")
    if type(number) is not int or number < 0:
        http.unexpected(f"{base}/num_tasks", "has no number of tasks")
    return number


async def task_range(http: UpstreamHttp, base: str, split: str, start: int, stop: int) -> list[Any] | None:
    """The tasks from `start` to before `stop`, at most that many; `None` if the server has no ranges.

    Raises:
        UpstreamLost: The server's answer is no list of these tasks.
    """
    path = f"{base}/task_range"
    answer: Any = await http.post(path, {"split": split, "start": start, "stop": stop})
    if answer is None:
        return None
    found = _item(answer, "tasks")
    if not isinstance(found, list) or not found or len(cast("list[Any]", found)) > stop - start:
        http.unexpected(path, f"has not the tasks {start} to {stop - 1} of the split {split!r}")
    return cast("list[Any]", found)


async def all_tasks(http: UpstreamHttp, base: str, split: str) -> list[Any]:
    """All tasks of a split.

    Raises:
        UpstreamLost: The server's answer is no list of tasks.
    """
    found = _item(await http.post(f"{base}/tasks", {"split": split}), "tasks")
    if not isinstance(found, list):
        http.unexpected(f"{base}/tasks", f"lists no tasks of the split {split!r}")
    return cast("list[Any]", found)


def _split_name(http: UpstreamHttp, base: str, split: Any) -> str:
    name: Any = cast("dict[str, Any]", split).get("name") if isinstance(split, dict) else None
    if not isinstance(name, str) or not name:
        http.unexpected(f"{base}/splits", f"has {split!r} as a split")
    return name


def _item(answer: Any, key: str) -> Any:
    return cast("dict[str, Any]", answer).get(key) if isinstance(answer, dict) else None
