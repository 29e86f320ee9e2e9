"""The `envport` command: its subcommands, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from typing import Annotated, Any, cast

import typer

from envport.cli import attach, bench, catalogue, check, console, opening, play, serve, stdio
from envport.cli.probe import innermost
from envport.errors import EnvportError, GatewayUnreachable, Unauthenticated

__all__ = ["main"]

# What typer raises for a mistake on the command line. Its older releases take the class from click, its newer
# ones bring their own; both are the base of the one that typer exports.
_UsageError = cast("type[Exception]", typer.BadParameter.__bases__[0])

app = typer.Typer(
    name="envport",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A first game: [bold]envport play catch[/bold]. A first gateway: [bold]envport serve[/bold].",
)


def _version(wanted: bool = True) -> None:
    if wanted:
        console.line(f"envport {installed_version('envport')}")
        raise typer.Exit


@app.callback()
def envport(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Serve tool environments over MCP: play them, train on them, evaluate with them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_SERVE, _PLAY, _WRITE = "Serve", "Play", "Write and measure"

app.command("serve", rich_help_panel=_SERVE)(serve.serve)
app.command("stdio", rich_help_panel=_SERVE)(stdio.stdio)
app.command("attach", rich_help_panel=_SERVE)(attach.attach)
app.command("list", rich_help_panel=_PLAY)(catalogue.list_environments)
app.command("describe", rich_help_panel=_PLAY)(catalogue.describe)
app.command("play", rich_help_panel=_PLAY)(play.play)
app.command("open", rich_help_panel=_PLAY)(opening.open_episode)
app.command("check", rich_help_panel=_WRITE)(check.check)
app.command(
    "bench", rich_help_panel=_WRITE, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)(bench.bench)


@app.command("version", rich_help_panel=_WRITE)
def version() -> None:
    """Print the version."""
    _version()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 if all went well, 2 after an error, 130 after Ctrl-C.

    Args:
        arguments: The words after `envport`; those of the process if not given.
    """
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code: Any = app(args=arguments, prog_name="envport", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # Whoever read the output has seen enough. Nothing more may be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        cause = innermost(error)
        if isinstance(cause, EnvportError):
            console.error(f"{cause}{_hint(cause)}")
        elif isinstance(cause, _UsageError):
            console.error(_usage(cause))
        else:
            raise
        return 2
    return code if isinstance(code, int) else 0


def _hint(error: EnvportError) -> str:
    """What to do about an error, where the command line knows better than who raised it."""
    if isinstance(error, GatewayUnreachable) and str(error).startswith("no answer"):
        return " (is it running? start it with: envport serve)"
    if isinstance(error, Unauthenticated) and "ENVPORT_TOKEN" not in str(error):
        return " (this command takes it from the variable ENVPORT_TOKEN)"
    return ""


def _usage(mistake: Any) -> str:
    context = mistake.ctx
    path = context.command_path if context is not None else "envport"
    return f"{mistake.format_message().rstrip('.')} (see: {path} --help)"
