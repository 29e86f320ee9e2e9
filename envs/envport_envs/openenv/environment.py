"""An environment of an OpenEnv server as an environment of envport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envport import Environment, Step, Task, ToolDefinition, ToolError, UpstreamLost
from envport_envs.openenv.actions import ActionTool
from envport_envs.openenv.observations import StepAnswer, refusal, shown, tool_result
from envport_envs.openenv.session import Session
from envport_envs.openenv.tasks import Specs, Tasks, chosen
from envport_envs.upstream.address import ServerAddress
from envport_envs.upstream.faults import CallRaised, Exceptions, ServerFull

__all__ = ["OpenEnvEnvironment", "listed"]

_SEEDS = 2**31


class OpenEnvEnvironment(Environment):
    """An environment of an OpenEnv server.

    Args:
        server: The server, as it is shown.
        address: How to reach it.
        actions: The tools that are types of action.
        listing: The environment's own MCP tools, as it listed them when it was looked at; `None` if it has none.
        specs: The server's tasks.
        told: What the server says of the environment.
        arguments: Further arguments of the server's `reset`.
        hidden: Names of fields of observations that the player does not see.
        exceptions: What an exception of the environment's `step` is; see `openenv`.
        sessions: How many sessions the server takes; `None` if it is not known.
    """

    call_seconds = 120.0
    reset_seconds = 120.0
    close_seconds = 10.0

    def __init__(
        self,
        server: str,
        address: ServerAddress,
        actions: tuple[ActionTool, ...] = (),
        listing: list[dict[str, Any]] | None = None,
        specs: Specs | None = None,
        told: str = "",
        arguments: dict[str, Any] | None = None,
        hidden: list[str] | None = None,
        exceptions: Exceptions = "fault",
        sessions: int | None = None,
    ):
        self._address = address
        self._actions = {action.name: action for action in actions}
        self._listing = listing
        self._specs = specs or {}
        self._arguments = arguments or {}
        self._hidden = tuple(hidden or ())
        self._exceptions: Exceptions = exceptions
        self._session: Session | None = None
        self._owed: float | None = None
        self.max_episodes = sessions
        self.instructions = told or "Use the tools to do what you are asked."

    def splits(self) -> Mapping[str, Sequence[Task]]:
        """The tasks of the server."""
        return {split: Tasks(split, specs) for split, specs in self._specs.items()}

    def tool_definitions(self) -> list[ToolDefinition]:
        """The types of action, and the environment's own MCP tools."""
        actions = [
            ToolDefinition(action.name, action.schema, "act", action.description) for action in self._actions.values()
        ]
        own = [
            ToolDefinition(tool["name"], tool["input_schema"], "forward", tool.get("description") or "")
            for tool in self._listing or ()
        ]
        return actions + own

    async def reset(self, *, seed: int, task: Task | None) -> Any:
        """Open a session, and reset the environment."""
        arguments = {**self._arguments, "seed": seed % _SEEDS, **chosen(task, self._specs)}
        try:
            self._session = await Session.open(self._address.filled(self.secrets))
        except ServerFull as full:
            raise full.refusal("OpenEnv server") from None
        if self._listing is not None:
            self._require_same(await listed(self._session))
        answer = StepAnswer.of(await self._session.ask("reset", arguments))
        if answer.done:
            raise RuntimeError("the environment says that the episode is done when it has only been reset")
        # An answer to `reset` may have a reward. It is one of the episode, so that it is paid with the first step.
        self._owed = answer.reward or None
        return shown(answer.observation, self._hidden)

    async def act(self, name: str, arguments: Mapping[str, Any]) -> Step:
        """Take an action."""
        answer = await self._step(self._actions[name].action(arguments))
        return self._step_of(answer, shown(answer.observation, self._hidden))

    async def forward(self, name: str, arguments: Mapping[str, Any]) -> Step:
        """Call one of the environment's own MCP tools."""
        answer = await self._step({"type": "call_tool", "tool_name": name, "arguments": dict(arguments)})
        result, is_error = tool_result(name, answer.observation)
        if is_error and answer.reward is None and not answer.done:
            raise refusal(result)
        return self._step_of(answer, result)

    async def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _step(self, action: Mapping[str, Any]) -> StepAnswer:
        if self._session is None:
            raise UpstreamLost("the OpenEnv server's session has ended")
        try:
            return StepAnswer.of(await self._session.ask("step", action))
        except CallRaised as raised:
            if self._exceptions == "refusal":
                raise ToolError(str(raised)) from None
            raise

    def _step_of(self, answer: StepAnswer, observation: Any) -> Step:
        reward, owed = answer.reward, self._owed
        if owed is not None:
            reward, self._owed = owed + (reward or 0.0), None
        return Step(observation, reward=reward, terminated=answer.done, info=answer.metadata)

    def _require_same(self, listing: list[dict[str, Any]]) -> None:
        """Refuse an environment whose tools are not those that were looked at: players are shown those."""
        if listing != self._listing:
            raise UpstreamLost(
                "the OpenEnv server lists other tools than when it was looked at; start the gateway again to serve its "
                "present tools"
            )


async def listed(session: Session) -> list[dict[str, Any]]:
    """The environment's own MCP tools.

    Args:
        session: The session, before its first reset: an environment may count this as a step.

    Raises:
        UpstreamLost: It has failed, or its answer is no listing.
    """
    observation = StepAnswer.of(await session.ask("step", {"type": "list_tools"})).observation
    tools: Any = observation.get("tools")
    if not isinstance(tools, list) or not all(_is_tool(tool) for tool in tools):  # pyright: ignore[reportUnknownVariableType]
        raise UpstreamLost("the OpenEnv server's answer to 'list_tools' lists no tools")
    return tools  # pyright: ignore[reportUnknownVariableType]


def _is_tool(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("name"), str) and isinstance(tool.get("input_schema"), dict)  # pyright: ignore
