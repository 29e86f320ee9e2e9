"""`envport eval` and `envport compare`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envport.cli.groups import grouped
from envport.client.addresses import EnvironmentAddress
from envport.client.choosing import any_environment, gateway_of_user
from envport.errors import InvalidOption
from envport_bridges.evaluation.extra import require_extra
from envport_bridges.evaluation.options import BudgetOptions, OutputOptions, PlayerOptions, SelectionOptions

if TYPE_CHECKING:
    from envport_bridges.evaluation.results import Result
    from envport_bridges.evaluation.running import Match, Rules

__all__ = ["compare", "evaluate"]

_AGENTS_SIDE_BY_SIDE = 4


@grouped
def evaluate(
    environments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENVIRONMENT",
            help="http://HOST/environments/NAME at a gateway (token in ENVPORT_TOKEN), or a REFERENCE as "
            "`envport serve` takes it, which is started in place. If not given, the "
            "environment of the gateway at ENVPORT_URL.",
        ),
    ] = None,
    *,
    players: PlayerOptions,
    selection: SelectionOptions,
    budget: BudgetOptions,
    output: OutputOptions,
) -> None:
    """Evaluate models, policies and whole agents, each on every environment."""
    require_extra()
    named = bool(players.model or players.policy or players.agent)
    if not environments and named and selection.resume is None and gateway_of_user(None) is not None:
        environments = [_text(any_environment(None))]
    matches = _matches(environments or [], players)
    resume = selection.resume
    if bool(matches) == (resume is not None) or (resume is not None and environments):
        raise InvalidOption(
            "say what to evaluate: environments, and players by --model, --policy or --agent; or --resume LOG alone"
        )
    results = _run(matches, resume, _rules(players, selection, budget, output))
    _conclude(results, output)


def _text(environment: EnvironmentAddress | str) -> str:
    return environment.url if isinstance(environment, EnvironmentAddress) else environment


def _matches(environments: list[str], players: PlayerOptions) -> list[Match]:
    from envport_bridges.evaluation.running import Match

    of_kind = (("model", players.model), ("policy", players.policy), ("agent", players.agent))
    return [Match(env, kind, player) for env in environments for kind, named in of_kind for player in named]


def _rules(players: PlayerOptions, selection: SelectionOptions, budget: BudgetOptions, output: OutputOptions) -> Rules:
    from envport_bridges.evaluation.running import Rules

    return Rules(
        task={
            "split": selection.split,
            "num_tasks": selection.num_tasks,
            "seed": selection.seed,
            "success_at": selection.success_at,
            "agent_seconds": budget.agent_seconds,
            "max_calls": budget.max_calls,
        },
        model=dict(map(_argument, players.model_arg)),
        model_base_url=players.model_base_url,
        generation=_given(temperature=players.temperature, max_tokens=players.max_tokens),
        limits=_given(time_limit=budget.time_limit, token_limit=budget.token_limit, message_limit=budget.message_limit),
        epochs=selection.epochs,
        jobs=selection.jobs or (_AGENTS_SIDE_BY_SIDE if players.agent else None),
        retries=selection.retries,
        log_dir=output.log_dir,
        display="none" if output.as_json else "rich" if sys.stdout.isatty() else "plain",
    )


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


def _conclude(results: list[Result], output: OutputOptions) -> None:
    """Print the results. Exits with 130 after Ctrl-C, and with 1 if an evaluation failed or scored no episode."""
    from envport_bridges.evaluation.report import write_report
    from envport_bridges.evaluation.table import print_results

    if output.as_json:
        print(json.dumps([result.document() for result in results], indent=2))
    else:
        print_results(results)
    if output.report is not None:
        write_report(results, output.report)
        if not output.as_json:
            print(f"Report: {output.report}")
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
