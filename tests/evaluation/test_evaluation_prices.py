"""Costs in dollars, of models that Inspect does not know, and limits on them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from command_line import envport_here

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


class Mover(BaseHTTPRequestHandler):
    """A model that always stays, behind the API of OpenAI."""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        call = {"id": "call_1", "type": "function", "function": {"name": "move", "arguments": '{"direction": "stay"}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        answer = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "mover",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
            "usage": USAGE,
        }
        written = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mover)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def words(served: str, server: str) -> list[str]:
    return ["eval", f"{served}/catch", "--model", "openai-api/mine/mover", "--model-base-url", server]


def test_a_price_gives_costs_and_limits_in_dollars(served: str, server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINE_API_KEY", "none")
    asked = [*words(served, server), "--num-tasks", "2", "--price", "2,10"]
    done = envport_here(*asked, "--cost-limit", "0.01", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)
    # An answer costs 0.002 for its input and 0.001 for its output, so that the fourth exceeds the limit.
    assert result["tokens"] == 4 * 1100
    assert result["steps"] == 3
    assert result["cost"] == pytest.approx(2 * 4 * 0.003)
    assert result["settings"]["cost_limit"] == 0.01
    shown = envport_here("results", "logs").stdout.splitlines()
    assert shown[0].endswith(" cost  stopped by a limit  lost to faults")
    assert shown[1].split()[-3:] == ["$0.0120", "2", "0"]
    assert shown[-2:] == [
        "  All episodes together cost $0.0240.",
        "  2 of 2 episodes were stopped by a limit: its cost limit was exceeded (2)",
    ]


@pytest.mark.parametrize("price", ["cheap", "1", "1,-1", "nan,1", "1,inf"])
def test_a_price_that_is_none_is_refused(served: str, server: str, price: str):
    done = envport_here(*words(served, server), "--price", price)
    assert done.returncode == 2
    assert f"--price is '{price}'; it has to be INPUT,OUTPUT" in done.stderr
