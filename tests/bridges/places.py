"""Where the bridge's episodes run in the tests: in this process, or behind a gateway on a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness import RunningGateway
from mcp import Client
from patience import patient

from envport.app import Gateway
from envport.errors import EnvportError
from envport.registry import load
from envport_bridges.rollouts.connection import _connections, connect
from envport_bridges.trl import EnvironmentSpec

REFERENCES = {
    "guess": "mirror:Guess",
    "mirror": "mirror:Mirror",
    "last": "mirror:LastCounts",
    "slow": "mirror:Slow",
    "together": "mirror:Together",
    "reader": "mirror:Reader",
    "adapter": "mirror:Adapter",
    "judged": "scored_environments:Judged",
    "judged-badly": "scored_environments:Judged?score=error",
    "toolbox": "task_tools:Toolbox",
    "pictures": "mirror:Pictures",
}


@dataclass
class Place:
    """Makes specs of the tests' environments."""

    url: str | None = None
    many: int = 100
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def spec(self, name: str, **options: Any) -> EnvironmentSpec:
        where = REFERENCES[name] if self.url is None else f"{self.url}/environments/{name}"
        return EnvironmentSpec(where, **self.options | options)

    def disconnect(self, spec: EnvironmentSpec) -> None:
        """What happens when the process ends."""
        connect(spec.target)
        _connections.pop(spec.target).stop()

    def settle(self, condition: Callable[[], bool]) -> None:
        """Wait until something that runs beside the test has happened."""
        deadline = time.monotonic() + patient(60)
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            threading.Event().wait(0.005)

    def mcp_text(self, environment: Any, tool: str, arguments: dict[str, Any]) -> str:
        """The text that an MCP client gets for the same call."""
        episode = environment._player.record.episode
        if self.url is None:
            connection = environment._player.connection
            with pytest.raises(EnvportError) as raised:
                connection.loop.run(connection.source.call(episode, tool, arguments))
            return str(raised.value)

        async def call() -> str:
            async with Client(episode.address) as client:
                return (await client.call_tool(tool, arguments)).content[0].text

        return asyncio.run(call())


@contextmanager
def gateway(port: int = 0, guess: str = REFERENCES["guess"], **settings: Any) -> Iterator[RunningGateway]:
    """A gateway that serves the tests' environments, on a port of its own or on that of one that has stopped."""
    references = REFERENCES | {"guess": guess}
    made = Gateway([load(reference, name) for name, reference in references.items()], **settings)
    serving = RunningGateway(made)
    if port:
        serving._socket.close()
        serving._socket = socket.create_server(("127.0.0.1", port))
        serving.port, serving.url = port, f"http://127.0.0.1:{port}"
    with serving:
        yield serving
