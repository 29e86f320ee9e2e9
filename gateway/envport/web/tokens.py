"""Token ids and logprobs of a rollout, as a trainer stored them with its episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from nicegui import ui

from envport.web.shown import heading, note, number, show_facts, text

__all__ = ["columns_of", "show_tokens"]

_ROWS = 100


def columns_of(data: Mapping[str, Any]) -> list[dict[str, list[Any]]]:
    """The lists of a rollout, those of the same length beside each other.

    Prompts and completions have different lengths, and the logprobs are of the completion.
    """
    by_length: dict[int, dict[str, list[Any]]] = {}
    for name, value in data.items():
        if isinstance(value, list) and value:
            items = cast("list[Any]", value)
            by_length.setdefault(len(items), {})[name] = items
    return list(by_length.values())


def show_tokens(data: Mapping[str, Any]) -> None:
    """What a trainer stored: numbers as facts, lists as tables."""
    with ui.expansion("Tokens and logprobs of the rollout").props("dense"):
        show_facts({name: _cell(value) for name, value in data.items() if not isinstance(value, list | dict)})
        for columns in columns_of(data):
            TokenTable(columns).build()


class TokenTable:
    """Lists of the same length, by page.

    Args:
        columns: The lists by name.
    """

    def __init__(self, columns: Mapping[str, list[Any]]):
        self._columns = columns
        self._length = len(next(iter(columns.values())))

    def build(self) -> None:
        """Make the elements."""
        heading(", ".join(self._columns), 3)
        note(f"{self._length:,} tokens")
        pages = -(-self._length // _ROWS)
        if pages > 1:
            ui.pagination(
                1, pages, direction_links=True, on_change=lambda event: self._show((event.value or 1) - 1)
            ).props("max-pages=5")
        self._holder = ui.element("div").classes("ev-scroll")
        self._show(0)

    def _show(self, page: int) -> None:
        with self._holder.clear(), ui.element("table").classes("ev-table"):
            with ui.element("tr"):
                text("", "th")
                for name in self._columns:
                    text(name, "th")
            for place in range(page * _ROWS, min(self._length, (page + 1) * _ROWS)):
                with ui.element("tr"):
                    text(str(place), "td")
                    for values in self._columns.values():
                        text(_cell(values[place]), "td")


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)[:200]
