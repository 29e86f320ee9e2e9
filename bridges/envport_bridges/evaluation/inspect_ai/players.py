"""The players of an episode: a model, a policy, or a whole agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import anyio
from inspect_ai.log import transcript
from inspect_ai.model import ChatMessageTool, ChatMessageUser, ModelOutput, execute_tools, get_model
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolInfo
from inspect_ai.util import LimitExceededError

from envport.blocks import text_of
from envport.client import AsyncClient
from envport.errors import EnvportError, EpisodeOver, UnknownEpisode
from envport.types import LegalCall, OpenedEpisode
from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.missions import Mission, ModelAccess
from envport_bridges.agents.programs.processes import Ended
from envport_bridges.agents.programs.running import AgentRunner
from envport_bridges.agents.programs.sandbox import AgentSandbox
from envport_bridges.agents.programs.seat import Seat
from envport_bridges.evaluation.agent_models.served import AgentModel
from envport_bridges.evaluation.inspect_ai.agent_usage import model_session
from envport_bridges.evaluation.inspect_ai.calls import ShownSeat
from envport_bridges.evaluation.inspect_ai.exact_tools import playable, shown, tool_content
from envport_bridges.evaluation.players.policies import PolicyRaised, View, load_policy, play_policy

__all__ = ["AgentPlayer", "Ending", "EpisodePlayer", "EpisodeToPlay", "ModelPlayer", "PolicyPlayer"]


@dataclass(frozen=True)
class EpisodeToPlay:
    """An open episode for a player.

    Attributes:
        environment: Name of the environment.
        opened: The opened episode.
        control: A client of the control plane; players do not get it.
        idle_seconds: Seconds without a call after which the episode expires.
        most_calls: Number of calls after which the player is stopped.
    """

    environment: str
    opened: OpenedEpisode
    control: AsyncClient
    idle_seconds: float
    most_calls: int

    async def legal_calls(self) -> list[LegalCall] | None:
        """The calls that make sense now, for a policy; `None` if the environment does not say, or is over."""
        try:
            return await self.control.legal_calls(self.opened.episode_id)
        except (EpisodeOver, UnknownEpisode):
            return None

    @property
    def text(self) -> str:
        """The prompt and the first observation, joined as in training."""
        first = "\n".join(map(text_of, self.opened.observation.content))
        return f"{self.opened.prompt}\n\n{first}" if self.opened.prompt else first


@dataclass(frozen=True)
class Ending:
    """Why a player stopped.

    Attributes:
        reason: Text for people.
        refused: How many of its calls were refused, before or at the gateway; 0 if only the gateway knows.
        broke: How its own program failed, if it did: an exception, or an exit code and the end of its output.
        fault: Whether that is a fault of the player, which is never a success.
    """

    reason: str
    refused: int = 0
    broke: str | None = None
    fault: bool = False


class EpisodePlayer(Protocol):
    """Plays one episode to its end, or until it stops by itself."""

    async def play(self, game: EpisodeToPlay, state: TaskState) -> Ending:
        """Play an episode, over MCP only.

        Raises:
            EnvportError: The gateway failed. This is not the player's fault.
        """
        ...


class ModelPlayer:
    """The evaluated model, with only the environment's tools."""

    async def play(self, game: EpisodeToPlay, state: TaskState) -> Ending:
        """Let the model call tools until the episode is over or the model stops calling tools."""
        async with Seat.at(game.opened.mcp_url, game.opened.token) as seat:
            state.messages[-1] = ChatMessageUser(content=_opening(game))
            tools: list[ToolInfo] = [shown(tool) for tool in seat.tools]
            return await self._play(game, state, seat, tools)

    async def _play(self, game: EpisodeToPlay, state: TaskState, seat: Seat, tools: list[ToolInfo]) -> Ending:
        callable_tools = [playable(tool, seat) for tool in seat.tools]
        made = refused = 0
        while True:
            state.output = await get_model().generate(state.messages, tools=tools)
            state.messages.append(state.output.message)
            calls = state.output.message.tool_calls or []
            if not calls:
                return Ending(f"the model called no tool ({state.output.stop_reason})", refused)
            answers = await execute_tools(state.messages, callable_tools)
            state.messages.extend(answers.messages)
            made += len(calls)
            refused += sum(
                isinstance(answer, ChatMessageTool) and answer.error is not None for answer in answers.messages
            )
            if seat.over:
                return Ending("the episode was over", refused)
            if made >= game.most_calls:
                return Ending(f"the player was stopped after {made} calls", refused)


