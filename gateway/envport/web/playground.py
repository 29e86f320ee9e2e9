"""The playground: an episode that is played with forms."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from nicegui import background_tasks, ui

from envport.definition import EnvironmentDefinition
from envport.episodes import OpenRequest
from envport.episodes.base import Opening
from envport.episodes.play import CallResult
from envport.errors import EnvportError, InvalidArguments, UnknownEpisode
from envport.tools.schema import ToolSpec
from envport.types import Choice, EpisodeInfo, Observation
from envport.web.form_elements import ToolForm
from envport.web.shown import code, heading, link, note, number, show_observation, show_text, text, written
from envport.web.viewer import Viewer

__all__ = ["Playground"]

logger = logging.getLogger(__name__)

_LABELS = {"client": "page"}
_MOST_SHOWN = 200
# With more tools, the observation would not be beside the form.
_MOST_FORMS = 5


@dataclass(slots=True)
class _Move:
    """A call that was played.

    Attributes:
        tool: Name of the tool.
        arguments: Its arguments.
        seen: What the player saw.
        error: Whether the environment or the gateway refused the call.
        reward: Reward of the step.
    """

    tool: str
    arguments: dict[str, Any]
    seen: Observation | str
    error: bool = False
    reward: float | None = None


@dataclass(slots=True)
class _Game:
    """An episode that is played here.

    Attributes:
        opening: What the player got at the beginning.
        principal: Name of the principal that plays.
        moves: The calls so far.
        seen: What the player saw last.
        ended: How it ended, in words.
        info: State of the episode at its end.
    """

    opening: Opening
    principal: str
    moves: list[_Move] = field(default_factory=list[_Move])
    seen: Observation | str = ""
    ended: str | None = None
    info: EpisodeInfo | None = None


class Playground:
    """Plays episodes through the table, for one browser tab. The episode stays while the viewer looks at other views.

    Args:
        viewer: Who plays.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer
        self._game: _Game | None = None
        self._busy = False

    def build(self, name: str) -> None:
        """Make the elements.

        Args:
            name: Name of the environment, quoted as in a path.
        """
        name = unquote(name)
        ui.page_title(f"Play {name} · envport")
        spec = self._viewer.parts.table.environments.get(name)
        heading(f"Play {name}", 1)
        if spec is None:
            text("There is no such environment here.", "p", "ev-alert")
            return
        if not self._viewer.may_act:
            text("Your token may only look. To play, it needs the scope play or control.", "p", "ev-alert")
            return
        if self._game is not None and self._game.opening.spec.name != name:
            self.leave()
        self._start_form(spec)
        with ui.element("div").classes("ev-two"):
            with ui.element("section").props("aria-label=Actions"):
                self._actions = ui.element("div")
                self._history = ui.element("div")
            self._seen = ui.element("section").classes("ev-first-here")
            self._seen.props("aria-label=Observation aria-live=polite")
        self._playable: Opening | None = None
        self._show_actions()
        self._show()

    def leave(self) -> None:
        """Close the episode, so that it does not hold a place. The tab is closed, or another environment is played."""
        game, self._game = self._game, None
        if game is not None and game.ended is None:
            closing = self._close(game.opening.handle, game.principal)
            background_tasks.create(closing, name="close")  # pyright: ignore[reportUnknownMemberType]

    async def _close(self, handle: str, principal: str) -> None:
        try:
            await self._viewer.parts.table.close(handle, principal)
        except UnknownEpisode:
            logger.debug("the episode %s was gone when its tab was closed", handle)

    def _start_form(self, spec: EnvironmentDefinition) -> None:
        with ui.element("div").classes("ev-row"):
            splits = list(spec.splits)
            split = ui.select(splits, value=splits[0], label="Split").props("dense outlined") if splits else None
            task = ui.input("Task (index)").props("dense outlined inputmode=numeric") if splits else None
            seed = ui.input("Seed").props("dense outlined inputmode=numeric")

            async def start() -> None:
                chosen = split.value if split is not None else None
                await self._start(spec.name, chosen, (task.value if task is not None else None) or "", seed.value or "")

            ui.button("Start", on_click=start).props("outline no-caps")
        note("A task or seed that is left empty is drawn. Starting again closes the episode that runs here.")

    async def _start(self, name: str, split: str | None, task: str, seed: str) -> None:
        numbers: list[int | None] = []
        for what, said in (("Task", task), ("Seed", seed)):
            said = said.strip()
            if said and not (said.isascii() and said.isdigit()):
                ui.notify(f"{what} is {said[:40]!r}; it has to be a whole number from 0.", type="negative")
                return
            numbers.append(int(said) if said else None)
        choice = Choice(split, numbers[0], numbers[1])
        await self._doing(lambda: self._open(name, choice))

    async def _open(self, name: str, choice: Choice) -> None:
        self.leave()
        principal = self._viewer.player()
        opening = await self._viewer.parts.table.open(OpenRequest(name, principal, choice, labels=_LABELS))
        self._game = _Game(opening, principal, seen=opening.observation)

    async def _call(self, tool: ToolSpec, arguments: dict[str, Any]) -> None:
        game, table, principal = self._game, self._viewer.parts.table, self._viewer.player()
        if game is None:
            return
        try:
            found = table.find(game.opening.handle, principal)
            result = await table.call(found, tool.name, arguments)
        except InvalidArguments as error:
            game.moves.append(_Move(tool.name, arguments, str(error), error=True))
            game.seen = str(error)
            return
        except EnvportError as error:
            game.moves.append(_Move(tool.name, arguments, str(error), error=True))
            game.seen = str(error)
            await self._after_error(game, principal)
            return
        game.moves.append(_Move(tool.name, arguments, result.observation, result.is_error, result.reward))
        game.seen = result.observation
        await self._after(game, result, principal)

    async def _after(self, game: _Game, result: CallResult, principal: str) -> None:
        if result.outcome is not None:
            game.ended = result.outcome.message
            game.info = await self._viewer.parts.table.info(game.opening.handle, principal)

    async def _after_error(self, game: _Game, principal: str) -> None:
        """An error may have ended the episode, or it had ended before."""
        try:
            info = await self._viewer.parts.table.info(game.opening.handle, principal)
        except UnknownEpisode:
            game.ended = "The episode is gone."
            return
        if info.outcome is not None:
            game.ended, game.info = info.outcome.message, info

    async def _finish(self) -> None:
        if (game := self._game) is not None:
            game.info = await self._viewer.parts.table.finish(game.opening.handle, self._viewer.player())
            game.ended = game.info.outcome.message if game.info.outcome is not None else "It has ended."

    async def _doing(self, action: Callable[[], Awaitable[None]]) -> None:
        """Run one action at a time, and show what came of it."""
        if self._busy:
            return
        self._busy = True
        try:
            await action()
        except EnvportError as error:
            ui.notify(str(error), type="negative", multi_line=True)
        finally:
            self._busy = False
        self._show()

    def _show(self) -> None:
        game = self._game
        # Forms stay while they are of use, so that the keyboard's focus stays where it is.
        if self._playable is not (game.opening if game is not None and game.ended is None else None):
            self._show_actions()
        with self._history.clear():
            if game is not None:
                self._show_history(game)
        with self._seen.clear():
            if game is not None:
                self._observation(game)

    def _show_actions(self) -> None:
        game = self._game
        self._playable = game.opening if game is not None and game.ended is None else None
        with self._actions.clear():
            if game is None:
                note("Start an episode to see its tools.")
            if self._playable is None:
                return
            heading("Actions")
            tools = self._playable.tools.tools
            if len(tools) > _MOST_FORMS:
                self._one_form(tools)
            else:
                for tool in tools.values():
                    ToolForm(tool, self._player_of(tool)).build()
            ui.button("Finish the episode", on_click=lambda: self._doing(self._finish)).props("flat no-caps")

    def _one_form(self, tools: Mapping[str, ToolSpec]) -> None:
        """A choice of the tool, and the form of the one that is chosen."""

        def show(name: str) -> None:
            with holder.clear():
                ToolForm(tools[name], self._player_of(tools[name])).build()

        first = next(iter(tools))
        ui.select(list(tools), value=first, label="Tool", on_change=lambda event: show(event.value)).props(
            "dense outlined"
        )
        holder = ui.element("div")
        show(first)

    def _show_history(self, game: _Game) -> None:
        heading(f"History ({len(game.moves)})")
        if len(game.moves) > _MOST_SHOWN:
            note(f"The last {_MOST_SHOWN} actions.")
        with ui.element("ol").props(f"reversed start={len(game.moves)}"):
            for move in reversed(game.moves[-_MOST_SHOWN:]):
                self._move(move)

    def _player_of(self, tool: ToolSpec) -> Callable[[dict[str, Any]], Awaitable[None]]:
        async def play(arguments: dict[str, Any]) -> None:
            await self._doing(lambda: self._call(tool, arguments))

        return play

    def _move(self, move: _Move) -> None:
        with ui.element("li"):
            said = ", ".join(f"{name}={_short(value)}" for name, value in move.arguments.items())
            reward = f" → reward {number(move.reward)}" if move.reward is not None and self._viewer.sees_rewards else ""
            text(f"{move.tool}({said}){' — refused' if move.error else ''}{reward}", "span")

    def _observation(self, game: _Game) -> None:
        heading("Observation")
        if game.ended is not None:
            with ui.element("div").classes("ev-good").props("role=status"):
                text(f"The episode has ended. {game.ended}", "p", "ev-p")
                if game.info is not None and self._viewer.sees_rewards:
                    text(f"Reward: {number(game.info.reward)}", "p", "ev-p")
        if isinstance(game.seen, str):
            text(game.seen, "p", "ev-alert")
        else:
            show_observation(game.seen)
        if game.opening.prompt:
            heading("Task", 3)
            show_text(game.opening.prompt)
        note(f"Seed {game.opening.seed}")
        link("Its trajectory", f"/ui/episodes/{game.opening.handle}")
        if game.moves:
            with ui.expansion("The first observation").props("dense"):
                show_observation(game.opening.observation)
            with ui.expansion("The last call").props("dense"):
                code(written({"tool": game.moves[-1].tool, "arguments": game.moves[-1].arguments}), "The last call")


def _short(value: Any) -> str:
    said = written(value) if isinstance(value, dict | list) else repr(value)
    return said if len(said) <= 60 else f"{said[:59]}…"
