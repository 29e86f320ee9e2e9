"""The `envport` command and its subcommands. Only this module turns errors into a message and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.metadata import version as installed_version
from io import TextIOWrapper
from typing import Annotated, Any, cast

import typer

from envport.cli import console
from envport.cli.attachment import with_own_pip
from envport.cli.causes import innermost
from envport.client.addresses import URL_VARIABLE
from envport.errors import EnvironmentNotFound, EnvportError, GatewayUnreachable, MissingExtra, Unauthenticated

__all__ = ["main"]

# The class of typer's errors for wrong command lines. Older releases take it from click, newer ones have their own.
# In both, it is the base of the exception class that typer exports.
_UsageError = cast("type[Exception]", typer.BadParameter.__bases__[0])

app = typer.Typer(
    name="envport",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A first game: [bold]envport play catch[/bold]. A first gateway: [bold]envport serve[/bold].",
)


_VERSION = ("--version", "-V")


def _version(wanted: bool = True) -> None:
    if wanted:
        console.line(f"envport {installed_version('envport')}")
        raise typer.Exit


@app.callback()
def envport(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option(*_VERSION, callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Serve tool environments over MCP: play them, train on them, evaluate with them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_SERVE, _PLAY, _WRITE = "Serve", "Play", "Write and measure"

_COMMANDS = {
    "serve": ("envport.cli.serve:serve", _SERVE),
    "stdio": ("envport.cli.stdio:stdio", _SERVE),
    "cluster": ("envport.cli.cluster:cluster", _SERVE),
    "attach": ("envport.cli.attach:attach", _SERVE),
    "list": ("envport.cli.catalogue:list_environments", _PLAY),
    "describe": ("envport.cli.catalogue:describe", _PLAY),
    "play": ("envport.cli.play:play", _PLAY),
    "open": ("envport.cli.opening:open_episode", _PLAY),
    "init": ("envport.cli.init:init", _WRITE),
    "check": ("envport.cli.check:check", _WRITE),
    "build": ("envport.cli.build:build", _WRITE),
    "bench": ("envport.bench.command:bench", _WRITE),
    "version": ("envport.cli.application:version", _WRITE),
}


_EPISODES = "episodes"
"""A group of commands of its own."""

_GROUP = "envport.commands"
"""Entry point group for commands of other packages. The command line itself imports no bridge."""


def version() -> None:
    """Print the version."""
    _version()


def _register(arguments: list[str]) -> None:
    """Add only the command that is called, because imports are slow. Add all for help or an unknown command."""
    # Those of an earlier call of `main` in the same process would stay, and each is looked at anew.
    app.registered_commands.clear()
    app.registered_groups.clear()
    called = arguments[0] if arguments else ""
    if called in _VERSION:
        called = "version"
    if called == _EPISODES:
        _add_episodes(arguments[1:])
        return
    if called in _COMMANDS:
        _add(called)
        return
    own = {*_COMMANDS, _EPISODES}
    contributed = {point.name: point for point in entry_points(group=_GROUP) if point.name not in own}
    if called in contributed:
        _contribute(contributed[called])
        return
    for name in _COMMANDS:
        _add(name)
    _add_episodes(arguments[1:])
    for point in contributed.values():
        _contribute(point)


def _add(name: str) -> None:
    where, panel = _COMMANDS[name]
    module, _, function = where.partition(":")
    app.command(name, rich_help_panel=panel)(getattr(import_module(module), function))


def _add_episodes(arguments: list[str]) -> None:
    from envport.cli.episodes import episodes_group

    app.add_typer(episodes_group(arguments), name=_EPISODES, rich_help_panel=_PLAY)


def _contribute(point: EntryPoint) -> None:
    """Add a command of another package, or a group of commands."""
    loaded: Any = point.load()
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=point.name, rich_help_panel=_WRITE)
    else:
        app.command(point.name, rich_help_panel=_WRITE)(loaded)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with 0 on success, 2 after an error, 130 after Ctrl-C.

    Args:
        arguments: The arguments after `envport`; those of the process if not given.
    """
    sys.exit(_run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # Replace characters that a terminal or pipe cannot encode, instead of failing.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    _register(arguments)
    try:
        code: Any = app(args=arguments, prog_name="envport", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        cause = innermost(error)
        if isinstance(cause, BrokenPipeError):
            # The reader of the output closed its end. Redirect to null, so that Python's flush at exit does not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if isinstance(cause, EnvportError):
            said = with_own_pip(str(cause)) if isinstance(cause, MissingExtra) else str(cause)
            console.error(f"{said}{_hint(cause)}")
        elif isinstance(cause, _UsageError):
            console.error(_usage(cause))
        else:
            raise
        return 2
    return code if isinstance(code, int) else 0


def _hint(error: EnvportError) -> str:
    """Extra advice for errors about which the command line knows more than the raising code."""
    if isinstance(error, GatewayUnreachable) and str(error).startswith("no answer"):
        return " (is it running? start it with: envport serve)"
    if isinstance(error, Unauthenticated) and "ENVPORT_TOKEN" not in str(error):
        return " (this command takes it from the variable ENVPORT_TOKEN)"
    if isinstance(error, EnvironmentNotFound) and os.environ.get(URL_VARIABLE):
        return f" (a name means what is installed here; at the gateway of {URL_VARIABLE}: --url ${URL_VARIABLE})"
    return ""


def _usage(mistake: Any) -> str:
    context = mistake.ctx
    path = context.command_path if context is not None else "envport"
    return f"{mistake.format_message().rstrip('.')} (see: {path} --help)"
