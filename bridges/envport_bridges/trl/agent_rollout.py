"""A `rollout_func` for GRPOTrainer whose player is a program of somebody else's.

The program gets the address of a model and the MCP address of an episode, and plays as it would for anybody. The model
is the trainer's policy: every token that it wrote is trained behind exactly the ids that it was sampled after.
"""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import cached_property
from typing import Any

from envport.errors import ConfigurationError
from envport.types import Choice
from envport_bridges.agents.gateways.hosted import Hosted
from envport_bridges.agents.gateways.place import Place
from envport_bridges.agents.model.contexts import ContextLimits
from envport_bridges.agents.model.desk import DeskFigures, ModelDesk
from envport_bridges.agents.model.endpoint import ModelEndpoint
from envport_bridges.agents.playing import AgentEpisode, AgentEpisodes, SessionSource
from envport_bridges.agents.programs.arguments import require_bool, require_positive, require_positive_whole
from envport_bridges.agents.programs.running import MissionRunner
from envport_bridges.rollouts.backend import RolloutTarget
from envport_bridges.rollouts.connection import connect
from envport_bridges.rollouts.loop import BackgroundLoop
from envport_bridges.trl.agent_faults import tell_of_faults
from envport_bridges.trl.agent_rows import AddedRow, AgentRow, agent_columns, log_agents
from envport_bridges.trl.chat_format import ChatTemplateFormat
from envport_bridges.trl.factory import EnvironmentFactory
from envport_bridges.trl.internals import require_internals
from envport_bridges.trl.listings import ENVIRONMENT_COLUMN
from envport_bridges.trl.outage import stops_at
from envport_bridges.trl.rows import choice_of, row_in_prompt
from envport_bridges.trl.scoring import score_for
from envport_bridges.trl.trainer_sampler import needed_to_sample, sampler_of

__all__ = ["AgentRollout", "AgentSettings"]

_NEEDED = (
    "_log_metric",
    "_tokenizer",
    "chat_template",
    "chat_template_kwargs",
    "eos_token_ids",
    "max_completion_length",
    "use_vllm",
)


@dataclasses.dataclass(frozen=True)
class AgentSettings:
    """How agents play a batch; see `Trainable.agent_rollout_func`."""

    at_once: int = 8
    deadline: float = 120.0
    max_model_calls: int = 200
    all_chains: bool = False
    compare_tokenizing: bool = False
    resident: bool = False

    def __post_init__(self) -> None:
        for name in ("at_once", "max_model_calls"):
            require_positive_whole(name, getattr(self, name))
        require_positive("deadline", self.deadline)
        for name in ("all_chains", "compare_tokenizing", "resident"):
            require_bool(name, getattr(self, name))


