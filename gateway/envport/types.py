"""Data that environments, the gateway and its clients exchange. All types are frozen and safe to serialize."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    computed_field,
    field_serializer,
    model_validator,
)
from pydantic_core import to_json, to_jsonable_python
from typing_extensions import TypeVar

from envport.blocks import ContentBlock, nested_too_deeply, prompt_of, whole_text

__all__ = [
    "CALL_ID_KEY",
    "CHANNEL_LINES",
    "MAX_BODY",
    "Choice",
    "ChosenTask",
    "EnvironmentInfo",
    "EpisodeInfo",
    "EpisodeLimits",
    "FaultOwner",
    "LegalCall",
    "LegalCalls",
    "Observation",
    "OpenedEpisode",
    "Outcome",
    "Reason",
    "Split",
    "Status",
    "Step",
    "StepRecord",
    "Task",
    "TaskPage",
    "Trajectory",
    "text_prompt",
]

ObservationT = TypeVar("ObservationT", default=Any)

LegalCall: TypeAlias = tuple[str, dict[str, Any]]
"""A call that makes sense now: the tool's name and the arguments."""

MAX_BODY = 4 * 2**20
"""The most bytes of the body of a request to a gateway, and of a WebSocket message to it."""

CALL_ID_KEY = "envport/call_id"
"""Key in `_meta` for the id of a tool call. A call with an id is played once, even if it is sent twice."""

CHANNEL_LINES = "envport.lines"
"""The WebSocket subprotocol of the rollout channel with any number of JSON-RPC messages in a message, one a line."""

Status = Literal["opening", "running", "scoring", "terminated", "truncated", "closed", "expired", "failed"]
"""The status of an episode. `terminated` and `truncated` have Gymnasium's meanings.

`scoring`: it takes no more calls, and its final state is being scored.
"""

Reason = Literal[
    "terminated",
    "truncated",
    "step_limit",
    "finished",
    "closed",
    "expired",
    "time_limit",
    "environment_error",
    "worker_lost",
    "deadline",
    "out_of_memory",
    "upstream",
    "refused",
    "shutdown",
    "store",
    "unreachable",
]
"""Why an episode ended."""

FaultOwner = Literal["player", "environment", "infrastructure"]
"""Who owns a fault that cut an episode short.

| owner | when | counts |
|---|---|---|
| `player` | it was lost while declared player code was running, and nothing outside that code had failed | as failed |
| `environment` | the environment's own code raised, crashed, hung or used too much memory | not at all |
| `infrastructure` | the machine, the gateway, or a system that the environment uses failed | not at all |

The owner by reason; every reason that is not here is no fault:

| reason | owner |
|---|---|
| `environment_error`: the environment raised an exception | `environment` |
| `refused`: the environment refused to begin, for example because the task is wrong | `environment` |
| `worker_lost`, `deadline`, `out_of_memory`, while code of the player was running | `player` |
| the same at any other time | `environment` |
| `worker_lost`, because no worker could be made, or a machine or the maker of workers was lost | `infrastructure` |
| `upstream`: a system that the environment uses failed | `infrastructure` |
| `shutdown`: the gateway was stopped | `infrastructure` |
| `store`: the trajectory store could not record a call, for example because the disk was full | `infrastructure` |
| `unreachable`: the gateway gave no answer; as its clients tell, for the gateway itself cannot | `infrastructure` |

`expired` is no fault: nobody called a tool for a long time. So a player that stops in silence cannot make its episode
one that does not count.
"""


# Without slots: on Python 3.11, `Step[str](...)` fails for a frozen class with slots.
@dataclass(frozen=True)
class Step(Generic[ObservationT]):
    """The result of a tool that returns more than an observation, like the result of Gymnasium's `step`.

    Attributes:
        observation: What the player sees.
        reward: Reward of this step; `None` if the step has no reward.
        terminated: Whether the task reached its end.
        truncated: Whether the episode was cut off for a reason outside the task.
        info: Diagnostics for the trajectory. The player never sees them.
    """

    observation: ObservationT
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


def _without_surrogates(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"it contains the lone surrogate {text[error.start]!a}, which is not a character") from None
    return text


def _as_json(value: Any) -> Any:
    plain = to_jsonable_python(value, fallback=repr)
    try:
        # It refuses lone surrogates, and takes a tenth of the time of what replaces them.
        written: str | bytes = to_json(plain)
    except ValueError:
        written = whole_text(json.dumps(plain, ensure_ascii=False))
        plain = json.loads(written)
    if nested_too_deeply(plain, written):
        raise ValueError("it is nested too deeply")
    return plain


