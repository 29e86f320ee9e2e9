"""The measured targets: an address of a server, and the protocol used there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["TARGETS", "BenchTarget", "Era", "ServerKind"]

ServerKind = Literal["gateway", "minimal", "bare", "websocket"]
"""The gateway serving `echo`; a minimal low-level `mcp` server with the same tool; an ASGI app that echoes JSON; a
server of `websockets` that sends back what it gets."""

Era = Literal["modern", "legacy", "channel"]
"""`modern`: MCP 2026-07-28, without sessions. `legacy`: MCP 2025-11-25, with one session per caller. `channel`: the
messages of the rollout channel, all callers on one WebSocket."""


@dataclass(frozen=True, slots=True)
class BenchTarget:
    """A way to call `echo`.

    Attributes:
        name: The name for `--only`.
        title: The name for people.
        server: The server.
        path: The path of the endpoint; `{episode}` stands for the caller's own episode.
        era: The protocol.
        floor: Name of the target whose cost this one is compared with.
        most: The ratio to the floor that is to be kept; `None` where none was set.
    """

    name: str
    title: str
    server: ServerKind
    path: str
    era: Era = "modern"
    floor: str | None = None
    most: float | None = None

    @property
    def plays(self) -> bool:
        """Whether its calls play an episode."""
        return self.server == "gateway"

    @property
    def passes_episode_id(self) -> bool:
        """Whether each call has an `episode_id` argument."""
        return self.plays and self.era != "channel" and "{episode}" not in self.path


_EPISODE, _SHARED = "/episodes/{episode}/mcp", "/environments/echo/mcp"

TARGETS = {
    target.name: target
    for target in (
        BenchTarget("bare", "floor: bare ASGI", "bare", "/"),
        BenchTarget("minimal-modern", "floor: minimal mcp, modern", "minimal", "/mcp"),
        BenchTarget("episode-modern", "episode URL, modern", "gateway", _EPISODE, "modern", "minimal-modern", 0.6),
        BenchTarget("shared-modern", "shared endpoint, modern", "gateway", _SHARED, "modern", "minimal-modern"),
        BenchTarget("minimal-legacy", "floor: minimal mcp, legacy", "minimal", "/mcp", "legacy"),
        BenchTarget("episode-legacy", "episode URL, legacy", "gateway", _EPISODE, "legacy", "minimal-legacy", 0.6),
        BenchTarget("websocket", "floor: bare websockets", "websocket", "/", "channel"),
        BenchTarget("channel", "rollout channel", "gateway", "/rollouts", "channel", "websocket", 3.0),
    )
}
"""The targets by name, in the order of the report. Each one is near its floor."""
