"""A caller for `envport bench`: plays `echo` as a trainer plays an environment."""

from __future__ import annotations

from envport.errors import GatewayUnreachable
from envport_bridges.rollouts.aio import AsyncRollout, AsyncRollouts

__all__ = ["EchoRollout"]


class EchoRollout:
    """An episode of `echo`.

    Args:
        gateway: Address of the gateway.
    """

    def __init__(self, gateway: str):
        self._target = f"{gateway}/environments/echo"
        self._rollout: AsyncRollout | None = None
        self._calls = 0

    async def begin(self) -> None:
        """Open the episode."""
        rollouts = await AsyncRollouts.connect(self._target)
        self._rollout = await rollouts.open()

    async def call(self) -> None:
        """Call the tool, and check its answer.

        Raises:
            GatewayUnreachable: It said something else.
        """
        if self._rollout is None:
            raise RuntimeError("the episode has not been opened")
        self._calls += 1
        message = f"{id(self)} says {self._calls}"
        reply = await self._rollout.call("echo", {"message": message})
        said = [block.get("text") for block in reply.content]
        if said != [message] or reply.is_error:
            raise GatewayUnreachable(f"echo was told {message!r} and answered {said!r}")

    async def end(self) -> None:
        """Close the episode."""
        if self._rollout is not None:
            await self._rollout.aclose()
