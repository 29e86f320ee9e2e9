"""The live list of recorded episodes, with filters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from envport.errors import EnvportError, InvalidRequest
from envport.trajectories.archive import Archive, EpisodePage, StoredEpisode
from envport.types import Reason, Status
from envport.web.filters import AGES, Asked, choices_of
from envport.web.shown import heading, moment, no_archive, note, number, text
from envport.web.viewer import Viewer

__all__ = ["EpisodeListView"]

_PAGE = 50
# More often than this, a list that changes cannot be read.
_PAUSE_SECONDS = 0.5
_SHOWN_LABELS = 60
_MORE = ("reason", "min_reward", "max_reward", "since", "until", "labels", "principal")
_HANDLE_CELL = """
<q-td :props="props"><a :href="props.row.href">{{ props.row.short }}</a></q-td>
"""


class EpisodeListView:
    """The list.

    Args:
        viewer: Who looks.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer
        self._fields: dict[str, Any] = {}
        self._before: list[str | None] = [None]
        self._page = EpisodePage([], None)

    async def build(self, query: Mapping[str, str]) -> None:
        """Make the elements, and follow what happens until the viewer leaves.

        Args:
            query: The query of the address.
        """
        ui.page_title("Episodes · envport")
        heading("Episodes", 1)
        archive = self._viewer.parts.archive
        if archive is None:
            no_archive()
            return
        self._asked = Asked.of(query)
        self._before = [None]
        self._filters()
        self._problem = text("", "p", "ev-alert").props("role=alert")
        self._count = note("")
        self._table: Any = self._make_table()
        with ui.element("div").classes("ev-row"):
            self._newer = ui.button("Newer", on_click=self._go_newer).props("flat no-caps")
            self._older = ui.button("Older", on_click=self._go_older).props("flat no-caps")
            ui.button("Compare the two selected", on_click=self._compare).props("flat no-caps")
        await self._load()
        async with archive.changes() as changes:
            await self._load()
            async for _ in changes:
                await self._load()
                await asyncio.sleep(_PAUSE_SECONDS)

    def _filters(self) -> None:
        viewer = self._viewer
        environments = {"": "any", **{name: name for name in viewer.parts.table.environments}}
        with ui.element("form").classes("ev-row").props("aria-label=Filters").on("submit.prevent", self._filter):
            self._choice("environment", "Environment", environments)
            self._choice("status", "Status", choices_of(Status))
            self._choice("live", "Running", {"": "any", "yes": "yes", "no": "no"})
            self._choice("age", "Opened", AGES)
            more = ui.expansion("More filters", value=any(name in self._asked.said for name in _MORE)).props("dense")
            with more, ui.element("div").classes("ev-row"):
                self._choice("reason", "Reason", choices_of(Reason))
                if viewer.sees_rewards:
                    self._typed("min_reward", "Reward from")
                    self._typed("max_reward", "Reward to")
                    self._typed("labels", "Labels: run=a, sample=2")
                if viewer.owner is None:
                    self._typed("principal", "Principal")
                self._typed("since", "Opened from (UTC)", "type=datetime-local stack-label")
                self._typed("until", "Opened before (UTC)", "type=datetime-local stack-label")
            ui.button("Filter").props("outline no-caps type=submit")

    def _choice(self, name: str, label: str, choices: dict[str, str]) -> None:
        value = self._asked.said.get(name, "")
        # A filter of an address may be of an environment that is no longer served.
        choices = choices if value in choices else {**choices, value: value}
        self._fields[name] = ui.select(choices, value=value, label=label).props("dense outlined")

    def _typed(self, name: str, label: str, props: str = "") -> None:
        self._fields[name] = ui.input(label, value=self._asked.said.get(name, "")).props(f"dense outlined {props}")

    def _make_table(self) -> Any:
        columns: list[dict[str, Any]] = [
            _column("short", "Episode"),
            _column("status", "Status"),
            *([_column("reward", "Reward")] if self._viewer.sees_rewards else []),
            _column("environment", "Environment"),
            _column("steps", "Steps"),
            _column("opened", "Opened (UTC)", wide=True),
            *([_column("labels", "Labels", wide=True)] if self._viewer.sees_rewards else []),
            *([_column("principal", "Principal", wide=True)] if self._viewer.owner is None else []),
        ]
        table: Any = ui.table(columns=columns, rows=[], row_key="handle", selection="multiple", pagination=_PAGE)
        table.props("flat dense hide-pagination no-data-label='No episode is like that.'").classes("ev-list")
        table.add_slot("body-cell-short", _HANDLE_CELL)
        return table

    async def _filter(self, _: Any = None) -> None:
        self._asked = Asked.of({name: str(field.value or "") for name, field in self._fields.items()})
        self._before = [None]
        ui.navigate.history.replace(self._asked.address)
        await self._load()

    async def _go_older(self) -> None:
        if self._page.next is not None:
            self._before.append(self._page.next)
            await self._load()

    async def _go_newer(self) -> None:
        if len(self._before) > 1:
            self._before.pop()
            await self._load()

    async def _load(self) -> None:
        archive = self._viewer.parts.archive
        if archive is None:
            return
        problem = await self._read(archive)
        self._problem.set_visibility(problem is not None)
        self._problem.text = problem or ""
        if problem is None:
            self._show()

    async def _read(self, archive: Archive) -> str | None:
        """Read the page that is looked at. Returns what is wrong."""
        try:
            wanted = self._asked.filter(self._viewer.owner, rewards=self._viewer.sees_rewards)
            self._page = await archive.find(wanted, _PAGE, self._before[-1])
            self._total = await archive.count(wanted)
        except InvalidRequest as error:
            return str(error)
        except EnvportError as error:
            return f"The list cannot be read now: {error}"
        return None

    def _show(self) -> None:
        page = len(self._before)
        self._count.text = f"{self._total:,} episodes, page {page} of {max(1, -(-self._total // _PAGE))}. It is live."
        rows = [self._row(stored) for stored in self._page.episodes]
        if rows != self._table.rows:
            self._table.rows = rows
        self._newer.set_enabled(page > 1)
        self._older.set_enabled(self._page.next is not None)

    def _row(self, stored: StoredEpisode) -> dict[str, Any]:
        info = stored.info
        labels = ", ".join(f"{name}={value}" for name, value in info.labels.items())
        row = {
            "handle": info.episode_id,
            "short": f"{info.episode_id[:10]}…",
            "href": f"/ui/episodes/{info.episode_id}",
            "environment": info.environment,
            "status": info.outcome.reason if info.outcome is not None else info.status,
            "steps": str(info.steps),
            "opened": moment(info.created_at),
            "principal": stored.principal,
        }
        if self._viewer.sees_rewards:
            row["reward"] = number(info.reward)
            row["labels"] = labels if len(labels) <= _SHOWN_LABELS else f"{labels[: _SHOWN_LABELS - 1]}…"
        return row

    def _compare(self) -> None:
        chosen: list[str] = [row["handle"] for row in self._table.selected]
        if len(chosen) != 2:
            ui.notify(f"Select two episodes; {len(chosen)} are selected.")
            return
        ui.navigate.to(f"/ui/compare?{urlencode({'left': chosen[0], 'right': chosen[1]})}")


def _column(name: str, label: str, *, wide: bool = False) -> dict[str, Any]:
    hidden = {"classes": "ev-wide", "headerClasses": "ev-wide"} if wide else {}
    return {"name": name, "label": label, "field": name, "align": "left", **hidden}
