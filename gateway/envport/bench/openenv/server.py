"""OpenEnv's server with an environment that echoes. Run as a file, in a virtual environment that has OpenEnv.

Like the bench's other servers, it serves on a free port of the loopback address, prints the address, and stops when
standard input ends.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

# The default is one session. This is more than the bench opens.
_MAX_SESSIONS = 4_096


class EchoAction(Action):
    """What to say back."""

    message: str


class EchoObservation(Observation):
    """What was said back."""

    message: str


class PlainEcho(Environment):
    """Says back what it is told, as an environment with a `step` of its own."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> EchoObservation:
        """Start an episode."""
        return EchoObservation(message="")

    def step(self, action: EchoAction, timeout_s: float | None = None, **_: Any) -> EchoObservation:
        """Say the message back."""
        return EchoObservation(message=action.message)

    @property
    def state(self) -> State:
        """Nothing."""
        return State()


class McpEcho(MCPEnvironment):
    """The same as a tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        tools = FastMCP("echo")

        @tools.tool
        def echo(message: str) -> str:
            """Say the message back."""
            return message

        super().__init__(tools)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:
        """Start an episode."""
        return Observation()

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> State:
        """Nothing."""
        return State()


_KINDS = {
    "plain": (PlainEcho, EchoAction, EchoObservation),
    "mcp": (McpEcho, CallToolAction, CallToolObservation),
}


def _stop_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)


def main(kind: str) -> None:
    """Serve an environment: `plain` or `mcp`."""
    app = create_app(*_KINDS[kind], env_name="echo", max_concurrent_envs=_MAX_SESSIONS)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
