"""Two trajectories side by side, and where they differ first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from envport.errors import EnvportError, UnknownEpisode
from envport.trajectories.archive import Archive, StoredEpisode
from envport.trajectories.difference import (
    Difference,
    first_difference_of_steps,
    first_difference_of_values,
)
from envport.types import StepRecord
from envport.web.shown import code, heading, link, no_archive, note, number, show_observation, text, written
from envport.web.steps import show_episode, show_status, show_step
from envport.web.viewer import Viewer

__all__ = ["ComparisonView"]

_CHUNK = 200
_AROUND = 3
_WINDOW = 10


class ComparisonView:
    """Two episodes beside each other.

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
        ui.page_title("Compare · envport")
        heading("Two episodes", 1)
        archive = self._viewer.parts.archive
        if archive is None:
            no_archive()
            return
        sides: list[StoredEpisode] = []
        for side in ("left", "right"):
            handle = query.get(side, "")
            try:
                sides.append(await archive.episode(handle, self._viewer.owner))
            except UnknownEpisode:
                text(f"There is no episode {handle[:80]!r} among those that you may see.", "p", "ev-alert")
                return
            except EnvportError as error:
                text(f"This cannot be read now: {error}", "p", "ev-alert")
                return
        self._sides = sides
        verdict = ui.element("div").props("role=status")
        with verdict:
            note("Comparing…")
        difference = await self._difference(archive)
        with verdict.clear():
            self._tell(difference)
        self._facts()
        self._steps = ui.element("div")
        await self._window(
            archive, max(0, (difference.step if difference is not None else 1) - 1 - _AROUND), difference
        )

    async def _difference(self, archive: Archive) -> Difference | None:
        """Where they differ first, read in pieces: trajectories may be long, and others want the event loop too."""
        left, right = self._sides
        found = first_difference_of_values(left.first_observation.model_dump(), right.first_observation.model_dump(), 0)
        before = 0
        while found is None:
            pair = [await self._read(archive, side, before, _CHUNK) for side in self._sides]
            found = first_difference_of_steps(pair[0], pair[1], before)
            if len(pair[0]) < _CHUNK:
                break
            before += _CHUNK
        return found

    async def _read(self, archive: Archive, side: StoredEpisode, after: int, limit: int) -> list[StepRecord]:
        steps = await archive.steps(side.info.episode_id, self._viewer.owner, after, limit)
        if self._viewer.sees_rewards:
            return steps
        # Where rewards differ would tell what they are.
        return [step.model_copy(update={"reward": None, "info": {}}) for step in steps]

    def _tell(self, difference: Difference | None) -> None:
        if difference is None:
            text("They do not differ.", "p", "ev-good")
            return
        where = f"step {difference.step}" if difference.step else "the first observation"
        text(f"The first difference is in {where}, at {difference.path}", "p", "ev-alert")
        with ui.element("div").classes("ev-two"):
            for side, value in (("left", difference.left), ("right", difference.right)):
                with ui.element("div"):
                    if difference.only not in (None, side):
                        note("Nothing: this one has ended." if difference.path == "$" else "Nothing.")
                    else:
                        code(written(value))

    def _facts(self) -> None:
        with ui.element("div").classes("ev-two"):
            for side in self._sides:
                with ui.element("section").classes("ev-card"):
                    handle = side.info.episode_id
                    link(f"{handle[:16]}…", f"/ui/episodes/{handle}")
                    with ui.element("div").classes("ev-row"):
                        show_status(side.info)
                    show_episode(side.info)
                    if self._viewer.sees_rewards:
                        note(f"Reward {number(side.info.reward)}")
                    with ui.expansion("First observation").props("dense"):
                        show_observation(side.first_observation)

    async def _window(self, archive: Archive, before: int, difference: Difference | None) -> None:
        """Show the calls after a place, each pair beside each other."""
        try:
            pair = [await self._read(archive, side, before, _WINDOW) for side in self._sides]
        except EnvportError as error:
            with self._steps.clear():
                text(f"The calls cannot be read now: {error}", "p", "ev-alert")
            return
        with self._steps.clear():
            with ui.element("div").classes("ev-row"):
                heading(f"Calls from {before + 1}")
                self._button("Earlier", archive, max(0, before - _WINDOW), difference)
                self._button("Later", archive, before + _WINDOW, difference)
            for place in range(max(len(pair[0]), len(pair[1]))):
                with ui.element("div").classes("ev-two"):
                    for steps in pair:
                        if place >= len(steps):
                            note("It has ended.")
                            continue
                        marked = difference is not None and steps[place].index == difference.step
                        show_step(steps[place], marked=marked)

    def _button(self, name: str, archive: Archive, before: int, difference: Difference | None) -> None:
        async def go(_: Any = None) -> None:
            await self._window(archive, before, difference)

        handler: Callable[[Any], Any] = go
        ui.button(name, on_click=handler).props("flat dense no-caps")
