"""The async client of the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self, TypeVar

import httpx2

from envport.client import calls
from envport.client.addresses import gateway_address
from envport.client.calls import Call
from envport.client.certificates import trusted
from envport.client.reasons import reason_of
from envport.errors import GatewayUnreachable
from envport.types import (
    Choice,
    ChosenTask,
    EnvironmentInfo,
    EpisodeInfo,
    LegalCall,
    OpenedEpisode,
    TaskPage,
    Trajectory,
)

__all__ = ["AsyncClient"]

ResultT = TypeVar("ResultT")


class AsyncClient:
    """Opens, watches and closes episodes of a gateway. For async code. The episodes are played over MCP.

    Args:
        url: Address of the gateway, such as `http://127.0.0.1:8000`.
        token: Bearer token with the scope `control`; `ENVPORT_TOKEN` if not given.
        timeout: Seconds to wait for an answer; opening an episode may take as long as its environment does.

    Raises:
        ConfigurationError: The address is that of an environment, or none of HTTP.

    Every method raises the gateway's own errors (`envport.errors`), and `GatewayUnreachable` if there is no answer.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0):
        self.url = gateway_address(url)
        self._timeout = timeout
        self._http = httpx2.AsyncClient(
            base_url=self.url, headers=calls.headers_for(token), timeout=timeout, verify=trusted()
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def environments(self) -> list[EnvironmentInfo]:
        """The environments that are served."""
        return await self._send(calls.environments())

    async def environment(self, name: str) -> EnvironmentInfo:
        """One environment: its tools, splits and limits."""
        return await self._send(calls.environment(name))

    async def tasks(self, name: str, *, split: str | None = None, offset: int = 0, limit: int = 100) -> TaskPage:
        """A page of a split's tasks, at most 1,000. Uses the first split if none is named."""
        return await self._send(calls.tasks(name, split, offset, limit))

    async def open(
        self,
        environment: str,
        *,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
        reward_in_meta: bool = False,
        mint_token: bool = False,
        labels: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> OpenedEpisode:
        """Open an episode.

        Args:
            environment: Name of the environment.
            split: The split to take the task from; the first one if not given.
            task: Index of the task, or a task of your own; the seed chooses one if not given.
            seed: The seed; random if not given. The same task and seed give the same episode.
            reward_in_meta: Whether MCP results carry the reward in `_meta`. Not for evaluation.
            mint_token: Whether to return a bearer token that only allows playing this episode.
            labels: Labels by name, such as `run`, `group` and `sample`; `episodes` finds the episode by them.
            secrets: Secrets for the environment by name, which are recorded, logged and shown nowhere.

        Raises:
            UnknownEnvironment: The environment is not served.
            UnknownTask: It has no such split or task.
            AtCapacity: No capacity became free in time; says when to try again.
            EpisodeFailed: The environment failed.
        """
        choice = Choice(split, task, seed)
        call = calls.open_episode(
            environment,
            choice,
            reward_in_meta=reward_in_meta,
            mint_token=mint_token,
            labels=labels,
            secrets=secrets,
        )
        return await self._send(call)

    async def episodes(self, *, labels: Mapping[str, str] | None = None, limit: int = 100) -> list[EpisodeInfo]:
        """The caller's episodes that have these labels, the newest first: at most 1,000, ended ones too."""
        return await self._send(calls.episodes(labels or {}, limit))

    async def episode(self, episode_id: str) -> EpisodeInfo:
        """The state of an episode: status, outcome, steps, rewards, timing."""
        return await self._send(calls.episode(episode_id))

    async def legal_calls(self, episode_id: str) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say. A player is never shown them."""
        return (await self._send(calls.legal_calls(episode_id))).calls

    async def keep_alive(self, episode_id: str) -> EpisodeInfo:
        """Restart the idle time of an episode."""
        return await self._send(calls.keep_alive(episode_id))

    async def reset(
        self,
        episode_id: str,
        *,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
    ) -> OpenedEpisode:
        """Start an episode over, with the same task and seed unless others are given."""
        return await self._send(calls.reset(episode_id, Choice(split, task, seed)))

    async def fork(
        self,
        episode_id: str,
        step: int | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        mint_token: bool = False,
    ) -> OpenedEpisode:
        """Open a copy of an episode, which goes on by itself. The episode may also be one that has ended.

        Args:
            episode_id: The episode.
            step: How many of its calls the copy begins with, as the trajectory numbers them; all of them if not given.
            labels: Labels of the copy; those of the episode if not given.
            mint_token: Whether to return a bearer token that only allows playing the copy.

        Returns:
            The copy. Its observation is what the player saw last.

        Raises:
            InvalidRequest: There are fewer calls, or the episode cannot be copied there; the message says why.
            AtCapacity: No capacity became free in time; says when to try again.
            EpisodeFailed: The environment failed, or gave something else when the calls were played again.
        """
        return await self._send(calls.fork(episode_id, step, labels, mint_token=mint_token))

    async def finish(self, episode_id: str) -> EpisodeInfo:
        """End an episode, because its player has stopped, and return its state once its reward is known.

        Takes as long as the environment needs to score the final state, whatever `timeout` is. May be repeated: an
        episode that has ended keeps its outcome.
        """
        return await self._send(calls.finish(episode_id))

    async def close_episode(self, episode_id: str) -> EpisodeInfo:
        """Close an episode and return its last state. Closing it again changes nothing."""
        return await self._send(calls.close_episode(episode_id))

    async def trajectory(self, episode_id: str) -> Trajectory:
        """The trajectory of an episode."""
        return await self._send(calls.trajectory(episode_id))

    async def _send(self, call: Call[ResultT]) -> ResultT:
        try:
            response = await self._http.request(
                call.method, call.path, json=call.json, params=call.params, timeout=call.timeout(self._timeout)
            )
        except httpx2.HTTPError as error:
            raise GatewayUnreachable(f"no answer from {self.url}: {reason_of(error)}") from error
        return call.read(str(response.url), response.status_code, response.content)
