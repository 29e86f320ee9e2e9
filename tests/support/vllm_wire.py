"""A server that answers completions by token ids in the shape of vLLM's; what it samples is scripted."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "org/policy"
MOST_IDS = 512

Script = Callable[[dict[str, Any]], list[int] | dict[str, Any] | tuple[int, str]]
"""What is answered to the body of a request: token ids, a whole choice, or the status and text of an error."""


class VllmWire(ThreadingHTTPServer):
    """Keeps the bodies and headers of all requests for completions."""

    daemon_threads = True

    def __init__(self, script: Script):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: VllmWire

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self._send(404, {"error": {"message": "Not Found"}})
            return
        self._send(200, {"object": "list", "data": [{"id": MODEL, "max_model_len": MOST_IDS}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        self.server.keys.append(self.headers.get("authorization"))
        sampled = self.server.script(body)
        if isinstance(sampled, tuple):
            status, text = sampled
            self._send(status, {"error": {"message": text}})
            return
        choice = sampled if isinstance(sampled, dict) else _choice(sampled, body)
        self._send(200, {"object": "text_completion", "model": MODEL, "choices": [choice]})

    def _send(self, status: int, document: dict[str, Any]) -> None:
        written = json.dumps(document).encode()
        with contextlib.suppress(OSError):  # A client may have left.
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)


def _choice(sampled: list[int], body: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": 0,
        "text": "",
        "token_ids": sampled,
        "prompt_token_ids": body["prompt"],
        "logprobs": {"tokens": [], "token_logprobs": [-id_ / 8 for id_ in sampled], "top_logprobs": []},
        "finish_reason": "stop",
    }


@contextlib.contextmanager
def vllm_wire(script: Script) -> Iterator[VllmWire]:
    """Run the server on a free port."""
    server = VllmWire(script)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
