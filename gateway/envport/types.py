"""Data that environments, the gateway and its clients exchange: frozen, and safe to put on a wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_serializer
from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

__all__ = [
    "CALL_ID_KEY",
    "ContentBlock",
    "EnvironmentInfo",
    "EpisodeInfo",
    "EpisodeLimits",
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
]

ObservationT = TypeVar("ObservationT", default=Any)

ContentBlock: TypeAlias = dict[str, Any]
"""One MCP content block in wire form, such as `{"type": "text", "text": "..."}` (MCP 2026-07-28, ContentBlock)."""

CALL_ID_KEY = "envport/call_id"
"""Where `_meta` of a tool call names the call, so that it is played once even if it is sent twice."""

Status = Literal["opening", "running", "terminated", "truncated", "closed", "expired", "failed"]
"""Where an episode is. `terminated` and `truncated` have Gymnasium's meanings."""

Reason = Literal[
    "terminated",
    "truncated",
    "step_limit",
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
]
"""Why an episode ended."""


# Without slots: on Python 3.11, `Step[str](...)` fails for a class with slots that is frozen.
@dataclass(frozen=True)
class Step(Generic[ObservationT]):
    """What a tool returns when it has more to say than an observation (Gymnasium's `step`).

    Attributes:
        observation: What the player sees.
        reward: Reward of this step; `None` where the step carries no reward signal.
        terminated: The task reached an end of its own.
        truncated: The episode was cut off from outside the task.
        info: Diagnostics for the trajectory; the player never sees them.
    """

    observation: ObservationT
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Task(_Wire):
    """One thing to do in an environment.

    Attributes:
        id: Stable name, unique within its split.
        prompt: What the player is told to do; empty where the environment's description says it all.
        metadata: Whatever the environment, a reward function or a scorer needs. The player never sees it.
    """

    id: str
    prompt: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_serializer("metadata", when_used="json")
    def _on_the_wire(self, metadata: dict[str, Any]) -> dict[str, Any]:
        # An environment's tasks hold what they like, such as the images of a dataset.
        try:
            text = json.dumps(to_jsonable_python(metadata, fallback=repr), ensure_ascii=False)
            return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        except (ValueError, RecursionError):
            return {"envport/unshown": "this metadata cannot be written as JSON"}


class Observation(_Wire):
    """An observation in the form in which MCP carries it.

    Attributes:
        content: MCP content blocks, in order.
        structured_content: The same as data, where the environment returned data.
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
        message: The same for a person to read; holds nothing of the environment's inside.
        infrastructure: The episode was cut short by a fault and says nothing about the player: leave it out
            of training and of scores, never count it as a reward of zero.
    """

    status: Status
    reason: Reason
    message: str
    infrastructure: bool = False


class StepRecord(_Wire):
    """One tool call of an episode, as recorded.

    Attributes:
        index: Number of the step within its episode, from 1.
        tool: The tool's name.
        arguments: The arguments as the player sent them.
        observation: What the player got back.
        error: Code of the error that the player got instead, if any; such a call is not a step of the task.
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
        task: The task, if the environment has tasks.
        task_index: Index of the task in its split, if it was chosen by index.
        seed: The seed that the episode was reset with; `None` if the machine that knew it was lost.
        status: Where the episode is.
        outcome: How it ended; `None` while it runs.
        steps: Tool calls that reached the environment.
        errors: Tool calls that were refused, or that the environment answered with a `ToolError`.
        reward: The episode's reward: the sum or the last of `rewards`, as the environment declares; `None` if
            no step carried a reward, and `None` after an infrastructure failure.
        rewards: The reward of each step, `None` where it had none. At most the last 10,000 steps.
        created_at: Unix time in seconds.
        ended_at: Unix time in seconds, `None` while it runs.
        expires_in: Seconds until the idle limit ends it, if nobody calls.
        environment_seconds: Time spent inside the environment.
        resets: How often the episode was started over.
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
    created_at: float
    ended_at: float | None = None
    expires_in: float | None = None
    environment_seconds: float = 0.0
    resets: int = 0


class OpenedEpisode(_Wire):
    """What opening or resetting an episode gives.

    Attributes:
        episode_id: The handle.
        mcp_url: Where an MCP client plays this episode.
        prompt: What the player is told to do.
        observation: The first observation.
        seed: The seed in use: the one asked for, or the one that was drawn.
        token: A bearer token that plays this episode and opens nothing else, if one was asked for.
    """

    episode_id: str
    mcp_url: str
    prompt: str
    observation: Observation
    seed: int
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
        max_steps: Tool calls after which an episode is truncated; `None` for no limit.
        max_episodes: Episodes of it that may be live at once; `None` for no limit of its own.
        idle_seconds: Seconds without a call after which an episode expires.
    """

    max_steps: int | None = None
    max_episodes: int | None = None
    idle_seconds: float


class EnvironmentInfo(_Wire):
    """An environment as the gateway describes it.

    Attributes:
        name: The name under which it is served.
        version: The environment's own version.
        description: What it is, in the words of its author.
        options: The options that it is served with.
        splits: Its splits, if it has tasks.
        limits: Limits on its episodes.
        reward: How the rewards of the steps make the reward of the episode.
        fingerprint: SHA-256 of the tool listing in canonical JSON; equal fingerprints mean equal tools.
        tools: The tools, as MCP lists them on an episode's URL.
        mcp_url: Where an MCP client can be attached once, to start episodes by itself.
    """

    name: str
    version: str
    description: str
    options: dict[str, Any]
    splits: list[Split]
    limits: EpisodeLimits
    reward: Literal["sum", "last"]
    fingerprint: str
    tools: list[dict[str, Any]]
    mcp_url: str


class TaskPage(_Wire):
    """A page of the tasks of a split.

    Attributes:
        split: Name of the split.
        total: Number of tasks in the split.
        offset: Index of the first task of this page.
        tasks: The tasks, in the order of their indices.
    """

    split: str
    total: int
    offset: int
    tasks: list[Task]


class Trajectory(_Wire):
    """What happened in an episode.

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
