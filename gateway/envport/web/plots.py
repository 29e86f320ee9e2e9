"""Plots of rewards, lengths, times and outcomes over time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nicegui import ui

from envport.errors import EnvportError
from envport.trajectories.archive import Archive, Period
from envport.web.filters import AGES, Asked
from envport.web.shown import heading, moment, no_archive, note, text
from envport.web.viewer import Viewer

__all__ = ["PlotsView", "show_plots"]

_POINTS = 60
_SHORTEST = 10.0
_ALL_SECONDS = 30 * 86_400.0
_PALE = "#8884"
_TEXT = "#888"


class PlotsView:
    """Plots of the episodes that a filter lets through.

    Args:
        viewer: Who looks.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer

    async def build(self, query: Mapping[str, str]) -> None:
        """Make the elements.

        Args:
            query: The query of the address.
        """
        ui.page_title("Plots · envport")
        heading("Plots", 1)
        archive = self._viewer.parts.archive
        if archive is None:
            no_archive()
            return
        asked = Asked.of(query).said
        environments = {"": "any", **{name: name for name in self._viewer.parts.table.environments}}
        environment = asked.get("environment", "")
        with ui.element("div").classes("ev-row"):
            self._environment = ui.select(
                environments if environment in environments else {**environments, environment: environment},
                value=environment,
                label="Environment",
                on_change=lambda: self._show(archive),
            ).props("dense outlined")
            self._age = ui.select(
                {**AGES, "": "last 30 days"}, value="3600", label="Opened", on_change=lambda: self._show(archive)
            ).props("dense outlined")
            self._labels: ui.input | None = None
            if self._viewer.sees_rewards:
                self._labels = ui.input("Labels, as run=a", value=asked.get("labels", "")).props("dense outlined")
            ui.button("Show", on_click=lambda: self._show(archive)).props("outline no-caps")
        self._holder = ui.element("div")
        await self._show(archive)

    async def _show(self, archive: Archive) -> None:
        seconds = float(self._age.value or _ALL_SECONDS)
        labels = self._labels.value if self._labels is not None else None
        asked = Asked.of({"environment": self._environment.value or "", "labels": labels or ""})
        try:
            wanted = asked.filter(self._viewer.owner, rewards=self._viewer.sees_rewards)
            since = replace(wanted, since=time.time() - seconds)
            periods = await archive.periods(since, max(_SHORTEST, seconds / _POINTS))
        except EnvportError as error:
            with self._holder.clear():
                text(str(error), "p", "ev-alert")
            return
        with self._holder.clear():
            show_plots(periods, rewards=self._viewer.sees_rewards)


def show_plots(periods: Sequence[Period], *, rewards: bool) -> None:
    """Plots over time.

    Args:
        periods: What happened, oldest first.
        rewards: Whether the viewer sees rewards.
    """
    if not periods:
        note("No episode is like that.")
        return
    episodes = sum(period.episodes for period in periods)
    note(f"{episodes:,} episodes from {moment(periods[0].start)} UTC on. Points are means.")
    with ui.element("div").classes("ev-cards"):
        if rewards:
            _line("Reward", periods, lambda period: period.reward)
        _line("Length (steps)", periods, lambda period: period.steps)
        _line("Duration (s)", periods, lambda period: period.seconds)
        _line("Time for each step, with the player's (s)", periods, _per_step)
        _outcomes(periods)


def _per_step(period: Period) -> float | None:
    return period.seconds / period.steps if period.seconds is not None and period.steps else None


def _line(title: str, periods: Sequence[Period], value: Callable[[Period], float | None]) -> None:
    points = [[period.start * 1000, value(period)] for period in periods]
    series = [{"type": "line", "data": points, "connectNulls": True, "symbolSize": 5, "name": title}]
    _chart(title, series)


def _outcomes(periods: Sequence[Period]) -> None:
    reasons = sorted({reason for period in periods for reason in period.outcomes})
    series = [
        {
            "type": "bar",
            "stack": "outcomes",
            "name": reason,
            "data": [[period.start * 1000, period.outcomes.get(reason, 0)] for period in periods],
        }
        for reason in reasons
    ]
    _chart("Outcomes", series, legend=True)


def _chart(title: str, series: list[dict[str, Any]], *, legend: bool = False) -> None:
    axis = {"axisLabel": {"color": _TEXT, "hideOverlap": True}, "splitLine": {"lineStyle": {"color": _PALE}}}
    options: dict[str, Any] = {
        "animation": False,
        "useUTC": True,
        # HTML is made of names otherwise.
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "grid": {"left": 48, "right": 12, "top": 34 if legend else 12, "bottom": 28},
        "xAxis": {"type": "time", **axis},
        "yAxis": {"type": "value", "scale": True, **axis},
        "series": series,
    }
    if legend:
        options["legend"] = {"type": "scroll", "top": 0, "textStyle": {"color": _TEXT}}
        options["yAxis"]["scale"] = False
    with ui.element("section").classes("ev-card"):
        heading(title, 3)
        ui.echart(options).classes("ev-chart").props(f'role=img aria-label="{title} over time"')