class Task(_Wire):
    """A task of an environment.

    Attributes:
        id: Stable name, unique within its split.
        prompt: The instructions for the player: text, or a list of texts, images (Pillow or bytes) and MCP content
            blocks. A list that holds more than text is shown at the beginning of the first observation. If empty, the
            environment's `instructions` are used.
        metadata: Any data that the environment, a reward function or a scorer needs. The player never sees it.
    """

    id: Annotated[str, AfterValidator(_without_surrogates)]
    prompt: Annotated[str | list[Any], BeforeValidator(prompt_of)] = ""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_serializer("metadata", when_used="json")
    def _on_the_wire(self, metadata: dict[str, Any]) -> dict[str, Any]:
        # Metadata may contain anything, such as the images of a dataset, so it may not be JSON.
        try:
            return _as_json(metadata)
        except (ValueError, RecursionError):
            return {"envport/unshown": "this metadata cannot be written as JSON"}


def text_prompt(task: Task | None, instructions: str) -> str:
    """What the player of a task is told in words; empty if the first observation says it, with images.

    Args:
        task: The task, if the environment has tasks.
        instructions: What a player is told where the task has no prompt.
    """
    if task is None or not task.prompt:
        return instructions
    return task.prompt if isinstance(task.prompt, str) else ""


ChosenTask = int | Task | Mapping[str, Any]
"""Index of a task in its split, or a task that the caller supplies."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What to play: a split, a task and a seed.

    Attributes:
        split: The split to take the task from; the first one if not given.
        task: The task. If the environment has tasks and none is given, the seed selects one.
        seed: The seed; a random one is drawn if not given.
    """

    split: str | None = None
    task: ChosenTask | None = None
    seed: int | None = None


class Observation(_Wire):
    """An observation in MCP's form.

    Attributes:
        content: MCP content blocks, in order.
        structured_content: The same as data, if the environment returned data.
    """

    content: tuple[ContentBlock, ...] = ()
    structured_content: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


class Outcome(_Wire):
    """How an episode ended.

    Attributes:
        status: The final status.
        reason: Why it ended.
        message: The reason, for people to read. It contains no internals of the environment.
        fault: Who owns the fault that cut the episode short; `None` if there was no fault.
    """

    status: Status
    reason: Reason
    message: str
    fault: FaultOwner | None = None

    @property
    def lost(self) -> bool:
        """Whether the episode says nothing about the player, because of a fault that is not the player's.

        Leave such an episode out of training and of scores, and never count it as a reward of zero.
        """
        return self.fault is not None and self.fault != "player"

    @computed_field
    @property
    def infrastructure(self) -> bool:
        """The same as `lost`, under the name that clients without `fault` read."""
        return self.lost

    @model_validator(mode="before")
    @classmethod
    def _without_owner(cls, data: Any) -> Any:
        # A gateway that does not name owners only says that there was a fault.
        if not isinstance(data, Mapping):
            return data
        given = cast("Mapping[str, Any]", data)
        if "fault" not in given and given.get("infrastructure"):
            return {**given, "fault": "infrastructure"}
        return given


class StepRecord(_Wire):
    """One tool call of an episode, as recorded.

    Attributes:
        index: Number of the step within its episode, from 1.
        tool: The tool's name.
        arguments: The arguments as the player sent them.
        observation: What the player got back.
        error: Code of the error that the player got instead, if any. Such a call is not a step of the task.
        reward: Reward of the step, if it has one.
        terminated: Whether the task ended with this step.
        truncated: Whether the episode was cut off with this step.
        info: Diagnostics of the environment.
        started_at: Unix time in seconds.
        seconds: How long the environment took.
    """

    index: int
    tool: str
    arguments: dict[str, Any]
    observation: Observation
    error: str | None = None
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = Field(default_factory=dict)
    started_at: float = 0.0
    seconds: float = 0.0


class EpisodeInfo(_Wire):
    """The state of an episode.

    Attributes:
        episode_id: The handle.
        environment: Name of the environment.
        split: The split of the task, if it came from one.
        task: The task, if the environment has tasks. After the end of the episode, only the `id` is kept of a task that
            was given in the request and has more than 16 KiB.
        task_index: Index of the task in its split, if it was chosen by index.
        seed: The seed that the episode was reset with; `None` if the machine that knew it was lost.
        status: Status of the episode.
        outcome: How it ended; `None` while it runs.
        steps: Tool calls that reached the environment.
        errors: Tool calls that were refused, or that the environment answered with a `ToolError`.
        reward: The episode's reward: the sum or the last of `rewards`, as the environment declares. `None` if no
            step had a reward, and `None` if the episode is lost to a fault that is not the player's.
        rewards: The reward of each step; `None` for a step without one. At most the last 10,000 steps. If the final
            state was scored, the score is the last one.
        score: The score of the final state; `None` if it was not scored.
        created_at: Unix time in seconds.
        ended_at: Unix time in seconds, `None` while it runs.
        expires_in: Seconds until the episode expires, if there is no call.
        environment_seconds: Time spent inside the environment.
        resets: How often the episode was reset.
        fingerprint: Fingerprint of the episode's tool listing; empty if the machine that knew it was lost.
        labels: What whoever opened it labelled it with, such as `run`, `group` and `sample`.
    """

    episode_id: str
    environment: str
    split: str | None = None
    task: Task | None = None
    task_index: int | None = None
    seed: int | None
    status: Status
    outcome: Outcome | None = None
    steps: int = 0
    errors: int = 0
    reward: float | None = None
    rewards: list[float | None] = Field(default_factory=list[float | None])
    score: float | None = None
    created_at: float
    ended_at: float | None = None
    expires_in: float | None = None
    environment_seconds: float = 0.0
    resets: int = 0
    fingerprint: str = ""
    labels: dict[str, str] = Field(default_factory=dict[str, str])


