"""The options of `envport eval`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from envport.cli.groups import OptionGroup

__all__ = ["BudgetOptions", "OutputOptions", "PlayerOptions", "SelectionOptions"]


@dataclass(frozen=True)
class PlayerOptions(OptionGroup):
    """Who plays."""

    title = "Players"

    model: Annotated[
        tuple[str, ...], typer.Option(metavar="MODEL", help="A model, by Inspect's name: openai-api/...")
    ] = ()
    policy: Annotated[
        tuple[str, ...], typer.Option(metavar="POLICY", help="random, noop, MODULE:FUNCTION or FILE.py:FUNCTION.")
    ] = ()
    agent: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="COMMAND",
            help="A program that plays: claude-code, codex, gemini, opencode, mcp, or a command line, in which "
            "{mcp_url}, {mcp_config}, {prompt}, {prompt_file} and {python} are replaced.",
        ),
    ] = ()
    agent_model: Annotated[
        str | None,
        typer.Option(
            metavar="URL_OR_PATH",
            help="A model for --agent, which otherwise brings its own: the folder or hub name of a saved model, which "
            "is then served for the evaluation (-M and --temperature say how), or the address of an `envport model "
            "serve` (its token in ENVPORT_MODEL_TOKEN). The agent finds it in OPENAI_BASE_URL and ANTHROPIC_BASE_URL.",
        ),
    ] = None
    agent_reads: Annotated[
        tuple[Path, ...],
        typer.Option(
            metavar="PATH",
            help="A file or folder that agents may read, beside the system's, their own and the files that their "
            "command names.",
        ),
    ] = ()
    sandbox: Annotated[
        bool,
        typer.Option(
            "--sandbox/--no-sandbox",
            help="Whether agents run in a sandbox (bubblewrap), where they see no other process and only files that "
            "they need.",
        ),
    ] = True
    model_base_url: Annotated[str | None, typer.Option(metavar="URL", help="Address of the model's server.")] = None
    model_arg: Annotated[
        tuple[str, ...],
        typer.Option(
            "-M",
            metavar="NAME=VALUE",
            help="Argument of the model's provider, or setting of a served --agent-model: max_tokens=1024.",
        ),
    ] = ()
    model_timeout: Annotated[int | None, typer.Option(min=1, help="Seconds that an answer of the model may take.")] = (
        None
    )
    model_retries: Annotated[
        int | None, typer.Option(min=0, help="How many times a failed request to the model is sent again.")
    ] = None
    temperature: Annotated[float | None, typer.Option(min=0, help="Temperature at which the model samples.")] = None
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one answer.")] = None
    price: Annotated[
        str | None,
        typer.Option(
            metavar="INPUT,OUTPUT",
            help="Dollars for a million tokens of input and of output, if Inspect does not know them.",
        ),
    ] = None


@dataclass(frozen=True)
class SelectionOptions(OptionGroup):
    """Which episodes are played, and how often."""

    title = "Episodes"

    split: Annotated[str | None, typer.Option(metavar="NAME", help="The first one if not given.")] = None
    num_tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many tasks; all of them once if not given, or 100 episodes if there are none. Beyond their "
            "number, tasks come again with another seed.",
        ),
    ] = None
    seed: Annotated[
        tuple[int, ...],
        typer.Option(min=0, help="Seed that the episodes' seeds are made from, 0 if not given. Several are pooled."),
    ] = ()
    epochs: Annotated[int, typer.Option(min=1, help="Attempts at each task, for pass@k and pass^k.")] = 1
    success_at: Annotated[float, typer.Option(help="Smallest reward that counts as a success.")] = 1.0
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of concurrent episodes.")] = None
    retries: Annotated[int, typer.Option(min=0, help="How many times a lost episode is played again.")] = 0
    max_lost: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0, max=1, help="Share of lost episodes, above which the exit code is 1: from 0 to 1."
        ),
    ] = 0.05
    resume: Annotated[
        Path | None, typer.Option(metavar="LOG", help="Continue an evaluation; episodes that have a score keep it.")
    ] = None


@dataclass(frozen=True)
class BudgetOptions(OptionGroup):
    """What an episode may use up."""

    title = "Limits"

    max_calls: Annotated[int, typer.Option(min=1, help="Maximum number of calls in an episode.")] = 200
    agent_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds that an agent has for an episode.")] = 600.0
    time_limit: Annotated[int | None, typer.Option(min=1, help="Maximum seconds of an episode.")] = None
    token_limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of tokens in an episode.")] = None
    cost_limit: Annotated[float | None, typer.Option(min=0, help="Maximum dollars that an episode may cost.")] = None
    message_limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of messages in an episode.")] = None


@dataclass(frozen=True)
class OutputOptions(OptionGroup):
    """Where the results go."""

    title = "Output"

    log_dir: Annotated[Path, typer.Option(help="Folder for Inspect's logs.")] = Path("logs")
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML report with plots.")] = None
    by_task: Annotated[bool, typer.Option("--by-task", help="Print the result of each task as well.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False
