"""The viewer of one trajectory. It follows an episode that runs."""

from __future__ import annotations

from collections import deque
from typing import Any
from urllib.parse import quote, unquote, urlencode

from nicegui import ui

from envport.errors import EnvportError, UnknownEpisode
from envport.trajectories.archive import Archive, StoredEpisode
from envport.types import StepRecord
from envport.web.shown import (
    code,
    environment_link,
    heading,
    link,
    no_archive,
    note,
    number,
    show_facts,
    show_observation,
    show_text,
    text,
    written,
)
from envport.web.steps import show_episode, show_status, show_step, show_unseen
from envport.web.tokens import show_tokens
from envport.web.viewer import Viewer

__all__ = ["TrajectoryView"]

_SHOWN = 50
_READ = 10


class TrajectoryView:
    """What happened in an episode.

    Args:
        viewer: Who looks.
        handle: The episode, quoted as in a path.
    """

    def __init__(self, viewer: Viewer, handle: str):
        self._viewer = viewer
        self._handle = unquote(handle)
        # Index of the last call before those that are shown, and of the last one that is shown.
        self._before = 0
        self._last = 0
        self._resets = -1
        self._following = False
        # What there is of each call: what the player saw, and what it did not see.
        self._elements: deque[tuple[ui.element, ui.element | None]] = deque()

    async def build(self) -> None:
        """Make the elements, and follow the episode until the viewer leaves."""
        ui.page_title("Episode · envport")
        heading("Episode", 1)
        archive = self._viewer.parts.archive
        if archive is None:
            no_archive()
            return
        try:
            stored = await archive.episode(self._handle, self._viewer.owner)
        except UnknownEpisode:
            text("There is no such episode among those that you may see.", "p", "ev-alert")
            return
        except EnvportError as error:
            text(f"This cannot be read now: {error}", "p", "ev-alert")
            return
        self._make(stored)
        self._following = stored.info.outcome is None
        await self._refresh(archive, stored)
        await self._show_attached(archive)
        async with archive.changes() as changes:
            await self._refresh(archive)
            async for changed in changes:
                if self._handle in changed:
                    await self._refresh(archive)

    def _make(self, stored: StoredEpisode) -> None:
        code(self._handle)
        info = stored.info
        with ui.element("div").classes("ev-row"):
            link(info.environment, environment_link(info.environment))
            if stored.forked_from is not None:
                link("Forked from", f"/ui/episodes/{quote(stored.forked_from, safe='')}")
                note(f"after {stored.forked_at} calls")
        self._status = ui.element("div").classes("ev-row").props("role=status")
        with ui.element("div").classes("ev-two ev-trajectory"):
            with ui.element("section").props("aria-label='What the player saw'"):
                self._facts = ui.element("div")
                if stored.prompt:
                    heading("Task")
                    show_text(stored.prompt)
                heading("First observation")
                self._first = ui.element("div")
                heading("Calls")
                self._controls()
                self._steps = ui.element("div")
            with ui.element("section").props("aria-label='What the player did not see'"):
                self._unseen(stored)
        self._compare()

    def _unseen(self, stored: StoredEpisode) -> None:
        self._rewards: ui.element | None = None
        info = stored.info
        if not self._viewer.sees_rewards:
            note("Rewards are shown to tokens with the scope read or control.")
            return
        heading("Rewards")
        self._total = ui.element("div")
        show_facts({"Labels": ", ".join(f"{name}={value}" for name, value in info.labels.items()) or None})
        if info.task is not None and info.task.metadata:
            with ui.expansion("Metadata of the task").props("dense"):
                code(written(info.task.model_dump(mode="json")["metadata"]))
        self._attached = ui.element("div")
        note("Of the calls that are shown:")
        self._rewards = ui.element("div")

    def _controls(self) -> None:
        with ui.element("div").classes("ev-row"):
            self._place = note("")
            for name, move in (
                ("First", self._go_first),
                ("Earlier", self._go_earlier),
                ("Later", self._go_later),
                ("Latest", self._go_latest),
            ):
                ui.button(name, on_click=move).props("flat dense no-caps")

    def _compare(self) -> None:
        heading("Compare")
        with (
            ui.element("form").classes("ev-row").on("submit.prevent", lambda: self._open_comparison(other.value or ""))
        ):
            other = ui.input("Handle of another episode").props("dense outlined")
            ui.button("Compare", on_click=lambda: self._open_comparison(other.value or "")).props("flat no-caps")

    def _open_comparison(self, other: str) -> None:
        ui.navigate.to(f"/ui/compare?{urlencode({'left': self._handle, 'right': other.strip()})}")

    async def _go_first(self) -> None:
        await self._go(0, following=False)

    async def _go_earlier(self) -> None:
        await self._go(max(0, self._before - _SHOWN), following=False)

    async def _go_later(self) -> None:
        await self._go(self._last, following=False)

    async def _go_latest(self) -> None:
        await self._go(None, following=True)

    async def _go(self, before: int | None, *, following: bool) -> None:
        if (archive := self._viewer.parts.archive) is None:
            return
        stored = await archive.episode(self._handle, self._viewer.owner)
        calls = stored.info.steps + stored.info.errors
        self._following = following
        self._clear(max(0, calls - _SHOWN) if before is None else min(before, max(0, calls - 1)))
        await self._refresh(archive, stored)

    def _clear(self, before: int) -> None:
        self._before = self._last = before
        self._elements.clear()
        self._steps.clear()
        if self._rewards is not None:
            self._rewards.clear()

    async def _refresh(self, archive: Archive, stored: StoredEpisode | None = None) -> None:
        """Show what was recorded since the last time."""
        try:
            stored = stored or await archive.episode(self._handle, self._viewer.owner)
            if stored.info.resets != self._resets:
                self._begin(stored)
            calls = stored.info.steps + stored.info.errors
            if self._following and calls - self._last > _SHOWN:
                # It is faster than anybody reads.
                self._clear(calls - _SHOWN)
            room = _SHOWN if self._following else self._before + _SHOWN - self._last
            # In pieces, because calls may be large.
            while room > 0:
                steps = await archive.steps(self._handle, self._viewer.owner, self._last, min(room, _READ))
                for step in steps:
                    self._add(step)
                room -= len(steps)
                if len(steps) < _READ:
                    break
        except EnvportError as error:
            with self._status.clear():
                text(f"This cannot be read now: {error}", "p", "ev-alert")
            return
        self._show_state(stored)

    def _begin(self, stored: StoredEpisode) -> None:
        """Show a run from its beginning, or from its latest calls if it is followed. A reset begins another run."""
        self._resets = stored.info.resets
        calls = stored.info.steps + stored.info.errors
        self._clear(max(0, calls - _SHOWN) if self._following else 0)
        with self._first.clear():
            show_observation(stored.first_observation)

    def _add(self, step: StepRecord) -> None:
        if step.index <= self._last:
            return
        self._last = step.index
        with self._steps:
            seen = show_step(step)
        unseen: ui.element | None = None
        if self._rewards is not None and self._viewer.sees_rewards:
            with self._rewards:
                unseen = show_unseen(step)
        self._elements.append((seen, unseen))
        if len(self._elements) > _SHOWN:
            for element in self._elements.popleft():
                if element is not None:
                    element.delete()
            self._before += 1

    def _show_state(self, stored: StoredEpisode) -> None:
        info = stored.info
        with self._status.clear():
            show_status(info)
        with self._facts.clear():
            show_episode(info)
        calls = info.steps + info.errors
        following = ", followed live" if self._following and info.outcome is None else ""
        shown = f"{self._before + 1:,} to {self._last:,}" if self._last > self._before else "none"
        self._place.text = f"Calls {shown} of {calls:,}{following}"
        if self._rewards is not None:
            with self._total.clear():
                show_facts(
                    {"Reward": number(info.reward), "Score": number(info.score) if info.score is not None else None}
                )

    async def _show_attached(self, archive: Archive) -> None:
        if self._rewards is None:
            return
        attached: dict[str, Any] | None = await archive.attached(self._handle, "rollout", self._viewer.owner)
        if attached:
            with self._attached:
                show_tokens(attached)
