"""The scorer: reads reward and outcome over the control plane, which the player cannot reach."""

from __future__ import annotations

from typing import Any

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from envport.errors import EpisodeFailed
from envport.types import EpisodeInfo, FaultOwner
from envport_bridges.agents.gateways.place import Place
from envport_bridges.evaluation.inspect_ai.dataset import CLUSTER
from envport_bridges.evaluation.inspect_ai.naming import qualified
from envport_bridges.evaluation.inspect_ai.solver import BROKE, EPISODE, FAULT, OWN_FAULT, REFUSED, STOPPED, TEXTS

__all__ = ["REWARD", "SUCCESS", "outcome"]

REWARD, SUCCESS = "reward", "success"
"""The values of a score."""

# No `ci`: where an interval is unknown, Inspect gives one without width, and shares have other intervals here.
_METRICS = [mean(), stderr(cluster=CLUSTER)]


@scorer(name=qualified("outcome"), metrics={REWARD: _METRICS, SUCCESS: _METRICS})
def outcome(env: str, success_at: float = 1.0) -> Scorer:
    """Score an episode by its reward, as the training bridge does: 0 if no step had one.

    An episode that was lost to a fault gets no score: its sample is an error, which Inspect leaves out and counts. A
    fault that is the player's own is scored: its reward is what the steps gave, and it is never a success.

    Args:
        env: Address or reference of the environment; see `Place.of`.
        success_at: The reward from which on an episode is a success.
    """

    async def score(state: TaskState, target: Target) -> Score:
        async with Place.of(env).control() as control:
            # It has ended already. What its final state is worth may not be known yet.
            info = await control.finish(state.store.get(EPISODE))
        ended = info.outcome
        fault = ended.fault if ended is not None else None
        if ended is not None and fault is not None and fault != "player":
            why = f"not scored, because a fault says nothing about the player: {ended.message}"
            state.store.set(FAULT, fault)
            raise EpisodeFailed(why, fault)
        fault = "player" if state.store.get(OWN_FAULT) else fault
        reward = info.reward if info.reward is not None else 0.0
        return Score(
            value={REWARD: reward, SUCCESS: float(reward >= success_at and fault is None)},
            answer=state.output.completion[-500:],
            explanation=_explanation(info, state),
            metadata=_facts(info, state, fault),
        )

    return score


def _explanation(info: EpisodeInfo, state: TaskState) -> str:
    # "finished" means that we ended the episode because its player had stopped, so it did not end by itself.
    over = info.outcome is not None and info.outcome.reason != "finished"
    how = info.outcome.message if info.outcome is not None and over else "The episode was not played to its end."
    return f"{how} Here, {state.store.get(STOPPED)}."


def _facts(info: EpisodeInfo, state: TaskState, fault: FaultOwner | None) -> dict[str, Any]:
    return {
        "outcome": info.outcome.reason if info.outcome is not None else None,
        "fault": fault,
        "broke": state.store.get(BROKE),
        "stopped": state.store.get(STOPPED),
        "steps": info.steps,
        "tool_errors": max(info.errors, state.store.get(REFUSED, 0)),
        "rewarded": info.reward is not None,
        "seed": info.seed,
        "episode": info.episode_id,
        "fingerprint": info.fingerprint,
        "texts": state.store.get(TEXTS),
    }
