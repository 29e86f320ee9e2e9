"""Showing the calls of an episode: what the player did and saw, and, apart from that, what it did not see."""

from __future__ import annotations

from datetime import UTC, datetime

from nicegui import ui

from envport.types import EpisodeInfo, StepRecord
from envport.web.shown import code, heading, moment, note, number, show_facts, show_observation, text, written

__all__ = ["show_episode", "show_status", "show_step", "show_unseen"]


def show_status(info: EpisodeInfo) -> None:
    """How an episode stands."""
    if info.outcome is None:
        text(info.status, "span", "ev-chip ev-live")
        return
    text(info.outcome.reason, "span", "ev-chip ev-bad" if info.outcome.fault else "ev-chip")
    note(info.outcome.message)


def show_episode(info: EpisodeInfo) -> None:
    """What an episode is, as its player may know it."""
    show_facts(
        {
            "Environment": info.environment,
            "Split": info.split,
            "Task": info.task.id if info.task is not None else None,
            "Seed": info.seed,
            "Opened": f"{moment(info.created_at)} UTC",
            "Ended": f"{moment(info.ended_at)} UTC" if info.ended_at is not None else None,
            "Steps": info.steps,
            "Refused calls": info.errors or None,
            "Resets": info.resets or None,
        }
    )


def show_step(step: StepRecord, *, marked: bool = False) -> ui.element:
    """A call: the tool, the arguments, and what the player got back."""
    classes = f"ev-step{' ev-bad' if step.error else ''}{' ev-marked' if marked else ''}"
    with ui.element("article").classes(classes).props(f"data-step={step.index}") as shown:
        with ui.element("div").classes("ev-row"):
            heading(f"{step.index}. {step.tool}", 3)
            if step.error:
                text(step.error, "span", "ev-chip ev-bad")
            if step.terminated or step.truncated:
                text("terminated" if step.terminated else "truncated", "span", "ev-chip")
            when = datetime.fromtimestamp(step.started_at, UTC)
            note(f"{when:%H:%M:%S} · {step.seconds * 1000:.3g} ms")
        if step.arguments:
            code(written(step.arguments))
        show_observation(step.observation)
    return shown


def show_unseen(step: StepRecord) -> ui.element | None:
    """What the player of a call did not see: its reward, and diagnostics. `None` if there is nothing."""
    if step.reward is None and not step.info:
        return None
    with ui.element("div").classes("ev-step").props(f"data-reward-of={step.index}") as shown:
        text(f"Step {step.index}: {number(step.reward)}", "p", "ev-p")
        if step.info:
            with ui.expansion("Diagnostics").props("dense"):
                code(written(step.info))
    return shown
