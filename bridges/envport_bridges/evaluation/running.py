"""Runs evaluations through Inspect."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import Epochs
from inspect_ai._util.error import PrerequisiteError  # has no public name
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.util import DisplayType
from rich.text import Text

from envport.errors import InvalidOption
from envport.references import from_anywhere
from envport_bridges.agents.gateways.place import Place
from envport_bridges.agents.programs.agents import PRESETS, Agent
from envport_bridges.evaluation.agent_models.served import AgentModel
from envport_bridges.evaluation.prices import set_price
from envport_bridges.evaluation.results import Result

# Use `getattr`, because the functions' type annotations need an optional package of Inspect.
_eval: Callable[..., list[EvalLog]] = getattr(inspect_ai, "eval")  # noqa: B009
_eval_retry: Callable[..., list[EvalLog]] = getattr(inspect_ai, "eval_retry")  # noqa: B009

__all__ = ["Match", "Rules", "play_match", "resume_match"]

_TASK = "envport_bridges/episode"


@dataclass(frozen=True)
class Match:
    """One player and one environment.

    Attributes:
        env: Address or reference of the environment.
        kind: The kind of player: `model`, `policy` or `agent`.
        player: The model's name, the policy's name, or the agent's command line.
    """

    env: str
    kind: str
    player: str


@dataclass(frozen=True)
class Rules:
    """Settings for all matches.

    Attributes:
        task: Arguments of the Inspect task, other than the environment and the player.
        model: Arguments for creating the model.
        model_base_url: Address of the model's server.
        agent_model: The model that agents are given; see `AgentModel.of`.
        agent_model_settings: How it is served, if it is served for the evaluation.
        generation: Options for generation; Inspect's `GenerateConfig`.
        limits: Inspect's limits for an episode.
        price: What the tokens of the models cost; see `set_price`.
        epochs: How often each sample is played.
        jobs: How many episodes are played in parallel.
        retries: How many times a lost episode is played again.
        log_dir: Folder for the logs.
        display: How Inspect shows progress.
    """

    task: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model_base_url: str | None = None
    agent_model: str | None = None
    agent_model_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    generation: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    price: str | None = None
    epochs: int = 1
    jobs: int | None = None
    retries: int = 0
    log_dir: Path = Path("logs")
    display: DisplayType = "rich"


def play_match(match: Match, rules: Rules) -> Result:
    """Evaluate one player on one environment.

    Raises:
        InvalidOption: Inspect cannot start; the message says what is missing.
        EnvportError: The environment is not available.
    """
    arguments = {**rules.task, "env": from_anywhere(match.env), **_player(match, rules)}
    model = _model(match, rules)
    reducers = ["mean", f"pass_at_{rules.epochs}", f"pass_k_{rules.epochs}"] if rules.epochs > 1 else ["mean"]
    before = _logs(rules.log_dir)
    if rules.price is not None and model is not None:
        set_price(model, rules.price)
    try:
        logs = _eval(
            _TASK,
            model=model,
            model_base_url=rules.model_base_url if match.kind == "model" else None,
            model_args=dict(rules.model) if match.kind == "model" else {},
            task_args=arguments,
            epochs=Epochs(rules.epochs, reducers),
            max_samples=rules.jobs,
            retry_on_error=rules.retries,
            log_dir=str(rules.log_dir),
            display=rules.display,
            ctl_server=False,
            **rules.limits,
            **rules.generation,
        )
    except PrerequisiteError as error:
        raise InvalidOption(f"{match.kind} {match.player!r}: {Text.from_markup(str(error)).plain}") from None
    except ValueError as error:
        raise InvalidOption(f"{match.kind} {match.player!r}: {error}") from error
    return _result(logs or _interrupted(rules.log_dir, before))


def _model(match: Match, rules: Rules) -> str | None:
    """Inspect's name of the model whose tokens are counted, if there is one."""
    if match.kind == "agent" and rules.agent_model is not None:
        return AgentModel.of(rules.agent_model, rules.agent_model_settings).name
    return match.player if match.kind == "model" else None


def _player(match: Match, rules: Rules) -> dict[str, Any]:
    """The task's arguments for the player. A model needs none, because Inspect gets it separately."""
    if match.kind == "policy":
        return {"policy": from_anywhere(match.player)}
    if match.kind == "agent":
        agent = Agent.named(match.player, given_model=rules.agent_model is not None)
        given = {"agent_model": rules.agent_model, "agent_model_settings": dict(rules.agent_model_settings)}
        command = match.player if match.player in PRESETS else agent.command
        return {"agent": command, **(given if rules.agent_model is not None else {})}
    return {}


def resume_match(log: Path, rules: Rules) -> Result:
    """Continue an evaluation that was interrupted or that lost episodes. Scored episodes keep their scores.

    Args:
        log: The log of the evaluation.
        rules: Settings for parallel play and display. All other settings come from the log.

    Raises:
        InvalidOption: It is not a log of an evaluation with envport.
    """
    before = Result.read(log)
    if not before.lost and not before.missing:
        return before
    previous = read_eval_log(str(log))
    folder = log.absolute().parent
    there = _logs(folder)
    logs = _eval_retry(
        previous,
        max_samples=rules.jobs,
        retry_on_error=rules.retries,
        log_dir=str(folder),
        display=rules.display,
        ctl_server=False,
    )
    return _result(logs or _interrupted(folder, there))


def _logs(folder: Path) -> set[Path]:
    return set(folder.glob("*.eval"))


def _interrupted(folder: Path, before: set[Path]) -> list[EvalLog]:
    """The log of an interrupted evaluation. Inspect writes this log but does not return it."""
    written = sorted(_logs(folder) - before, key=lambda file: file.stat().st_mtime)
    if not written:
        raise KeyboardInterrupt
    return [read_eval_log(str(written[-1]))]


def _result(logs: list[EvalLog]) -> Result:
    (log,) = logs
    if log.status == "error" and not log.samples and log.error is not None:
        raise InvalidOption(f"the evaluation failed: {log.error.message}")
    # Read the file, because the log in memory may lack its samples.
    return Result.read(os.path.normpath(log.location)) if "://" not in log.location else Result.read(log.location)


def stop_places() -> None:
    """Stop what was started for evaluations: gateways, and servers of models."""
    Place.stop_all()
    AgentModel.stop_all()
