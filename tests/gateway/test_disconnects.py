"""A client that leaves in the middle of its request is no fault: nothing is logged, and nothing is left."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx2
import pytest
from environments import Tracked
from harness import Raw, RunningGateway, running
from patience import patient

from envport import Client
from envport.registry import EnvironmentDefinition

MODERN = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n"


@pytest.fixture(scope="module")
def served() -> Iterator[RunningGateway]:
    with running(EnvironmentDefinition("tracked", Tracked)) as gateway:
        yield gateway


def half_of_a_request(gateway: RunningGateway, path: str, headers: str, body: str) -> None:
    """Send the begin of a request's body, and wait until the gateway has closed the connection after it was left."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{gateway.port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "Content-Length: 1000",
    ]
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=patient(10)) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n" + headers + "\r\n" + body).encode())
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


@pytest.mark.parametrize("headers", ["", MODERN])
@pytest.mark.parametrize("body", ["", '{"environment": "tra'])
@pytest.mark.parametrize(
    "where",
    [
        "/episodes",
        "/episodes/{handle}/reset",
        "/mcp",
        "/environments/tracked/mcp",
        "/episodes/{handle}/mcp",
        "/episodes/ep_unknown/mcp",
    ],
)
def test_a_client_that_leaves_within_its_body_leaves_no_traceback(
    served: RunningGateway, where: str, body: str, headers: str, caplog: pytest.LogCaptureFixture
):
    with Client(served.url) as control:
        opened = control.open("tracked")
        half_of_a_request(served, where.format(handle=opened.episode_id), headers, body)
        with Raw(opened.mcp_url, "modern") as raw:
            assert raw.post("tools/list").status_code == 200
        assert control.close_episode(opened.episode_id).status == "closed"
        assert httpx2.get(f"{served.url}/readyz").json()["live"] == 0
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
