"""What every view of the page has around it: the navigation, light or dark, and who looks."""

import json
import logging
from pathlib import Path
from typing import Any

from nicegui import PageArguments, ui
from starlette.requests import Request

from envport.errors import EnvportError, Unauthenticated
from envport.web.catalogue import CatalogueView, EnvironmentView
from envport.web.comparison import ComparisonView
from envport.web.episode_list import EpisodeListView
from envport.web.login import LOGOUT
from envport.web.playground import Playground
from envport.web.plots import PlotsView
from envport.web.runs import RunsView, RunView
from envport.web.shown import text
from envport.web.trajectory import TrajectoryView
from envport.web.viewer import Viewer

__all__ = ["register"]

logger = logging.getLogger(__name__)

_LINKS = {"Environments": "/", "Episodes": "/ui/episodes", "Runs": "/ui/runs", "Plots": "/ui/plots"}
_DARK_COOKIE = "envport_dark"
_MODES: dict[str, tuple[bool | None, str, str]] = {
    "auto": (None, "brightness_auto", "light"),
    "light": (False, "light_mode", "dark"),
    "dark": (True, "dark_mode", "auto"),
}


def register() -> None:
    """Tell NiceGUI of the page. Once in a process."""
    ui.add_css(Path(__file__).with_name("page.css"), shared=True)
    for path in ("/", "/ui", "/ui/{path:path}"):
        ui.page(path)(_page)


def _page(request: Request) -> None:
    Frame(Viewer.of(request.scope)).build()


class Frame:
    """The frame around the views, for one browser tab.

    Args:
        viewer: Who looks.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer
        self._playground = Playground(viewer)

    def build(self) -> None:
        """Make the elements."""
        ui.on_exception(self._tell)
        ui.context.client.on_delete(self._playground.leave)  # pyright: ignore[reportUnknownMemberType]
        with ui.element("header").classes("ev-top"):
            ui.link("envport", "/").classes("ev-brand")
            with ui.element("nav").classes("ev-nav").props("aria-label=Views"):
                for name, target in _LINKS.items():
                    ui.link(name, target)
            with ui.element("div").classes("ev-who"):
                self._who()
        viewer = self._viewer
        main = ui.element("div").props("id=main tabindex=-1")
        ui.skip_link("Skip to the content", target=main)
        with main:
            ui.sub_pages(
                {
                    "/": lambda: CatalogueView(viewer).build(),
                    "/ui": lambda: CatalogueView(viewer).build(),
                    "/ui/environments/{name}": self._environment,
                    "/ui/play/{name}": self._playground.build,
                    "/ui/episodes": self._episodes,
                    "/ui/episodes/{handle}": self._episode,
                    "/ui/compare": self._comparison,
                    "/ui/runs": lambda: RunsView(viewer).build(),
                    "/ui/runs/{name}": self._one_run,
                    "/ui/plots": self._plots,
                }
            )

    def _environment(self, name: str) -> None:
        EnvironmentView(self._viewer, name).build()

    async def _episode(self, handle: str) -> None:
        await TrajectoryView(self._viewer, handle).build()

    async def _one_run(self, name: str) -> None:
        await RunView(self._viewer, name).build()

    # NiceGUI looks at the annotations, and makes the view again when the query changes.
    async def _episodes(self, arguments: PageArguments) -> None:
        await EpisodeListView(self._viewer).build(arguments.query_parameters)

    async def _comparison(self, arguments: PageArguments) -> None:
        await ComparisonView(self._viewer).build(arguments.query_parameters)

    async def _plots(self, arguments: PageArguments) -> None:
        await PlotsView(self._viewer).build(arguments.query_parameters)

    def _who(self) -> None:
        viewer = self._viewer
        if viewer.parts.access.required:
            principal = viewer.principal
            scopes = ", ".join(sorted(principal.scopes))
            text(f"{principal.name} ({scopes})", "span")
            ui.button("Log out", on_click=self._log_out).props("flat dense no-caps")
        mode = viewer.cookies.get(_DARK_COOKIE, "auto")
        _DarkSwitch(mode if mode in _MODES else "auto")

    def _log_out(self) -> None:
        ui.run_javascript(f"fetch({json.dumps(LOGOUT)}, {{method: 'POST'}}).then(() => window.location.assign('/'))")

    def _tell(self, error: Exception) -> None:
        """Show what went wrong; the log has the rest."""
        if isinstance(error, Unauthenticated):
            ui.run_javascript("window.location.assign('/')")
        elif isinstance(error, EnvportError):
            ui.notify(str(error), type="negative", multi_line=True)
        else:
            ui.notify("Something went wrong; the gateway's log says what.", type="negative")


class _DarkSwitch:
    """Goes from what the system says to light, to dark, and back. The browser remembers it."""

    def __init__(self, mode: str):
        self._mode = mode
        self._dark = ui.dark_mode(_MODES[mode][0])
        self._button = ui.button(on_click=self._next).props("flat dense round")
        self._show()

    def _next(self, _: Any = None) -> None:
        self._mode = _MODES[self._mode][2]
        self._dark.set_value(_MODES[self._mode][0])
        ui.run_javascript(f"document.cookie = '{_DARK_COOKIE}={self._mode}; path=/; max-age=31536000; SameSite=Strict'")
        self._show()

    def _show(self) -> None:
        said = "as the system" if self._mode == "auto" else self._mode
        self._button.set_icon(_MODES[self._mode][1])
        self._button.props(f"aria-label='Colours: {said}' title='Colours: {said}'")
