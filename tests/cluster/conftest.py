"""A Ray cluster of two nodes on this machine, and gateways that are replicas of each other."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_line import Served
from patience import patient

ray = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")

FAR = f"far={Path(__file__).with_name('played_far_away.py')}:FarEnvironment"
SECRET = "a-secret-of-the-tests-0123456789"
# As the docs recommend, and a little faster still.
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}


# Not for the session: its processes would be there when other tests count theirs.
@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    nodes = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": HEALTH},
    )
    nodes.add_node(num_cpus=1)
    yield nodes
    nodes.shutdown()


class Replicas:
    """Gateways in one namespace of a cluster."""

    def __init__(self, address: str, namespace: str, stack: ExitStack):
        self.address = address
        self.namespace = namespace
        self._stack = stack

    @property
    def words(self) -> list[str]:
        return ["--runtime", "ray", "--ray-address", self.address, "--ray-namespace", self.namespace]

    def start(self, *words: str, environments: tuple[str, ...] = (FAR,), **variables: str) -> Served:
        served = self._stack.enter_context(Served(*environments, *self.words, *words, fresh=True, **variables))
        # Where a test fails, pytest shows it.
        self._stack.callback(lambda: print(served.log))
        return served


_numbers = itertools.count()


@pytest.fixture
def replicas(two_nodes: Any) -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(two_nodes.address, f"test-{os.getpid()}-{next(_numbers)}", stack)


class Player:
    """Plays one episode by plain requests of the sessionless era, at whichever replica answers."""

    def __init__(self, urls: list[str], handle: str):
        self.urls = urls
        self.handle = handle
        self.retries = 0
        self._numbers = itertools.count()
        self._http = httpx2.Client(timeout=patient(30))

    def close(self) -> None:
        self._http.close()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool under a name of its own: where nobody answers, the same call goes to the next replica."""
        call_id = f"{self.handle}-{next(self._numbers)}"
        for attempt in range(40):
            try:
                return self.post(self.urls[attempt % len(self.urls)], tool, arguments, call_id)
            except httpx2.TransportError:
                self.retries += 1
        raise AssertionError("no replica answers")

    def post(self, url: str, tool: str, arguments: dict[str, Any], call_id: str) -> dict[str, Any]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "player", "version": "1"},
            "envport/call_id": call_id,
        }
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = self._http.post(f"{url}/episodes/{self.handle}/mcp", json=body, headers=headers)
        said = answer.json()
        assert "result" in said, said
        return said["result"]

    def text(self, tool: str, **arguments: Any) -> str:
        return self.call(tool, **arguments)["content"][0]["text"]

    def where(self) -> dict[str, int]:
        return json.loads(self.text("where"))
