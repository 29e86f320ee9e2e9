"""The Inspect task: evaluates any environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from inspect_ai import Task, task

from envport.types import EnvironmentInfo
from envport_bridges.agents.gateways.place import Place
from envport_bridges.evaluation.agent_models.served import AGENT_MODEL, AgentModel
from envport_bridges.evaluation.inspect_ai.dataset import Selection, dataset
from envport_bridges.evaluation.inspect_ai.naming import qualified
from envport_bridges.evaluation.inspect_ai.scorer import outcome
from envport_bridges.evaluation.inspect_ai.solver import play

__all__ = ["IDENTITY", "SANDBOXED", "episode"]

IDENTITY = "envport"
"""Metadata key in the log for what was measured."""

SANDBOXED = "envport:sandboxed"
"""Metadata key in the log for whether the agent ran in a sandbox; `None` if no agent played."""


@task(name=qualified("episode"))
def episode(
    env: str,
    split: str | None = None,
    num_tasks: int | None = None,
    seed: int = 0,
    success_at: float = 1.0,
    policy: str | None = None,
    agent: str | None = None,
    agent_seconds: float = 600.0,
    max_calls: int = 200,
    sandbox: bool = True,
    agent_reads: str | Sequence[str] = (),
    agent_model: str | None = None,
    agent_model_settings: Mapping[str, Any] | None = None,
) -> Task:
    """Play episodes of an environment.

    Args:
        env: Address of an environment (`http://HOST/environments/NAME`, the token in `ENVPORT_TOKEN`), or what
            `envport serve` takes, which is then started in place.
        split: The split of the tasks; the first one if not given.
        num_tasks: How many samples; all tasks once if not given, or 100 samples if the environment has no tasks.
        seed: Makes the samples' seeds.
        success_at: The reward from which on an episode is a success.
        policy: `random`, `noop` or `MODULE:FUNCTION`; plays instead of the model.
        agent: A preset's name or a command line; plays instead of the model.
        agent_seconds: Seconds that an agent has for an episode.
        max_calls: Calls after which a player is stopped.
        sandbox: Whether an agent runs in a sandbox.
        agent_reads: Files and folders that an agent may read there, beside its own and the system's.
        agent_model: The model that an agent is given: the address of an `envport model serve` (its token in
            `ENVPORT_MODEL_TOKEN`), or a folder or a name on the hub, which is then served for this.
        agent_model_settings: How that model is served, if it is served for this.
    """
    place = Place.of(env)
    info = place.info()
    selection = Selection(split, num_tasks, seed)
    return Task(
        dataset=dataset(place, info, selection),
        solver=play(
            env, policy, agent, agent_seconds, max_calls, sandbox, agent_reads, agent_model, agent_model_settings
        ),
        scorer=outcome(env, success_at),
        # A lost episode is not scored but counted, and the others go on.
        fail_on_error=False,
        name=info.name,
        version=info.version,
        metadata={
            IDENTITY: _identity(info, selection, success_at, max_calls),
            SANDBOXED: sandbox if agent is not None else None,
            AGENT_MODEL: _described(agent_model, agent_model_settings),
        },
    )


def _identity(info: EnvironmentInfo, selection: Selection, success_at: float, max_calls: int) -> dict[str, Any]:
    first = info.splits[0].name if info.splits else None
    return {
        "environment": info.name,
        "version": info.version,
        "options": info.options,
        "fingerprint": info.fingerprint,
        "reward": info.reward,
        "split": selection.split or first,
        "seed": selection.seed,
        "success_at": success_at,
        "max_calls": max_calls,
        "envport": version("envport"),
        "source": info.source_fingerprint,
        "limits": _limits(info),
    }


def _described(agent_model: str | None, settings: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(AgentModel.of(agent_model, settings or {}).description) if agent_model is not None else None


def _limits(info: EnvironmentInfo) -> dict[str, Any] | None:
    """The limits of an episode. A gateway of an older version does not tell them all."""
    limits = info.limits
    return limits.model_dump(exclude={"max_episodes", "places"}) if "call_seconds" in limits.model_fields_set else None
