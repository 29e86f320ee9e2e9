"""What a trainer is given: rows, factories that play them, and rewards."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from envport_bridges.trl.ahead import OpeningPlan
from envport_bridges.trl.factory import EnvironmentFactory
from envport_bridges.trl.listings import ENVIRONMENT_COLUMN
from envport_bridges.trl.lost import without_lost
from envport_bridges.trl.outage import stops_at
from envport_bridges.trl.rewards import episode_reward
from envport_bridges.trl.rows import dataset_of, named_in_prompt

if TYPE_CHECKING:
    from envport_bridges.trl.agent_rollout import AgentRollout
    from envport_bridges.trl.rollout import EpisodeRollout

__all__ = ["Factories", "RewardFunction", "Trainable"]

Factories: TypeAlias = EnvironmentFactory | dict[str, EnvironmentFactory]
"""What TRL takes: a factory, or factories by the names in the column `environment`."""

RewardFunction = Callable[..., Any]
"""A reward function as TRL takes it, sync or async."""


class Trainable(ABC):
    """One environment, or several, to train on."""

    @cached_property
    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the dataset, as TRL passes them to `reset`."""

    @cached_property
    @abstractmethod
    def environment_factory(self) -> Any:
        """What `GRPOTrainer(environment_factory=...)` takes."""

    @cached_property
    @abstractmethod
    def async_environment_factory(self) -> Any:
        """The same for `AsyncGRPOTrainer`: async tools, and instances that own their reward. Pass no `reward_funcs`."""

    @property
    @abstractmethod
    def scored_by_environments(self) -> bool:
        """Whether environments own their reward, so that there is no default reward function."""

    @cached_property
    def train_dataset(self) -> Any:
        """The rows as a `datasets.Dataset`: `prompt`, `seed`, and `split`, `task_index`, `task_id` and the task's
        metadata where there are tasks; `environment` where there are several factories.

        Raises:
            UnknownTask: There is no such split or index.
        """
        return dataset_of(self.rows)

    @cached_property
    def rollout_func(self) -> EpisodeRollout:
        """For those who use TRL's `rollout_func`: stops where the episode is over. Train it on `rollout_dataset`."""
        from envport_bridges.trl.rollout import EpisodeRollout

        return EpisodeRollout(_by_name(self.environment_factory))

    def agent_rollout_func(
        self,
        command: str,
        *,
        at_once: int = 8,
        deadline: float = 120.0,
        resident: bool = False,
        all_chains: bool = False,
        max_model_calls: int = 200,
        sandbox: bool = True,
        reads: Sequence[str] = (),
        compare_tokenizing: bool = False,
    ) -> AgentRollout:
        """Train a whole agent: a program that is given a model's address and an MCP address. Train it on
        `rollout_dataset`.

        Args:
            command: The agent as in `envport eval --agent`: a command line, or a preset's name (`claude-code`, `codex`,
                `opencode`).
            at_once: How many agents play at once.
            deadline: Seconds that an agent has for an episode, without those in which its model writes.
            resident: Whether the program is started once and plays one mission after another, as its standard input
                names them; see `agents/RESIDENT.md`.
            all_chains: Whether every conversation of an episode is trained, and not only the one that did the work.
                Needs `AgentGRPOTrainer`.
            max_model_calls: Most turns of the model in an episode.
            sandbox: Whether agents run in a sandbox.
            reads: Files and folders that an agent may read there, beside its own and the system's.
            compare_tokenizing: Whether to count how many contexts would differ if the agent's words were tokenized
                again (`agent/tokenized_differently`). It makes contexts cost twice as much.

        Raises:
            ConfigurationError: An argument is not allowed, sandboxes cannot be made here, or the training has several
                processes.
            InvalidOption: The program or its file is not there, or it cannot be pointed at a model.
        """
        from envport_bridges.agents.programs.starting import runner_of
        from envport_bridges.trl.agent_rollout import AgentRollout, AgentSettings

        settings = AgentSettings(at_once, deadline, max_model_calls, all_chains, compare_tokenizing, resident)
        runner = runner_of(command, resident=resident, sandbox=sandbox, reads=reads)
        return AgentRollout(_by_name(self.environment_factory), runner, settings)

    @cached_property
    def rollout_dataset(self) -> Any:
        """`train_dataset` for `rollout_func`: TRL hands it the prompts alone, so each prompt names its row.

        To evaluate during training, pass the `rollout_dataset` of another specification of the same environments.
        """
        return dataset_of([named_in_prompt(row) for row in self.rows])

    def opened_ahead(self, num_generations: int, episodes: int = 64) -> Any:
        """`async_environment_factory`, with the next episodes open before `AsyncGRPOTrainer` asks for them.

        Args:
            num_generations: As the trainer's configuration has it.
            episodes: How many episodes to keep open ahead, in all.
        """
        factories: Factories = self.async_environment_factory
        if isinstance(factories, EnvironmentFactory):
            return _ahead(factories, self.rows, num_generations, episodes)
        planned: dict[str, EnvironmentFactory] = {}
        for name, factory in factories.items():
            rows = [row for row in self.rows if row[ENVIRONMENT_COLUMN] == name]
            share = max(1, episodes * len(rows) // len(self.rows))
            planned[name] = _ahead(factory, rows, num_generations, share)
        return planned

    @property
    def callbacks(self) -> list[Any]:
        """For `AsyncGRPOTrainer(callbacks=...)`: stops a run whose episodes are mostly lost, as `on_outage` says.

        The other trainers do so by themselves.
        """
        from envport_bridges.trl.outage_callback import OutageCallback

        factory = next(iter(_by_name(self.environment_factory).values()))
        return [OutageCallback(stops=stops_at(factory.on_outage))]

    @property
    def reward_funcs(self) -> list[RewardFunction]:
        """The default reward: what the environment gave. Empty if the environments own their reward."""
        return [] if self.scored_by_environments else [episode_reward]

    def rewards(self, *functions: RewardFunction) -> list[RewardFunction]:
        """The default reward and reward functions of your own, all of which leave lost episodes out.

        Args:
            *functions: Reward functions as TRL takes them, sync or async. They need not know of lost episodes: what
                they give for one is replaced by `None`.

        Returns:
            What `GRPOTrainer(reward_funcs=...)` takes.

        Raises:
            ConfigurationError: One of them is a reward model, which cannot be wrapped.
        """
        return [*self.reward_funcs, *map(without_lost, functions)]


def _by_name(factories: Factories) -> dict[Any, EnvironmentFactory]:
    return {None: factories} if isinstance(factories, EnvironmentFactory) else factories


def _ahead(
    factory: EnvironmentFactory, rows: Sequence[dict[str, Any]], num_generations: int, episodes: int
) -> EnvironmentFactory:
    return dataclasses.replace(factory, plan=OpeningPlan.of(rows, num_generations, episodes))
