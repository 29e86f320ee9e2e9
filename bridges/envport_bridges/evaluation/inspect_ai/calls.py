"""The calls of policies and agents, in Inspect's transcript of the sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from inspect_ai.event import ToolEvent
from inspect_ai.log import transcript
from inspect_ai.tool import ToolCallError
from pydantic_core import to_jsonable_python

from envport.blocks import ContentBlock
from envport.client import AsyncClient
from envport_bridges.agents.programs.seat import Seat, SeatReply
from envport_bridges.evaluation.inspect_ai.exact_tools import tool_content

__all__ = ["ShownSeat", "show_calls"]


class ShownSeat(Seat):
    """A seat whose calls are added to the transcript as they are made, as Inspect shows those of a model."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> SeatReply:
        """Call a tool.

        Raises:
            GatewayUnreachable: There was no answer, or it did not come from a gateway.
        """
        started = datetime.now(UTC)
        reply = await super().call(tool, arguments)
        error = reply.text if reply.is_error else None
        _show(self.calls, tool, arguments, reply.content, error, started, datetime.now(UTC))
        return reply


async def show_calls(control: AsyncClient, episode_id: str) -> None:
    """Add the calls that an episode had to the transcript. Rewards are not among them.

    The gateway does not record calls of tools that the episode does not have.

    Args:
        control: A client of the control plane.
        episode_id: The episode. Its player has stopped.

    Raises:
        EnvportError: The gateway does not give the trajectory.
    """
    trajectory = await control.trajectory(episode_id)
    if trajectory.dropped_steps:
        transcript().info(f"The first {trajectory.dropped_steps} calls are no longer kept.", source="envport")
    for step in trajectory.steps:
        started = datetime.fromtimestamp(step.started_at, UTC)
        error = step.observation.text if step.error is not None else None
        ended = started + timedelta(seconds=step.seconds)
        _show(step.index, step.tool, step.arguments, step.observation.content, error, started, ended)


def _show(
    number: int,
    tool: str,
    arguments: Mapping[str, Any],
    content: Sequence[ContentBlock],
    error: str | None,
    started: datetime,
    ended: datetime,
) -> None:
    event = ToolEvent(
        id=f"call_{number}",
        function=tool,
        # A policy may give tuples and the like, which MCP sends as JSON too.
        arguments=to_jsonable_python(dict(arguments)),
        result=[tool_content(block) for block in content],
        error=ToolCallError("unknown", error) if error is not None else None,
        timestamp=started,
        completed=ended,
    )
    transcript()._event(event)  # pyright: ignore[reportPrivateUsage] - it has no public name
