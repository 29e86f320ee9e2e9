"""What a client that `envport client` writes is based on: one episode after the other, a method for each tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from envport.blocks import ContentBlock
from envport.errors import ConfigurationError, EpisodeOver
from envport.types import ChosenTask, Outcome
from envport_bridges.rollouts.backend import RolloutTarget
from envport_bridges.rollouts.sync import Rollout, Rollouts

__all__ = ["NOT_GIVEN", "ClientReply", "EnvironmentClient", "NotGiven"]


class NotGiven:
    """The type of `NOT_GIVEN`."""

    def __repr__(self) -> str:
        return "NOT_GIVEN"


NOT_GIVEN: Final = NotGiven()
"""An argument that is left out. The environment then uses its own default."""


@dataclass(frozen=True)
class ClientReply:
    """What an environment answered.

    Attributes:
        content: MCP content blocks, in order.
        data: The same as data, if the environment returned data.
        reward: Reward of the step; `None` if it had none.
        done: Whether the episode has ended.
        is_error: Whether the environment refused the call; the episode goes on.
    """

    content: Sequence[ContentBlock]
    data: Any = None
    reward: float | None = None
    done: bool = False
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(str(block["text"]) for block in self.content if block.get("type") == "text")


class EnvironmentClient:
    """Plays episodes of one environment, one after the other. Closes the last one as a context manager.

    Args:
        target: URL of the environment on a gateway, a reference for an environment in this process, or either with
            further settings. If not given, what the client was made from.

    Attributes:
        where: What the client was made from.
        fingerprint: Fingerprint of the tools that it was made for.

    Raises:
        ConfigurationError: The environment has other tools by now.
        GatewayUnreachable: There was no usable answer.
    """

    where: ClassVar[str]
    fingerprint: ClassVar[str]

    def __init__(self, target: str | RolloutTarget | None = None):
        self._rollouts = Rollouts(target or self.where)
        self._rollout: Rollout | None = None
        if self._rollouts.environment.fingerprint != self.fingerprint:
            raise ConfigurationError(
                f"{type(self).__name__} was made for other tools than {self._rollouts.environment.name!r} has: make it "
                "anew with envport client"
            )

    def reset(
        self, *, split: str | None = None, task: ChosenTask | None = None, seed: int | None = None
    ) -> ClientReply:
        """Open an episode, and close the one before.

        Args:
            split: The split to take the task from; the first one if not given.
            task: Index of the task, or a task of your own; the seed chooses one if not given.
            seed: The seed; random if not given. The same task and seed give the same episode.

        Raises:
            EnvportError: As `Rollouts.open`.
        """
        self.close()
        self._rollout = self._rollouts.open(split=split, task=task, seed=seed)
        first = self._rollout.observation
        return ClientReply(first.content, first.structured_content)

    @property
    def prompt(self) -> str:
        """What the player is told to do."""
        return self._open().prompt

    @property
    def reward(self) -> float | None:
        """The episode's reward so far; `None` without any, and if it is lost. Complete after `finish`."""
        return self._open().reward

    @property
    def outcome(self) -> Outcome | None:
        """How the episode ended; `None` while it runs."""
        return self._open().outcome

    def finish(self) -> float | None:
        """End the episode, if it has not ended, and wait for its reward; see `Rollout.finish`."""
        return self._open().finish()

    def close(self) -> None:
        """Close the episode, if there is one."""
        if self._rollout is not None:
            self._rollout.close()

    def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ClientReply:
        """Call a tool by its name; see `Rollout.call` for what it raises.

        Args:
            tool: Name of the tool.
            arguments: The arguments. Those that are `NOT_GIVEN` are left out.
        """
        given = {name: value for name, value in arguments.items() if value is not NOT_GIVEN}
        reply = self._open().call(tool, given)
        return ClientReply(reply.content, reply.structured, reply.reward, reply.outcome is not None, reply.is_error)

    def _open(self) -> Rollout:
        if self._rollout is None:
            raise EpisodeOver("No episode is open: call reset first.")
        return self._rollout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
