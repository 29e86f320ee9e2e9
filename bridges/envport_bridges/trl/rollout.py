"""A `rollout_func` for GRPOTrainer: plays whole batches side by side, and stops where the episode is over.

TRL's own tool loop reads nobody's "done": a model that goes on after the end of its game spends tokens on it. This one
stops there. The prompts that TRL hands over hold no other columns, so each names its row in its last message.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

from envport_bridges.chat import failure_text
from envport_bridges.trl.chat_format import prepare_for_tools
from envport_bridges.trl.classes import tools_of
from envport_bridges.trl.factory import EnvironmentFactory
from envport_bridges.trl.figures import log_figures
from envport_bridges.trl.internals import require_internals
from envport_bridges.trl.listings import ENVIRONMENT_COLUMN
from envport_bridges.trl.lost import LOST_COLUMN
from envport_bridges.trl.observations import Shown
from envport_bridges.trl.outage import stops_at
from envport_bridges.trl.prompt_check import require_tools_in_prompts, shown_tools
from envport_bridges.trl.rollout_environment import RolloutEnvironment, finish_all, play_of
from envport_bridges.trl.rows import row_in_prompt
from envport_bridges.trl.scoring import COMPLETION_COLUMN, PROMPT_COLUMN, score_for
from envport_bridges.trl.turns import read_turn

__all__ = ["EpisodeRollout", "encode"]

_NEEDED = (
    "_generate_single_turn",
    "_get_tool_suffix_ids",
    "_tokenizer",
    "chat_template",
    "chat_template_kwargs",
    "max_completion_length",
    "max_tool_calling_iterations",
    "use_vllm",
)


@dataclass
class _Rollout:
    """One conversation as it grows."""

    environment: RolloutEnvironment
    prompt: list[dict[str, Any]]
    prompt_ids: list[int]
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    completion_ids: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    turns: int = 0
    called: int = 0
    failed: int = 0

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.completion_ids

    @property
    def lost(self) -> bool:
        return play_of(self.environment).record.lost

    def add(self, ids: Sequence[int], *, written: bool, logprobs: Sequence[float] | None = None) -> None:
        self.completion_ids += ids
        self.mask += [int(written)] * len(ids)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(ids)


class EpisodeRollout:
    """What `GRPOTrainer(rollout_func=...)` takes; made by `EnvironmentSpec.rollout_func`.

    Generates with whatever the trainer generates with: transformers, or vLLM as a server or in the same process.

    Args:
        factories: Make the environment instances, each for the rows that have its name in the column `environment`;
            `None` is the name for rows without that column.
    """

    def __init__(self, factories: Mapping[None, EnvironmentFactory] | Mapping[str, EnvironmentFactory]):
        self._factories: dict[str | None, EnvironmentFactory] = {
            name: dataclasses.replace(factory, asynchronous=False) for name, factory in factories.items()
        }
        self._checked = False
        self._stops = any(stops_at(factory.on_outage) for factory in factories.values())
        self._pools: dict[str | None, list[RolloutEnvironment]] = {name: [] for name in factories}

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Play an episode for each prompt.

        Args:
            prompts: Conversations, each naming its row.
            trainer: The trainer that asks.

        Returns:
            What TRL requires, the mask of what is trained on (what the model wrote, in episodes that were not lost),
            and for reward functions the columns `episode_reward`, `episode_rewards`, `episode_finished`,
            `episode_lost`, `tool_calls` and `tool_failures`.
        """
        require_internals(trainer, _NEEDED, "play episodes by rollout_func")
        prepare_for_tools(trainer)
        score_for(trainer, takes_out=True, stops=self._stops)
        rollouts = self._begin(prompts, trainer)
        if not self._checked:
            self._checked = True
            require_tools_in_prompts(
                trainer, [one.environment for one in rollouts], [one.prompt_ids for one in rollouts]
            )
        playing = rollouts
        while playing:
            self._write(playing, trainer)
            playing = [one for one in playing if self._may_call(one, trainer)]
            self._play(playing, trainer)
            playing = [one for one in playing if one.calls and not one.environment.finished]
        environments = [one.environment for one in rollouts]
        finish_all(environments)
        log_figures(trainer, environments)
        return _columns(rollouts, with_logprobs=trainer.use_vllm)

    def _begin(self, prompts: list[Any], trainer: Any) -> list[_Rollout]:
        rows = [row_in_prompt(prompt) for prompt in prompts]
        environments = self._instances(rows, trainer)
        for environment, row in zip(environments, rows, strict=True):
            play_of(environment).begin(row)
        started = [
            _with(prompt, play_of(environment).start(row))
            for environment, row, prompt in zip(environments, rows, prompts, strict=True)
        ]
        return [
            _Rollout(environment, prompt, encode(prompt, environment, trainer))
            for environment, prompt in zip(environments, started, strict=True)
        ]

    def _instances(self, rows: Sequence[dict[str, Any]], trainer: Any) -> list[RolloutEnvironment]:
        """An instance for each row, from the pool of the row's factory."""
        used: Counter[str | None] = Counter()
        environments: list[RolloutEnvironment] = []
        for row in rows:
            name = row.get(ENVIRONMENT_COLUMN)
            factory, pool = self._factories[name], self._pools[name]
            if used[name] == len(pool):
                pool.append(factory())
            environments.append(pool[used[name]])
            factory.read_as(environments[-1], trainer, trainer.processing_class)
            used[name] += 1
        return environments

    def _write(self, playing: list[_Rollout], trainer: Any) -> None:
        """Let the model write a turn of each conversation, as far as there is room, and read its tool calls."""
        written, logprobs = trainer._generate_single_turn([one.ids for one in playing], None, {}, num_generations=1)
        for number, one in enumerate(playing):
            room = trainer.max_completion_length - len(one.completion_ids)
            ids = written[number][:room]
            tools = shown_tools(one.environment)
            message = read_turn(trainer._tokenizer, ids, prefix=one.ids, tools=tools)
            one.add(ids, written=True, logprobs=logprobs[number][:room] if logprobs is not None else None)
            one.messages.append(message)
            one.calls = message.get("tool_calls") or []
            one.turns += 1

    def _may_call(self, one: _Rollout, trainer: Any) -> bool:
        return bool(one.calls) and one.turns <= trainer.max_tool_calling_iterations

    def _play(self, playing: list[_Rollout], trainer: Any) -> None:
        """Carry out the tool calls of all conversations side by side, and write down what they gave."""
        begun = [[(call["function"]["name"], _submit(one, call["function"])) for call in one.calls] for one in playing]
        for one, pending in zip(playing, begun, strict=True):
            messages: list[dict[str, Any]] = []
            for name, future in pending:
                content, failed = _result(one, future)
                one.called += 1
                one.failed += failed
                messages.append({"role": "tool", "name": name, "content": content})
            if one.environment.finished:
                # The model does not answer this one; reward functions read it.
                one.messages += messages
                continue
            suffix = trainer._get_tool_suffix_ids(messages)
            if len(one.completion_ids) + len(suffix) >= trainer.max_completion_length:
                one.calls = []
                continue
            one.messages += messages
            one.add(suffix, written=False)


