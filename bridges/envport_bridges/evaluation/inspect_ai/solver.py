"""The solver: opens an episode, lets its player play it, and always finishes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
from inspect_ai.log._samples import sample_active  # has no public name
from inspect_ai.solver import Generate, Solver, TaskState, solver

from envport.client import AsyncClient
from envport.episodes.requests import MAX_LABEL
from envport.errors import AtCapacity, EnvportError, EpisodeFailed, InvalidOption
from envport.secrecy import hide_memory
from envport.types import OpenedEpisode
from envport_bridges.agents.gateways.place import Place
from envport_bridges.evaluation.agent_models.served import AgentModel
from envport_bridges.evaluation.inspect_ai.calls import show_calls
from envport_bridges.evaluation.inspect_ai.model_server import require_model_server
from envport_bridges.evaluation.inspect_ai.naming import qualified
from envport_bridges.evaluation.inspect_ai.players import (
    AgentPlayer,
    EpisodePlayer,
    EpisodeToPlay,
    ModelPlayer,
    PolicyPlayer,
)

__all__ = ["BROKE", "EPISODE", "FAULT", "OWN_FAULT", "REFUSED", "STOPPED", "TEXTS", "play"]

EPISODE, STOPPED, REFUSED = "envport:episode", "envport:stopped", "envport:refused"
"""Keys in the sample's store: the episode's handle, why its player stopped, and how many calls were refused."""

FAULT = "envport:fault"
"""Key in the sample's store: the owner of the fault to which the episode was lost."""

BROKE, OWN_FAULT = "envport:broke", "envport:own_fault"
"""Keys in the sample's store: how the player's own program failed, and whether that is a fault of the player."""

TEXTS = "envport:texts"
"""Key in the sample's store: the fingerprint of the prompt and the first observation."""

_PATIENCE = 30


@solver(name=qualified("play"))
def play(
    env: str,
    policy: str | None = None,
    agent: str | None = None,
    agent_seconds: float = 600.0,
    max_calls: int = 200,
    sandbox: bool = True,
    agent_reads: str | Sequence[str] = (),
    agent_model: str | None = None,
    agent_model_settings: Mapping[str, Any] | None = None,
) -> Solver:
    """Play an episode with the model, with a policy, or with a whole agent.

    Args:
        env: Address or reference of the environment; see `Place.of`.
        policy: `random`, `noop` or `MODULE:FUNCTION`; plays instead of the model.
        agent: A preset's name or a command line; plays instead of the model.
        agent_seconds: Seconds that an agent has for an episode.
        max_calls: Calls after which a player is stopped.
        sandbox: Whether an agent runs in a sandbox.
        agent_reads: Files and folders that an agent may read there, beside its own and the system's.
        agent_model: The model that an agent is given; see `AgentModel.of`.
        agent_model_settings: How that model is served, if it is served for this.
    """
    if policy is not None and agent is not None:
        raise InvalidOption("a policy or an agent plays, not both")
    if agent_model is not None and agent is None:
        raise InvalidOption("agent_model is the model of an agent, and no agent plays")
    if max_calls < 1 or agent_seconds <= 0:
        raise InvalidOption("max_calls and agent_seconds have to be positive")
    player: EpisodePlayer
    if policy is not None:
        player = PolicyPlayer(policy)
    elif agent is not None:
        Place.of(env).require_tokens()
        hide_memory()
        # Inspect's `-T` makes a list of several only.
        reads = [agent_reads] if isinstance(agent_reads, str) else agent_reads
        model = AgentModel.of(agent_model, agent_model_settings or {}) if agent_model is not None else None
        player = AgentPlayer(agent, agent_seconds, sandbox, reads, model)
    else:
        require_model_server()
        player = ModelPlayer()
    return _Play(env, player, agent is not None, max_calls)


class _Play:
    def __init__(self, env: str, player: EpisodePlayer, minting: bool, max_calls: int):
        self._env = env
        self._player = player
        self._minting = minting
        self._max_calls = max_calls

    async def __call__(self, state: TaskState, generate: Generate) -> TaskState:
        place = Place.of(self._env)
        async with place.control() as control:
            opened = await self._open(control, place, state)
            state.store.set(EPISODE, opened.episode_id)
            state.store.set(TEXTS, _fingerprint(opened))
            state.store.set(STOPPED, "a limit was exceeded")
            try:
                info = await control.environment(place.name)
                game = EpisodeToPlay(place.name, opened, control, info.limits.idle_seconds, self._max_calls)
                ending = await self._player.play(game, state)
                state.store.set(STOPPED, ending.reason)
                state.store.set(REFUSED, ending.refused)
                state.store.set(BROKE, ending.broke)
                state.store.set(OWN_FAULT, ending.fault)
            finally:
                with anyio.CancelScope(shield=True), suppress(EnvportError):
                    await control.finish(opened.episode_id)
                    if isinstance(self._player, AgentPlayer):
                        await show_calls(control, opened.episode_id)
        return state

    async def _open(self, control: AsyncClient, place: Place, state: TaskState) -> OpenedEpisode:
        chosen = state.metadata
        for attempt in range(_PATIENCE):
            try:
                return await control.open(
                    place.name,
                    split=chosen.get("split"),
                    task=chosen.get("task_index"),
                    seed=chosen["seed"],
                    # Every player gets its own token, which only allows playing its episode.
                    mint_token=self._minting or bool(place.token),
                    labels=_labels(state),
                )
            except EpisodeFailed as failed:
                state.store.set(FAULT, failed.fault)
                raise
            except AtCapacity as full:
                if attempt == _PATIENCE - 1:
                    raise
                await anyio.sleep(full.retry_after)
        raise AssertionError


def _fingerprint(opened: OpenedEpisode) -> str:
    """SHA-256 of what a player is shown before its first call."""
    shown = [opened.prompt, opened.observation.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def _labels(state: TaskState) -> dict[str, str]:
    """The evaluation by the id that its log has, the sample, and which attempt at it this is."""
    active = sample_active()
    run = {"run": active.eval_id} if active is not None else {}
    return {**run, "group": str(state.sample_id)[:MAX_LABEL], "sample": str(state.epoch)}
