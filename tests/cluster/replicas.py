"""Gateways that are replicas of each other, and a player of theirs."""

from __future__ import annotations

import itertools
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
from command_line import Served
from patience import patient

FILE = Path(__file__).with_name("played_far_away.py")
FAR = f"far={FILE}:FarEnvironment"
FEATURES = f"features={Path(__file__).with_name('features_far_away.py')}:Features"
SCORED = ["--score", f"{FILE}:steps_and_state"]
SECRET = "a-secret-of-the-tests-0123456789"

Pair = tuple[Served, Served]


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