def _opening(game: EpisodeToPlay) -> Any:
    blocks = game.opened.observation.content
    if all(block.get("type") not in ("image", "audio") for block in blocks):
        return game.text
    opening = [tool_content(block) for block in blocks]
    prompt = {"type": "text", "text": f"{game.opened.prompt}\n\n"}
    return [tool_content(prompt), *opening] if game.opened.prompt else opening


class PolicyPlayer:
    """A policy, which is a function.

    Args:
        name: The policy; see `load_policy`.
    """

    def __init__(self, name: str):
        self._policy = load_policy(name)

    async def play(self, game: EpisodeToPlay, state: TaskState) -> Ending:
        """Let the policy play. Its random numbers depend on the seed and the epoch."""
        async with ShownSeat.at(game.opened.mcp_url, game.opened.token) as seat:
            first = "\n".join(map(text_of, game.opened.observation.content))
            rng = Random(f"{game.opened.seed}/{state.epoch}")
            view = View(game.environment, game.opened.prompt, seat.tools, first, rng)
            raised: PolicyRaised | None = None
            try:
                reason = await play_policy(self._policy, view, seat, game.most_calls, game.legal_calls)
            except PolicyRaised as error:
                if isinstance(error.__cause__, LimitExceededError):
                    raise error.__cause__ from None
                raised, reason = error, f"the policy raised {error}"
        calls = [f"{tool}({arguments}) -> {reply.text}" for (tool, arguments), reply in view.history]
        state.output = ModelOutput.from_content("policy", "\n".join(calls))
        refused = sum(reply.is_error for _, reply in view.history)
        return Ending(reason, refused, str(raised) if raised else None, raised is not None)


class AgentPlayer:
    """An agent, which is a program.

    Args:
        command: A preset's name or a command line; see `Agent.named`.
        seconds: Its time limit for an episode.
        sandbox: Whether it runs in a sandbox.
        reads: Files and folders that it may read in its sandbox, beside its own and the system's.
        model: The model that it is given, if it is given one.

    Raises:
        ConfigurationError: Sandboxes cannot be made here.
        InvalidOption: The program is not installed, or a path of `reads` cannot be shown.
    """

    def __init__(
        self,
        command: str,
        seconds: float,
        sandbox: bool = True,
        reads: Sequence[str] = (),
        model: AgentModel | None = None,
    ):
        agent = Agent.named(command, given_model=model is not None)
        own = AgentSandbox(agent, reads) if sandbox else None
        if own is not None:
            own.require()
        self._seconds = seconds
        self._runner = AgentRunner(agent, own)
        self._model = model

    async def play(self, game: EpisodeToPlay, state: TaskState) -> Ending:
        """Run the program in its own folder, and kill its remaining processes at the end."""
        assert game.opened.token is not None
        async with self._access(game) as model:
            mission = Mission(game.opened.mcp_url, game.opened.token, game.text, model)
            ended = await self._run(game, mission)
        transcript().info({"exit_code": ended.code, "output": ended.output}, source="agent")
        state.output = ModelOutput.from_content("agent", ended.output)
        if ended.code is None:
            return Ending(f"the agent was stopped after {self._seconds:g} seconds")
        return Ending(f"the agent exited with {ended.code}", broke=ended.broke)

    @asynccontextmanager
    async def _access(self, game: EpisodeToPlay) -> AsyncGenerator[ModelAccess | None]:
        if self._model is None:
            yield None
            return
        async with model_session(self._model, {"episode": game.opened.episode_id}) as session:
            yield ModelAccess(self._model.url, session.token)

    async def _run(self, game: EpisodeToPlay, mission: Mission) -> Ended:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_keep_alive, game)
            ended = await self._runner.run(mission, self._seconds)
            tasks.cancel_scope.cancel()
            return ended
        raise AssertionError("a task group that is left by a return")


async def _keep_alive(game: EpisodeToPlay) -> None:
    """Keep the episode from expiring while its agent thinks. This does not reopen an ended episode."""
    while True:
        await anyio.sleep(max(0.5, game.idle_seconds / 3))
        try:
            await game.control.keep_alive(game.opened.episode_id)
        except EnvportError:
            return