class LegalCalls(_Wire):
    """Which calls make sense in an episode now.

    Attributes:
        calls: The calls, or a sample of them; `None` if the environment does not say.
    """

    calls: list[LegalCall] | None = None


class OpenedEpisode(_Wire):
    """An episode that was opened or reset.

    Attributes:
        episode_id: The handle.
        mcp_url: The URL at which an MCP client plays this episode.
        prompt: The instructions for the player.
        observation: The first observation.
        seed: The seed in use: the requested one, or a random one.
        fingerprint: Fingerprint of the episode's tool listing.
        tools: The episode's tools, as MCP lists them, if tasks have tools of their own. Otherwise `None`: they are
            those of the environment.
        token: A bearer token that can only play this episode, if one was requested.
    """

    episode_id: str
    mcp_url: str
    prompt: str
    observation: Observation
    seed: int
    fingerprint: str
    tools: list[dict[str, Any]] | None = None
    token: str | None = None


class Split(_Wire):
    """A named collection of tasks.

    Attributes:
        name: Name of the split.
        num_tasks: How many tasks it has.
    """

    name: str
    num_tasks: int


class EpisodeLimits(_Wire):
    """Limits on an environment's episodes.

    Attributes:
        max_steps: An episode is truncated after this many tool calls; `None` for no limit.
        max_episodes: Maximum number of live episodes of the environment; `None` if only the gateway's total limits
            it.
        places: How many live episodes of the environment one client can have at most, whatever limits them; `None` if
            it is not known, as on a cluster.
        idle_seconds: An episode expires after this many seconds without a call.
        max_seconds: An episode is truncated this many seconds after its reset. This and the following are `None` for no
            limit.
        call_seconds: Seconds that a tool call may take.
        score_seconds: Seconds that scoring the final state may take.
        memory_mb: MiB of memory that an episode may use.
        cpu_seconds: Seconds of CPU time that it may use.
        max_processes: Processes and threads that it may have.
    """

    max_steps: int | None = None
    max_episodes: int | None = None
    places: int | None = None
    idle_seconds: float
    max_seconds: float | None = None
    call_seconds: float | None = None
    score_seconds: float | None = None
    memory_mb: float | None = None
    cpu_seconds: float | None = None
    max_processes: int | None = None


class EnvironmentInfo(_Wire):
    """An environment as the gateway describes it.

    Attributes:
        name: The name under which it is served.
        version: The environment's own version.
        description: What it is, for people.
        instructions: What a player is told to do where the task has no prompt.
        options: The options that it is served with.
        splits: Its splits, if it has tasks.
        limits: Limits on its episodes.
        reward: Whether the episode's reward is the sum of the steps' rewards or the last one.
        scored: Whether the final state of an episode is scored. The reward is complete only after that; `finish` waits
            for it.
        fingerprint: SHA-256 of the tool listing in canonical JSON; equal fingerprints mean equal tools.
        source_fingerprint: SHA-256 of the environment's source and of its scorer's; `None` if it has no source.
        tools: The declared tools, as MCP lists them on an episode's URL.
        tools_vary: Whether tasks have tools of their own; see `TaskPage`.
        mcp_url: The URL for an MCP client that starts episodes itself.
    """

    name: str
    version: str
    description: str
    instructions: str
    options: dict[str, Any]
    splits: list[Split]
    limits: EpisodeLimits
    reward: Literal["sum", "last"]
    scored: bool = False
    fingerprint: str
    source_fingerprint: str | None = None
    tools: list[dict[str, Any]]
    tools_vary: bool = False
    mcp_url: str


class TaskPage(_Wire):
    """A page of the tasks of a split.

    Attributes:
        split: Name of the split.
        total: Number of tasks in the split.
        offset: Index of the first task of this page.
        tasks: The tasks, in the order of their indices.
        fingerprints: Fingerprint of each task's tool listing, in the same order, if tasks have tools of their own.
        listings: These listings, each once, by fingerprint.
    """

    split: str
    total: int
    offset: int
    tasks: list[Task]
    fingerprints: list[str] = Field(default_factory=list[str])
    listings: dict[str, list[dict[str, Any]]] = Field(default_factory=dict[str, list[dict[str, Any]]])


class Trajectory(_Wire):
    """The recording of an episode.

    Attributes:
        episode: State of the episode.
        environment_version: Version of the environment that was played.
        fingerprint: Fingerprint of the tool listing that was played.
        first_observation: What the player saw first.
        steps: The recorded calls, oldest first.
        dropped_steps: How many of the oldest calls are no longer kept.
    """

    episode: EpisodeInfo
    environment_version: str
    fingerprint: str
    first_observation: Observation
    steps: list[StepRecord]
    dropped_steps: int = 0