class AgentRollout:
    """What `GRPOTrainer(rollout_func=...)` takes; made by `Trainable.agent_rollout_func`.

    Attributes:
        all_chains: Whether further chains of an episode are trained as well, by an `AgentGRPOTrainer`.
        added: The further chains of the latest batch.
        figures: What was sampled for the latest batch, and how long it took.

    Args:
        factories: The environments, each for the rows that have its name in the column `environment`.
        runner: Runs the agent.
        settings: How it plays.

    Raises:
        ConfigurationError: The training has several processes.
    """

    def __init__(
        self,
        factories: Mapping[None, EnvironmentFactory] | Mapping[str, EnvironmentFactory],
        runner: MissionRunner,
        settings: AgentSettings,
    ):
        _require_one_process(int(os.environ.get("WORLD_SIZE") or 1))
        self.all_chains = settings.all_chains
        self.added: list[AddedRow] = []
        self.figures = DeskFigures()
        self._factories: dict[str | None, EnvironmentFactory] = dict(factories.items())
        self._runner = runner
        weakref.finalize(self, runner.close)
        self._settings = settings
        self._format: tuple[weakref.ref[Any], ChatTemplateFormat] | None = None
        self._stops = any(stops_at(factory.on_outage) for factory in factories.values())

    @cached_property
    def _players(self) -> dict[str | None, AgentEpisodes]:
        """What plays the episodes of each environment."""
        players: dict[RolloutTarget, AgentEpisodes] = {}
        for factory in self._factories.values():
            if factory.target not in players:
                connection = connect(self._with_tokens(factory.target))
                connection.keep_alive(factory.info.limits.idle_seconds)
                players[factory.target] = AgentEpisodes(
                    connection, factory.info, self._runner, self._settings.deadline, self._settings.max_model_calls
                )
        return {name: players[factory.target] for name, factory in self._factories.items()}

    def _with_tokens(self, target: RolloutTarget) -> RolloutTarget:
        """The same environment at a gateway where an agent can reach nothing but its own episode."""
        if target.remote:
            Place.of(target.where).require_tokens()
            return dataclasses.replace(target, mint_tokens=True)
        hosted = Hosted.start(target.where, target.options, target.score)
        weakref.finalize(self, hosted.stop).atexit = False
        where = f"{hosted.url}/environments/{hosted.name}"
        return dataclasses.replace(
            target, where=where, token=hosted.token, options="", score=None, mint_tokens=True, channel=False
        )

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Have an agent play an episode for each prompt.

        Args:
            prompts: Conversations, each naming its row.
            trainer: The trainer that asks.

        Returns:
            What TRL requires, the mask of what is trained on, and for reward functions the columns `episode_reward`,
            `episode_rewards`, `episode_finished`, `episode_lost`, `tool_calls`, `tool_failures` and `agent_ending`.

        Raises:
            ConfigurationError: The trainer works in a way in which agents cannot be trained, or the agent fails
                whenever it is started.
        """
        self._require(trainer)
        score_for(trainer, takes_out=True, stops=self._stops)
        chosen = [_chosen(prompt) for prompt in prompts]
        try:
            episodes = self._played(chosen, trainer)
        except BaseException:
            # Nobody is left who would ask for another batch.
            self.close()
            raise
        rows = [AgentRow.of(episode) for episode in episodes]
        tell_of_faults(episodes, deadline=self._settings.deadline, resident=self._settings.resident)
        self.added = [
            AddedRow(place, chain)
            for place, row in enumerate(rows)
            if self.all_chains and not row.episode.score.lost
            for chain in row.chains[1:]
        ]
        log_agents(trainer, rows, self.figures if self._settings.compare_tokenizing else None, self.all_chains)
        return agent_columns(rows, trainer._tokenizer.eos_token_id, with_logprobs=trainer.use_vllm)

    def _played(self, chosen: Sequence[tuple[str | None, Choice]], trainer: Any) -> list[AgentEpisode]:
        with closing(sampler_of(trainer)) as sampler:
            chat = self._format_of(trainer)
            chat.most_ids = min(chat.most_ids, sampler.most_ids or chat.most_ids)
            limits = ContextLimits(trainer.max_completion_length)
            desk = ModelDesk(chat, sampler, limits, compare_tokenizing=self._settings.compare_tokenizing)
            at_once = self._settings.at_once
            with ModelEndpoint(desk) as endpoint, _Batch(self._players, at_once, desk, endpoint) as batch:
                episodes = batch.play(chosen)
            self.figures = desk.figures
            return episodes

    def _format_of(self, trainer: Any) -> ChatTemplateFormat:
        # Kept, because it finds out how the template writes calls, and keeps what ends a turn.
        if self._format is None or self._format[0]() is not trainer:
            self._format = weakref.ref(trainer), ChatTemplateFormat.of_trainer(trainer)
        return self._format[1]

    def close(self) -> None:
        """End the processes of resident agents. They also end by themselves, a minute after their last mission."""
        self._runner.close()

    def _require(self, trainer: Any) -> None:
        require_internals(trainer, _NEEDED, "train agents by rollout_func")
        require_internals(trainer, needed_to_sample(trainer), "sample for agents")
        _require_one_process(trainer.accelerator.num_processes)
        if self.all_chains and not getattr(trainer, "trains_all_chains", False):
            raise ConfigurationError(
                f"all_chains=True needs AgentGRPOTrainer (from envport_bridges.trl), and this is a "
                f"{type(trainer).__name__}, which trains one row for each prompt"
            )


class _Batch:
    """The episodes of a batch. Its methods are called in the trainer's thread.

    A context manager: what is still played in the end is stopped, and the processes of its agents are killed.
    """

    def __init__(
        self, players: Mapping[str | None, AgentEpisodes], at_once: int, desk: ModelDesk, sessions: SessionSource
    ):
        self._players = players
        self._at_once = at_once
        self._desk = desk
        self._sessions = sessions
        self._loop = BackgroundLoop("envport agents")

    def __enter__(self) -> _Batch:
        for outages in {player.outages for player in self._players.values()}:
            self._loop.submit(outages.watch())
        return self

    def __exit__(self, *failure: object) -> None:
        self._loop.stop()

    def play(self, chosen: Sequence[tuple[str | None, Choice]]) -> list[AgentEpisode]:
        """Play episodes, so many at once, and answer the requests of their agents meanwhile.

        Args:
            chosen: The environment of each, and which episode it is.
        """
        started: list[Future[AgentEpisode]] = []
        waiting = deque(chosen)

        def running() -> int:
            return sum(not future.done() for future in started)

        def over() -> bool:
            while waiting and running() < self._at_once:
                name, choice = waiting.popleft()
                started.append(self._loop.submit(self._players[name].play(choice, self._sessions)))
                started[-1].add_done_callback(lambda _: self._desk.wake())
            return not running()

        self._desk.work(over, running)
        return [future.result() for future in started]


def _chosen(prompt: Sequence[Mapping[str, Any]]) -> tuple[str | None, Choice]:
    row = row_in_prompt(prompt)
    return row.get(ENVIRONMENT_COLUMN), choice_of(row)


def _require_one_process(number: int) -> None:
    if number > 1:
        raise ConfigurationError(
            f"the training has {number} processes, and agents can be trained in one only: generation is done by all "
            "processes together, and agents ask when they like. Use one process, with vLLM as a server for speed."
        )
