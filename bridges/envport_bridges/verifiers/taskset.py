# verifiers is installed in an environment of its own, where the type checker does not look.
# pyright: basic, reportMissingImports=false
"""Tasks of an environment at a gateway, in the form of verifiers v1.

A task becomes an episode only when it is played, by `EnvportEnv`: the copy that it makes has the episode's tools.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

import verifiers.v1 as vf
from pydantic import Field, field_validator

from envport import Client
from envport.client.addresses import EnvironmentAddress
from envport.types import Choice, text_prompt

__all__ = ["EnvportConfig", "EnvportData", "EnvportTask", "EnvportTaskConfig", "EnvportTaskset", "TaskEpisode"]

_PAGE = 1000


class EnvportTaskConfig(vf.TaskConfig):
    """Settings of a task.

    Attributes:
        tools: Where the tools are. The environment fills it in for each episode.
    """

    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class EnvportConfig(vf.TasksetConfig):
    """Which tasks of which environment are played: `--env.taskset.*`.

    Attributes:
        url: Address of the environment: `http://HOST:PORT/environments/NAME`.
        split: The split; the environment's first one if not given.
        seed: Seed of the first task; each further task has the next one. All rollouts of a task share its seed.
        episodes: How many tasks there are if the environment has none of its own: each is a seed.
        token_var: Name of the environment variable that holds the bearer token, if the gateway needs one.
        task: Settings of verifiers.
    """

    # verifiers makes one of every configuration before it has read the user's, so that each field needs a default.
    url: str = ""
    split: str | None = None
    seed: int = Field(0, ge=0)
    episodes: int = Field(100, ge=1)
    token_var: str = "ENVPORT_TOKEN"
    task: EnvportTaskConfig = EnvportTaskConfig()

    @field_validator("url")
    @classmethod
    def _names_an_environment(cls, url: str) -> str:
        if url and EnvironmentAddress.parse(url) is None:
            raise ValueError(f"{url!r} does not name an environment of a gateway: http://HOST:PORT/environments/NAME")
        return url

    @property
    def address(self) -> EnvironmentAddress:
        """The address, in parts.

        Raises:
            ValueError: There is none.
        """
        address = EnvironmentAddress.parse(self.url)
        if address is None:
            raise ValueError("say which environment: --env.taskset.url http://HOST:PORT/environments/NAME")
        return address

    @property
    def token(self) -> str | None:
        """The bearer token."""
        return os.environ.get(self.token_var)


class EpisodeTools(vf.Toolset[vf.ToolsetConfig]):
    """The tools of an episode, which the gateway serves. They keep their names."""

    TOOL_PREFIX = None


class TaskEpisode(Protocol):
    """What a task needs to know of its episode."""

    async def over(self) -> bool:
        """Whether it has ended."""
        ...

    async def reward(self) -> float:
        """End it, if the agent has only stopped, and wait for its reward: 0 if no step had one.

        Raises:
            EpisodeFailed: It was lost to a fault that is not the agent's.
        """
        ...

    async def steps(self) -> int:
        """Tool calls that were played."""
        ...


class EnvportData(vf.TaskData):
    """A task, and the seed that it is played with.

    Attributes:
        split: The split that it belongs to; `None` if the environment has no tasks.
        index: Its index in the split.
        seed: The seed. The same task and seed give the same episode.
    """

    split: str | None = None
    index: int | None = None
    seed: int

    @property
    def choice(self) -> Choice:
        """What an episode of it is opened with."""
        return Choice(self.split, self.index, self.seed)


class EnvportTask(vf.Task[EnvportData, vf.State, EnvportTaskConfig]):
    """A task of an environment. `EnvportEnv` makes a copy of it for each episode."""

    def __init__(self, data: EnvportData, config: EnvportTaskConfig | None = None, episode: TaskEpisode | None = None):
        super().__init__(data, config)
        self._episode = episode

    @property
    def episode(self) -> TaskEpisode:
        """The episode that is played."""
        if self._episode is None:
            raise ValueError(
                "only EnvportEnv plays these tasks: leave out --env.id, or choose an environment based on it"
            )
        return self._episode

    @property
    def key(self) -> str:
        """What it is played with. The words of an opening belong to an episode, not to the task."""
        data = self.data
        return f"{data.split}/{data.id if data.id is not None else data.index}/{data.seed}"

    @classmethod
    def toolsets(cls, config: EnvportTaskConfig) -> list[vf.Toolset]:
        """The tools of the episode."""
        return [EpisodeTools(config.tools)]

    @vf.stop
    async def episode_over(self, request: vf.Request) -> bool:
        """No more calls are taken once the environment has ended the episode."""
        return await self.episode.over()

    @vf.reward(weight=1.0)
    async def episode_reward(self) -> float:
        """The reward of the episode.

        Raises:
            EpisodeFailed: A fault that is not the agent's cut it short. verifiers records an error, and no reward.
        """
        return await self.episode.reward()

    @vf.metric
    async def episode_steps(self) -> float:
        """Tool calls that were played."""
        return float(await self.episode.steps())


class EnvportTaskset(vf.Taskset[EnvportTask, EnvportConfig]):
    """The tasks of an environment at a gateway; if it has none, one task for each of `episodes` seeds."""

    def load(self) -> Iterator[EnvportTask]:
        """The tasks, a page at a time."""
        config = self.config
        name = config.address.name
        with Client(config.address.gateway, token=config.token) as client:
            info = client.environment(name)
            if not info.splits:
                if config.split is not None:
                    raise ValueError(f"{name} has no tasks, so that there is no split {config.split!r}")
                for number in range(config.episodes):
                    yield self._made(f"{name}#{number}", info.instructions, seed=config.seed + number)
                return
            total, index = 1, 0
            while index < total:
                page = client.tasks(name, split=config.split, offset=index, limit=_PAGE)
                total = page.total
                for task in page.tasks:
                    prompt = text_prompt(task, info.instructions)
                    place = {"id": task.id, "split": page.split, "index": index}
                    yield self._made(f"{page.split}/{task.id}", prompt, seed=config.seed + index, **place)
                    index += 1

    def _made(self, name: str, prompt: str, **fields: Any) -> EnvportTask:
        # An episode says in its first observation what a prompt with images would say.
        return EnvportTask(EnvportData(name=name, prompt=prompt, **fields), self.config.task)
