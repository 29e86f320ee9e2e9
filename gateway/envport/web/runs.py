"""Training runs and evaluations, found by the labels of their episodes."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, unquote, urlencode

from nicegui import ui

from envport.errors import EnvportError
from envport.trajectories.archive import Archive, EpisodeFilter, StoredEpisode
from envport.web.plots import show_plots
from envport.web.shown import heading, link, no_archive, note, number, text
from envport.web.viewer import Viewer

__all__ = ["RunView", "RunsView", "by_group"]

_MOST_RUNS = 50
_MOST_EPISODES = 400
_POINTS = 60


def by_group(episodes: Sequence[StoredEpisode]) -> dict[str, list[StoredEpisode]]:
    """Episodes by their label `group`, each group in the order of `sample`."""
    groups: dict[str, list[StoredEpisode]] = {}
    for stored in episodes:
        groups.setdefault(stored.info.labels.get("group", ""), []).append(stored)
    for members in groups.values():
        members.sort(key=_sample)
    return groups


def _sample(stored: StoredEpisode) -> tuple[int, float]:
    said = stored.info.labels.get("sample", "")
    return (int(said) if said.isascii() and said.isdigit() else 0), stored.info.created_at


class RunsView:
    """All runs.

    Args:
        viewer: Who looks.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer

    async def build(self) -> None:
        """Make the elements."""
        ui.page_title("Runs · envport")
        heading("Training runs and evaluations", 1)
        note("The episodes of a run have the same label run. Bridges set it, and you can: labels={'run': 'mine'}.")
        archive = self._viewer.parts.archive
        if archive is None:
            no_archive()
            return
        if not self._viewer.sees_rewards:
            # Players do not see labels.
            note("Runs are shown to tokens with the scope read or control.")
            return
        owner = self._viewer.owner
        try:
            runs = await archive.label_values("run", owner, _MOST_RUNS)
        except EnvportError as error:
            text(str(error), "p", "ev-alert")
            return
        if not runs:
            note("There is none yet.")
        with ui.element("ul"):
            for run in runs:
                count = await archive.count(EpisodeFilter(principal=owner, labels={"run": run}))
                live = await archive.count(EpisodeFilter(principal=owner, labels={"run": run}, live=True))
                with ui.element("li"):
                    link(run, f"/ui/runs/{quote(run, safe='')}")
                    running = f", {live} running" if live else ""
                    text(f" – {count:,} episode{'s' if count != 1 else ''}{running}", "span")


class RunView:
    """One run: its plots, and its groups with their members beside each other.

    Args:
        viewer: Who looks.
        name: Value of the label `run`, quoted as in a path.
    """

    def __init__(self, viewer: Viewer, name: str):
        self._viewer = viewer
        self._run = unquote(name)

    async def build(self) -> None:
        """Make the elements."""
        ui.page_title("Run · envport")
        heading(f"Run {self._run}", 1)
        archive = self._viewer.parts.archive
        if archive is None:
            no_archive()
            return
        if not self._viewer.sees_rewards:
            # Players do not see labels.
            note("Runs are shown to tokens with the scope read or control.")
            return
        try:
            await self._show(archive)
        except EnvportError as error:
            text(str(error), "p", "ev-alert")

    async def _show(self, archive: Archive) -> None:
        wanted = EpisodeFilter(principal=self._viewer.owner, labels={"run": self._run})
        page = await archive.find(wanted, _MOST_EPISODES)
        if not page.episodes:
            note("It has no episodes that you may see.")
            return
        link("As a list", f"/ui/episodes?{urlencode({'labels': f'run={self._run}'})}")
        opened = [stored.info.created_at for stored in page.episodes]
        oldest = min(opened)
        since = EpisodeFilter(principal=wanted.principal, labels=wanted.labels, since=oldest)
        periods = await archive.periods(since, max(1.0, (max(opened) - oldest) / _POINTS))
        show_plots(periods, rewards=True)
        heading("Groups")
        if page.next is not None:
            note(f"Of the latest {_MOST_EPISODES} episodes.")
        for group, members in by_group(page.episodes).items():
            self._group(group, members)

    def _group(self, group: str, members: Sequence[StoredEpisode]) -> None:
        heading(group or "without a group", 3)
        rewards = [it.info.reward for it in members if it.info.reward is not None]
        if rewards:
            mean = sum(rewards) / len(rewards)
            spread = (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5
            count = f"{len(members)} member{'s' if len(members) != 1 else ''}"
            note(f"{count}, mean reward {number(mean)}, standard deviation {number(spread)}")
        with ui.element("div").classes("ev-members").props("tabindex=0 role=group"):
            for stored in members:
                self._member(stored)

    def _member(self, stored: StoredEpisode) -> None:
        info = stored.info
        with ui.element("div").classes("ev-card"):
            link(f"sample {info.labels.get('sample', '–')}", f"/ui/episodes/{quote(info.episode_id, safe='')}")
            note(info.outcome.reason if info.outcome is not None else info.status)
            text(f"reward {number(info.reward)}", "p", "ev-p")
            note(f"{info.steps} steps")
