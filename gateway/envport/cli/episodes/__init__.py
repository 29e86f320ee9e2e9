"""`envport episodes`: what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points

import typer

__all__ = ["episodes_group"]

_COMMANDS = {
    "list": "envport.cli.episodes.listing:list_recorded",
    "show": "envport.cli.episodes.show:show",
    "replay": "envport.cli.episodes.replay:replay",
    "diff": "envport.cli.episodes.diff:diff",
    "fork": "envport.cli.episodes.fork:fork",
}

_GROUP = "envport.episode_commands"
"""Entry point group for commands of other packages below `envport episodes`."""


def episodes_group(arguments: Sequence[str]) -> typer.Typer:
    """The group with the command that is called, because imports are slow. With all for help or an unknown command.

    Args:
        arguments: The arguments after `envport episodes`.
    """
    group = typer.Typer(
        name="episodes",
        invoke_without_command=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.callback()(_episodes)
    contributed = {point.name: point for point in entry_points(group=_GROUP) if point.name not in _COMMANDS}
    called = arguments[0] if arguments else ""
    for name, where in _COMMANDS.items():
        if called == name or called not in {*_COMMANDS, *contributed}:
            module, _, function = where.partition(":")
            group.command(name)(getattr(import_module(module), function))
    for name, point in contributed.items():
        if called == name or called not in {*_COMMANDS, *contributed}:
            group.command(name)(point.load())
    return group


def _episodes(context: typer.Context) -> None:
    """Look up recorded episodes: list, show, export, replay, compare and copy them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