def _submit(one: _Rollout, function: dict[str, Any]) -> Future[Shown] | str:
    tools = {tool.name: tool for tool in tools_of(type(one.environment)).values()}
    tool = tools.get(function["name"])
    if tool is None:
        return f"Tool {function['name']} not found."
    arguments = function["arguments"]
    if not isinstance(arguments, dict):
        return "The arguments have to be a JSON object."
    return play_of(one.environment).submit(tool, cast("dict[str, Any]", arguments))


def _result(one: _Rollout, future: Future[Shown] | str) -> tuple[Shown, bool]:
    if isinstance(future, str):
        return failure_text(future), True
    try:
        shown = play_of(one.environment).wait(future)
    except Exception as error:
        return failure_text(str(error)), True
    return shown, False


def _with(prompt: list[dict[str, Any]], observation: Shown) -> list[dict[str, Any]]:
    last = prompt[-1]
    text = observation if isinstance(observation, str) else "\n".join(b.get("text", "") for b in observation)
    return [*prompt[:-1], {"role": last["role"], "content": last["content"] + text}]


def encode(messages: list[dict[str, Any]], environment: RolloutEnvironment, trainer: Any) -> list[int]:
    """The token ids of a prompt, with the environment's tools."""
    return trainer.processing_class.apply_chat_template(
        [messages],
        tools=shown_tools(environment),
        chat_template=trainer.chat_template,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        **trainer.chat_template_kwargs,
    )["input_ids"][0]


def _columns(rollouts: list[_Rollout], *, with_logprobs: bool) -> dict[str, Any]:
    return {
        "prompt_ids": [one.prompt_ids for one in rollouts],
        "completion_ids": [one.completion_ids for one in rollouts],
        "logprobs": [one.logprobs for one in rollouts] if with_logprobs else None,
        "env_mask": [[0] * len(one.mask) if one.lost else one.mask for one in rollouts],
        PROMPT_COLUMN: [one.prompt for one in rollouts],
        COMPLETION_COLUMN: [one.messages for one in rollouts],
        LOST_COLUMN: [one.lost for one in rollouts],
        "episode_reward": [one.environment.score for one in rollouts],
        "episode_rewards": [one.environment.rewards for one in rollouts],
        "episode_finished": [one.environment.finished for one in rollouts],
        "tool_calls": [one.called for one in rollouts],
        "tool_failures": [one.failed for one in rollouts],
    }
