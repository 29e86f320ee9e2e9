"""`envport eval` and `envport compare`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envport.errors import InvalidOption
from envport_bridges.evaluation.extra import require_extra

if TYPE_CHECKING:
    from envport_bridges.evaluation.results import Result
    from envport_bridges.evaluation.running import Match, Rules

__all__ = ["compare", "evaluate"]

_PLAYERS, _EPISODES, _LIMITS, _OUTPUT = "Players", "Episodes", "Limits", "Output"
_AGENTS_SIDE_BY_SIDE = 4


def evaluate(
    environments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SPEC",
            help="Environments: http://HOST/environments/NAME at a gateway (token in ENVPORT_TOKEN), or a REFERENCE as "
            "`envport serve` takes it, which is started in place.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="A model, by Inspect's name: openai-api/...", rich_help_panel=_PLAYERS),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY", help="random, noop, MODULE:FUNCTION or FILE.py:FUNCTION.", rich_help_panel=_PLAYERS
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMMAND",
            help="A program: claude-code, codex, gemini, mcp, or a command line with {mcp_url}, {mcp_config}, {prompt} "
            "or {prompt_file}.",
            rich_help_panel=_PLAYERS,
        ),
    ] = None,
    model_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of the model's server.", rich_help_panel=_PLAYERS)
    ] = None,
    model_arg: Annotated[
        list[str] | None,
        typer.Option("-M", metavar="NAME=VALUE", help="Argument of the model's provider.", rich_help_panel=_PLAYERS),
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0, rich_help_panel=_PLAYERS)] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of one answer.", rich_help_panel=_PLAYERS)
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="The first one if not given.", rich_help_panel=_EPISODES)
    ] = None,
    num_tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many tasks; all of them once if not given, or 100 episodes if there are none. Beyond their "
            "number, tasks come again with another seed.",
            rich_help_panel=_EPISODES,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Makes the episodes' seeds.", rich_help_panel=_EPISODES)] = 0,
    epochs: Annotated[
        int, typer.Option(min=1, help="Attempts at each, for pass@k and pass^k.", rich_help_panel=_EPISODES)
    ] = 1,
    success_at: Annotated[
        float, typer.Option(help="Reward from which on an episode is a success.", rich_help_panel=_EPISODES)
    ] = 1.0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Episodes side by side.", rich_help_panel=_EPISODES)] = None,
    retries: Annotated[
        int, typer.Option(min=0, help="How often a lost episode is played again.", rich_help_panel=_EPISODES)
    ] = 0,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG", help="Go on with an evaluation; what has a score keeps it.", rich_help_panel=_EPISODES
        ),
    ] = None,
    max_calls: Annotated[int, typer.Option(min=1, help="Calls of an episode.", rich_help_panel=_LIMITS)] = 200,
    agent_seconds: Annotated[
        float, typer.Option(min=0.1, help="An agent's time for an episode.", rich_help_panel=_LIMITS)
    ] = 600.0,
    time_limit: Annotated[
        int | None, typer.Option(min=1, help="Seconds for an episode.", rich_help_panel=_LIMITS)
    ] = None,
    token_limit: Annotated[
        int | None, typer.Option(min=1, help="Tokens for an episode.", rich_help_panel=_LIMITS)
    ] = None,
    message_limit: Annotated[
        int | None, typer.Option(min=1, help="Messages of an episode.", rich_help_panel=_LIMITS)
    ] = None,
    log_dir: Annotated[Path, typer.Option(help="Folder for Inspect's logs.", rich_help_panel=_OUTPUT)] = Path("logs"),
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML report with plots.", rich_help_panel=_OUTPUT)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=_OUTPUT)] = False,
) -> None:
    """Evaluate models, policies and whole agents, each on every environment."""
    require_extra()
    from envport_bridges.evaluation.running import Match, Rules

    matches = [
        Match(env, kind, player)
        for env in environments or []
        for kind, players in (("model", model), ("policy", policy), ("agent", agent))
        for player in players or []
    ]
    if bool(matches) == (resume is not None) or (resume is not None and environments):
        raise InvalidOption(
            "say what to evaluate: environments, and players by --model, --policy or --agent; or --resume LOG alone"
        )
    rules = Rules(
        task={
            "split": split,
            "num_tasks": num_tasks,
            "seed": seed,
            "success_at": success_at,
            "agent_seconds": agent_seconds,
            "max_calls": max_calls,
        },
        model=dict(map(_argument, model_arg or [])),
        model_base_url=model_base_url,
        generation=_given(temperature=temperature, max_tokens=max_tokens),
        limits=_given(time_limit=time_limit, token_limit=token_limit, message_limit=message_limit),
        epochs=epochs,
        jobs=jobs or (_AGENTS_SIDE_BY_SIDE if agent else None),
        retries=retries,
        log_dir=log_dir,
        display="none" if as_json else "rich" if sys.stdout.isatty() else "plain",
    )
    _conclude(_run(matches, resume, rules), report, as_json)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidOption(f"-M {text!r} has to be NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _run(matches: list[Match], resume: Path | None, rules: Rules) -> list[Result]:
    from envport_bridges.evaluation.running import play_match, resume_match, stop_places

    try:
        if resume is not None:
            return [resume_match(resume, rules)]
        results: list[Result] = []
        for match in matches:
            results.append(play_match(match, rules))
            if results[-1].status == "cancelled":
                break
        return results
    finally:
        stop_places()


def _conclude(results: list[Result], report: Path | None, as_json: bool) -> None:
    """Print the results. Exits with 130 after Ctrl-C, and with 1 if an evaluation failed or scored no episode."""
    from envport_bridges.evaluation.report import write_report
    from envport_bridges.evaluation.table import print_results

    if as_json:
        print(json.dumps([result.document() for result in results], indent=2))
    else:
        print_results(results)
    if report is not None:
        write_report(results, report)
        if not as_json:
            print(f"Report: {report}")
    if any(result.status == "cancelled" for result in results):
        raise typer.Exit(130)
    if any(result.status != "success" or not result.played for result in results):
        raise typer.Exit(1)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Log of an evaluation.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Log of another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Compare two evaluations: refused if they measured different things, else their paired differences."""
    require_extra()
    from envport_bridges.evaluation.comparison import compare_results
    from envport_bridges.evaluation.results import Result
    from envport_bridges.evaluation.table import print_comparison

    comparison = compare_results(Result.read(a), Result.read(b))
    if as_json:
        print(json.dumps(comparison.document(), indent=2))
    else:
        print_comparison(comparison)
