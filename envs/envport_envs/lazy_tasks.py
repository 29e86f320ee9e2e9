"""Tasks that are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

from envport import Task

__all__ = ["LazyTasks", "held_out"]

ItemT = TypeVar("ItemT")

_HELD_OUT = 5


class LazyTasks(Sequence[Task], Generic[ItemT]):
    """The tasks of a split.

    Args:
        items: One item for each task.
        make: Makes a task from an item.
    """

    def __init__(self, items: Sequence[ItemT], make: Callable[[ItemT], Task]):
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return LazyTasks(self._items[index], self._make)
        return self._make(self._items[index])


def held_out(number: int, split: str) -> bool:
    """Whether a number belongs to a split. Every fifth number belongs to `test`, the others to `train`."""
    return (number % _HELD_OUT == 0) == (split == "test")
