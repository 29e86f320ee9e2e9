"""`envport play`."""

from __future__ import annotations

import contextlib
import logging
import select
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import typer
from anyio.from_thread import BlockingPortal, start_blocking_portal

from envport.cli import console
from envport.cli.causes import innermost
from envport.cli.game import PlayedCall, TerminalGame, at_gateway, in_process
from envport.cli.loading import load_environment
from envport.cli.observation import ObservationPrinter
from envport.cli.options import AnyEnvironment, AtGateway, Seed, SplitName, TaskIndex, token
from envport.cli.question import BACK, WentBack, ask_arguments
from envport.cli.summary import first_line
from envport.client.addresses import EnvironmentAddress
from envport.client.choosing import any_environment
from envport.errors import EpisodeFailed
from envport.telemetry.logs import LogLevel, configure_logging
from envport.types import Choice

# Importing readline gives `input` a history and line editing, if this Python has it.
with contextlib.suppress(ImportError):
    import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]

__all__ = ["play"]


def play(
    environment: AnyEnvironment = None,
    url: AtGateway = None,
    split: SplitName = None,
    task: TaskIndex = None,
    seed: Seed = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback if the environment breaks in this process.")
    ] = False,
) -> None:
    """Play an environment by hand, in the terminal."""
    configure_logging(LogLevel.WARNING)
    if not debug:
        logging.disable()
    chosen = Choice(split, task, seed)
    game: AbstractAsyncContextManager[TerminalGame]
    found = any_environment(environment, url)
    if isinstance(found, EnvironmentAddress):
        if environment is None:
            console.note(f"Playing {found.url}, as ENVPORT_URL says.")
        game = at_gateway(found.gateway, found.name, chosen, token())
    else:
        game = in_process(load_environment(found), chosen)
    try:
        # The episode runs in its own thread, so that Ctrl-C can interrupt a question.
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(game) as opened:
            _Table(opened, portal).play()
    except Exception as error:
        cause = innermost(error)
        if debug or isinstance(found, EnvironmentAddress) or not isinstance(cause, EpisodeFailed):
            raise
        raise EpisodeFailed(f"{cause} --debug shows why.", cause.fault, cause.reason) from error


class _Left(Exception):
    """The player has left."""


class _Table:
    """Plays a game with a person at the terminal.

    Args:
        game: The episode.
        portal: Portal to the thread that runs the episode.
    """

    def __init__(self, game: TerminalGame, portal: BlockingPortal):
        self._game = game
        self._portal = portal
        self._printer = ObservationPrinter()
        self._tools: dict[str, dict[str, Any]] = {tool["name"]: tool for tool in game.tools}
        self._explained: set[str] = set()

    def play(self) -> None:
        """Play to the end, or until the player leaves."""
        self._welcome()
        try:
            while not (played := self._turn()).over:
                pass
        except (_Left, KeyboardInterrupt):
            console.line()
            console.line("You left; the episode is closed.", "dim")
            return
        self._farewell(played)

    def _welcome(self) -> None:
        if self._game.prompt:
            console.paragraph(self._game.prompt)
            console.line()
        console.heading("Tools:")
        console.rows(
            (f"{number:>{len(str(len(self._tools)))}}  {name}", first_line(tool.get("description", "")))
            for number, (name, tool) in enumerate(self._tools.items(), 1)
        )
        console.line(
            f"Seed {self._game.seed}. Ctrl-D leaves; {BACK} goes back from a question to the one before.", "dim"
        )
        console.line()
        self._printer.show(self._game.observation)

    def _turn(self) -> PlayedCall:
        console.line()
        while True:
            name = self._choose()
            try:
                played = self._call(name)
            except WentBack:
                continue
            self._printer.show(played.observation, "red" if played.is_error else "")
            return played

    def _call(self, name: str) -> PlayedCall:
        """Ask for the arguments of a tool until it understands them, and call it."""
        schema = self._tools[name]["inputSchema"]
        kept: Mapping[str, Any] = {}
        if len(self._tools) > 1 and schema["properties"]:
            self._tell(f"{BACK} goes back.")
        while True:
            explain = name not in self._explained
            self._explained.add(name)
            arguments = ask_arguments(schema, self._ask, self._tell, kept, explain=explain)
            played = self._portal.call(self._game.call, name, arguments)
            if not played.misunderstood:
                return played
            refusal = played.observation.text
            console.line(refusal, "red")
            kept = {key: value for key, value in arguments.items() if repr(key) not in refusal}

    def _choose(self) -> str:
        names = list(self._tools)
        if len(names) == 1:
            if not self._tools[names[0]]["inputSchema"]["properties"]:
                self._ask(f"{names[0]} (Enter calls it): ")
            return names[0]
        while True:
            answer = self._ask(f"tool (1-{len(names)} or a name): ").strip()
            if answer in names:
                return answer
            if answer.isdecimal() and 1 <= int(answer) <= len(names):
                return names[int(answer) - 1]
            console.line(f"There is no tool {answer!r}: {', '.join(names)}", "red")

    def _ask(self, question: str) -> str:
        try:
            if sys.stdin.isatty():
                return _answer_at_terminal(console.printable(question))
            answer = input(console.printable(question))
        except EOFError:
            raise _Left from None
        # An answer from a pipe is not on the screen yet.
        console.line(answer)
        return answer

    def _tell(self, text: str) -> None:
        console.line(text, "dim")

    def _farewell(self, last: PlayedCall) -> None:
        state = self._portal.call(self._game.finish)
        why = state.outcome.message if state.outcome is not None else ""
        console.line()
        # An end by a limit is said in the last observation.
        if not why or why not in last.observation.text:
            console.heading(f"The episode is over. {why}".strip())
        console.line(f"Reward: {state.reward:g}" if state.reward is not None else "No reward was given.")


def _answer_at_terminal(question: str) -> str:
    sys.stdout.write(question)
    sys.stdout.flush()
    # `input` loses a Ctrl-C that arrives just before it starts to wait. Polling does not lose it.
    while sys.platform != "win32" and not select.select([sys.stdin], [], [], 0.2)[0]:
        pass
    return input()
