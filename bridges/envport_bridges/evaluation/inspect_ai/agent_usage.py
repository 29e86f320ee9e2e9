"""Counts how much an agent's model was used, in Inspect's accounts: tokens, cost, and the limits on them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import anyio
from inspect_ai.log import transcript
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
from inspect_ai.model._model import record_and_check_model_usage  # has no public name
from inspect_ai.tool import ToolChoice, ToolInfo
from inspect_ai.util import LimitExceededError

from envport.errors import EnvportError, EpisodeFailed
from envport_bridges.evaluation.agent_models.served import AgentModel
from envport_bridges.evaluation.agent_models.sessions import (
    AgentModelUnreachable,
    ModelSessions,
    RemoteSession,
    UsedTokens,
)
from envport_bridges.evaluation.inspect_ai.naming import qualified

__all__ = ["agent_model", "model_session"]

_INTERVAL = 1.0
_MOST_FAILED_LOOKS = 10


class _OfAgents(ModelAPI):
    """A model that agents ask, and never Inspect: it stands for them in Inspect's accounts."""

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        raise EnvportError(f"{self.model_name} is the model of an agent: give --agent too")


@modelapi(name=qualified("envport"))
def agent_model() -> type[ModelAPI]:
    """Models named `envport/NAME`: those of agents, given by `--agent-model`."""
    return _OfAgents


class _Account:
    """What the agent of one sample has used of its model. To be used in the sample's own context.

    Args:
        model: The model's name, `envport/NAME`.
    """

    def __init__(self, model: str):
        self._model: Any = get_model(model)
        self._counted = UsedTokens()

    def count(self, used: UsedTokens) -> None:
        """Add what was used since the last time.

        Args:
            used: All that was used.

        Raises:
            LimitExceededError: That is more than the sample may use.
        """
        before, self._counted = self._counted, used
        cached = used.cached - before.cached
        usage = ModelUsage(
            # Inspect counts what comes from a cache apart.
            input_tokens=used.prompt - before.prompt - cached,
            output_tokens=used.completion - before.completion,
            total_tokens=used.prompt - before.prompt + used.completion - before.completion,
            input_tokens_cache_read=cached,
        )
        if usage.total_tokens:
            record_and_check_model_usage(self._model, usage)


class _Watched:
    """A session whose agent is stopped when it exceeds a limit, or when its model is gone.

    Args:
        sessions: Where the session is.
        session: The session.
        account: Where its tokens are counted.
    """

    def __init__(self, sessions: ModelSessions, session: RemoteSession, account: _Account):
        self._sessions = sessions
        self._session = session
        self._account = account
        self._used = UsedTokens()
        self._exceeded: LimitExceededError | None = None

    async def watch(self, scope: anyio.CancelScope) -> None:
        failed = 0
        while failed < _MOST_FAILED_LOOKS and self._exceeded is None:
            await anyio.sleep(_INTERVAL)
            try:
                self._count(await self._sessions.used(self._session))
                failed = 0
            except AgentModelUnreachable:
                failed += 1
        scope.cancel()

    async def end(self) -> None:
        with anyio.CancelScope(shield=True):
            self._used = await self._sessions.end(self._session)
        self._count(self._used)
        transcript().info(asdict(self._used), source="agent model")

    def _count(self, used: UsedTokens) -> None:
        try:
            self._account.count(used)
        except LimitExceededError as error:
            self._exceeded = error

    def require_sound(self) -> None:
        if self._exceeded is not None:
            raise self._exceeded
        if self._used.failing:
            raise EpisodeFailed(
                f"the agent's model failed: {self._used.failed} of its requests had no answer, the last among them",
                "infrastructure",
            )


@asynccontextmanager
async def model_session(model: AgentModel, labels: Mapping[str, str]) -> AsyncGenerator[RemoteSession]:
    """A session of an agent's model for one episode, whose tokens are counted for the sample.

    Args:
        model: The model.
        labels: What the session is for.

    Raises:
        AgentModelUnreachable: The model's server gave no usable answer.
        EpisodeFailed: The model failed at the last request of the agent.
        LimitExceededError: The agent used more tokens, or dollars, than the sample may. It is stopped.
    """
    async with model.sessions() as sessions:
        session = await sessions.begin(labels)
        watched = _Watched(sessions, session, _Account(model.name))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watched.watch, tasks.cancel_scope)
                yield session
                tasks.cancel_scope.cancel()
        finally:
            await watched.end()
        watched.require_sound()
