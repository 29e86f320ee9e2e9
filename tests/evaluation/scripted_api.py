"""A server that answers as Anthropic's Messages API does, with a model that catches the ball."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent import towards_the_ball

TOOL = "mcp__envport__move"


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(text_of(block.get("text") or block.get("content") or "") for block in content)


def answer(body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The model's content block, and why it stopped."""
    blocks = [block for one in body["messages"] for block in one["content"] if isinstance(block, dict)]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    # Before the first move, the board is wherever the client puts a server's instructions.
    everything = [text_of(body.get("system", "")), *(text_of(one["content"]) for one in body["messages"])]
    said = text_of(results[-1:]) if results else "\n".join(everything)
    offered = any(tool["name"] == TOOL for tool in body.get("tools", []))
    _, found, board = said.rpartition("Ball in column")
    if not offered or not found or "The game is over" in board:
        return {"type": "text", "text": "Done."}, "end_turn"
    arguments = {"direction": towards_the_ball(found + board)}
    return {"type": "tool_use", "id": f"toolu_{secrets.token_hex(8)}", "name": TOOL, "input": arguments}, "tool_use"


def events(body: dict[str, Any]) -> list[dict[str, Any]]:
    block, reason = answer(body)
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    if block["type"] == "text":
        begin, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        begin = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    end = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": begin},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_error(404)

    def do_HEAD(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if not body.get("stream"):
            self.send_error(404)
            return
        written = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(body)).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)


@contextlib.contextmanager
def scripted_api() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
