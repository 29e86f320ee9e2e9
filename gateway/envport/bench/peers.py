"""The peers of `envport bench --against`: other frameworks' servers, played by their own clients."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HELD_MOST", "JUDGED_SESSIONS", "OPENED_LEAST", "PEERS", "Peer", "PeerTarget"]

JUDGED_SESSIONS = 64
"""The number of sessions for which the ratios are set."""

OPENED_LEAST = 1.0
"""Sessions of a peer's client opened per second at our gateway, by those at its server: at least this."""

HELD_MOST = 0.5
"""Memory of such a session at our gateway, by that at its server: at most this, at the judged number of sessions."""


@dataclass(frozen=True, slots=True)
class PeerTarget:
    """An environment of a peer that echoes.

    Attributes:
        kind: The argument of the peer's server and client.
        title: The name for people.
        most: The cost of a step of ours, divided by that of its, that is to be kept.
        served_most: The same for the server alone, where its client plays at our gateway.
    """

    kind: str
    title: str
    most: float
    served_most: float


@dataclass(frozen=True, slots=True)
class Peer:
    """A framework.

    Attributes:
        name: The name for `--against`. Its server and client are in the folder of that name.
        requirements: What its virtual environment has.
        served: Where our gateway speaks its protocol, below the path of an environment.
        targets: Its environments.
    """

    name: str
    requirements: tuple[str, ...]
    served: str
    targets: tuple[PeerTarget, ...]


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "openenv",
            # Its requirements have no event loop of uvicorn's faster ones; the gateway's have.
            ("openenv>=0.10,<0.11", "uvloop", "httptools"),
            "openenv",
            (
                PeerTarget("plain", "OpenEnv 0.10, plain environment", 0.5, 0.8),
                PeerTarget("mcp", "OpenEnv 0.10, MCP environment", 0.08, 0.1),
            ),
        ),
    )
}
"""The peers by name."""
