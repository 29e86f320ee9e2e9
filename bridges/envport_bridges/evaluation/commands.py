"""`envport eval`, `envport results` and `envport compare`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
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

__all__ = ["compare", "evaluate", "show_results"]

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
    if len(set(seeds := selection.seed or (0,))) < len(seeds):
        raise InvalidOption(f"--seed is given twice with the same value: {', '.join(map(str, seeds))}")
    if players.agent_model is not None and not players.agent:
        raise InvalidOption("--agent-model is the model of an agent: give --agent too")
    results = _run(matches, resume, _rules(players, selection, budget, output), seeds)
    _conclude(results, output, selection.max_lost)


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
            "success_at": selection.success_at,
            "agent_seconds": budget.agent_seconds,
            "max_calls": budget.max_calls,
            "sandbox": players.sandbox,
            "agent_reads": [str(path.absolute()) for path in players.agent_reads],
        },
        model=dict(map(_argument, players.model_arg)),
        model_base_url=players.model_base_url,
        agent_model=_from_anywhere(players.agent_model),
        agent_model_settings=_agent_model_settings(players),
        generation=_given(
            temperature=players.temperature,
            max_tokens=players.max_tokens,
            attempt_timeout=players.model_timeout,
            max_retries=players.model_retries,
        ),
        limits=_given(
            time_limit=budget.time_limit,
            token_limit=budget.token_limit,
            cost_limit=budget.cost_limit,
            message_limit=budget.message_limit,
        ),
        price=players.price,
        epochs=selection.epochs,
        jobs=selection.jobs or (_AGENTS_SIDE_BY_SIDE if players.agent else None),
        retries=selection.retries,
        log_dir=output.log_dir,
        display="none" if output.as_json else "rich" if sys.stdout.isatty() else "plain",
    )


def _from_anywhere(model: str | None) -> str | None:
    """The model with an absolute path, so that an evaluation can be continued in another folder."""
    return str(Path(model).absolute()) if model is not None and Path(model).is_dir() else model


def _agent_model_settings(players: PlayerOptions) -> dict[str, Any]:
    """How the model of agents is served. If there are models that play by themselves, the settings are theirs."""
    if players.agent_model is None or players.model:
        return {}
    return {**dict(map(_argument, players.model_arg)), **_given(temperature=players.temperature)}


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


def _run(matches: list[Match], resume: Path | None, rules: Rules, seeds: tuple[int, ...]) -> list[Result]:
    from envport_bridges.evaluation.running import resume_match, stop_places

    try:
        if resume is not None:
            return [resume_match(resume, rules)]
        results: list[Result] = []
        for match in matches:
            results += _play(match, rules, seeds)
            if results[-1].status == "cancelled":
                break
        return results
    finally:
        stop_places()


def _play(match: Match, rules: Rules, seeds: tuple[int, ...]) -> list[Result]:
    """The result of each seed, and then of all of them."""
    from envport_bridges.evaluation.running import play_match
    from envport_bridges.evaluation.seeds import pooled

    results: list[Result] = []
    for seed in seeds:
        results.append(play_match(match, replace(rules, task={**rules.task, "seed": seed})))
        if results[-1].status == "cancelled":
            return results
    return [*results, pooled(results)] if len(results) > 1 else results


def _conclude(results: list[Result], output: OutputOptions, max_lost: float) -> None:
    """Print the results. Exits with 130 after Ctrl-C, and with 1 if a result is no measurement of its player."""
    from envport_bridges.evaluation.verdict import complaints

    _show(results, output.as_json, output.by_task, output.report)
    if any(result.status == "cancelled" for result in results):
        raise typer.Exit(130)
    wrong = complaints(results, max_lost)
    for text in wrong:
        print(f"error: {text}", file=sys.stderr)
    if wrong or any(result.status != "success" or not result.played for result in results):
        raise typer.Exit(1)


def _show(results: Sequence[Result], as_json: bool, by_task: bool, report: Path | None) -> None:
    from envport_bridges.evaluation.report import write_report
    from envport_bridges.evaluation.table import print_by_task, print_results

    if as_json:
        print(json.dumps([result.document() for result in results], indent=2))
    else:
        print_results(results)
    if by_task and not as_json:
        print_by_task(results)
    if report is not None:
        write_report(results, report)
        if not as_json:
            print(f"Report: {report}")


def show_results(
    logs: Annotated[list[Path], typer.Argument(metavar="LOGS", help="Folders with logs, or single logs.")],
    by_task: Annotated[bool, typer.Option("--by-task", help="Print the result of each task as well.")] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML report with plots.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show the results of all evaluations whose logs are in a folder, as one table."""
    require_extra()
    from envport_bridges.evaluation.folder import read_folders

    found = read_folders(logs)
    if not found.results:
        raise InvalidOption(f"there is no log of an evaluation with envport in {', '.join(map(str, logs))}")
    _show(found.results, as_json, by_task, report)
    if not as_json and (left := len(found.superseded)):
        print(f"Left out: {left} logs of evaluations that a later log continues.")
    if not as_json and (left := len(found.others)):
        print(f"Left out: {left} files that are no logs of an evaluation with envport.")


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Log of an evaluation.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Log of another one.")],
    despite: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="Compare although they differ in this, for example temperature."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Compare two evaluations: refused if they measured different things, else their paired differences."""
    require_extra()
    from envport_bridges.evaluation.comparison import compare_results
    from envport_bridges.evaluation.results import Result
    from envport_bridges.evaluation.table import print_comparison

    comparison = compare_results(Result.read(a), Result.read(b), despite or ())
    if as_json:
        print(json.dumps(comparison.document(), indent=2))
    else:
        print_comparison(comparison)
