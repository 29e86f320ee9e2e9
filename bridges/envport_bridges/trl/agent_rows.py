"""From the episodes that an agent played to what TRL trains on: one row for each prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envport_bridges.agents.model.calls import CallChain
from envport_bridges.agents.model.desk import DeskFigures
from envport_bridges.agents.playing import AgentEpisode
from envport_bridges.trl.lost import LOST_COLUMN
from envport_bridges.trl.scoring import COMPLETION_COLUMN, PROMPT_COLUMN

__all__ = ["AddedRow", "AgentRow", "agent_columns", "log_agents"]

ENDING_COLUMN = "agent_ending"
"""The column that tells reward functions how the agent ended, as `AgentEpisode.ending` has it."""


@dataclass(frozen=True)
class AddedRow:
    """A further chain of an episode, to be trained with the episode's advantage.

    Attributes:
        place: The place of the episode's own row in the batch.
        chain: The chain.
    """

    place: int
    chain: CallChain


@dataclass(frozen=True)
class AgentRow:
    """What is trained of an episode.

    Attributes:
        episode: The episode.
        chains: Its chains, of which the first is the row.
    """

    episode: AgentEpisode
    chains: Sequence[CallChain]

    @classmethod
    def of(cls, episode: AgentEpisode) -> AgentRow:
        """Read an episode whose agent has ended."""
        return cls(episode, episode.session.calls.chains if episode.session is not None else [])

    @property
    def left_out(self) -> int:
        """How many sampled tokens are in other chains than the first."""
        return sum(chain.trained for chain in self.chains[1:])

    def ids(self, end_id: int) -> tuple[list[int], list[int], list[int], list[float]]:
        """Ids of the prompt, ids of the completion, the loss mask and log probabilities.

        TRL fails on a row without a completion: an agent that asked for no turn has an end of turn that is not trained.
        """
        if not self.chains:
            return [end_id], [end_id], [0], [0.0]
        chain = self.chains[0]
        mask = [0] * len(chain.mask) if self.episode.score.lost else chain.mask
        return chain.prompt_ids, chain.completion_ids, mask, chain.logprobs or [0.0] * len(chain.mask)

    @property
    def conversation(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """The messages of the first context, and all after them."""
        if not self.chains:
            return [{"role": "user", "content": self.episode.prompt}], []
        calls = self.chains[0].calls
        first = len(calls[0].request.messages)
        messages = [*calls[-1].request.messages, calls[-1].message]
        return messages[:first], messages[first:]


def agent_columns(rows: Sequence[AgentRow], end_id: int, *, with_logprobs: bool) -> dict[str, Any]:
    """What a `rollout_func` returns.

    Args:
        rows: The rows, in the order of the prompts.
        end_id: The id that ends a turn.
        with_logprobs: Whether the trainer takes log probabilities.
    """
    episodes = [row.episode for row in rows]
    ids = [row.ids(end_id) for row in rows]
    return {
        "prompt_ids": [prompt for prompt, _, _, _ in ids],
        "completion_ids": [completion for _, completion, _, _ in ids],
        "env_mask": [mask for _, _, mask, _ in ids],
        "logprobs": [logprobs for _, _, _, logprobs in ids] if with_logprobs else None,
        PROMPT_COLUMN: [row.conversation[0] for row in rows],
        COMPLETION_COLUMN: [row.conversation[1] for row in rows],
        LOST_COLUMN: [episode.score.lost for episode in episodes],
        "episode_reward": [episode.reward for episode in episodes],
        "episode_rewards": [list(episode.score.rewards) for episode in episodes],
        "episode_finished": [episode.finished for episode in episodes],
        "tool_calls": [episode.steps for episode in episodes],
        "tool_failures": [episode.refused for episode in episodes],
        ENDING_COLUMN: [episode.ending for episode in episodes],
    }


def log_agents(trainer: Any, rows: Sequence[AgentRow], compared: DeskFigures | None, all_chains: bool) -> None:
    """Log the means over a batch, as `agent/*` and `envport/*`.

    Args:
        trainer: The trainer.
        rows: The batch.
        compared: What was sampled, if contexts were compared with what tokenizing again would give.
        all_chains: Whether all chains are trained.
    """
    played = [row.episode for row in rows if row.episode.session is not None]
    figures: dict[str, list[float]] = {
        "agent/chains": [len(row.chains) for row in rows],
        "agent/left_out_tokens": [0 if all_chains else row.left_out for row in rows],
        "agent/model_calls": [one.model_calls for one in played],
        "agent/refused_requests": [sum(one.session.refused.values()) for one in played if one.session is not None],
        "agent/crashed": [float(one.ending == "crashed") for one in played],
        "agent/stopped_at_deadline": [float(one.ending == "deadline") for one in played],
        "agent/seconds": [one.seconds for one in played],
        "envport/finished_episodes": [float(one.finished) for one in played],
        "envport/steps": [one.steps for one in played],
        "envport/refused_calls": [one.refused for one in played],
    }
    if compared is not None and compared.extended:
        figures["agent/tokenized_differently"] = [compared.tokenized_differently / compared.extended]
    for name, values in figures.items():
        if values:
            trainer._log_metric(name, sum(values) / len(values))
