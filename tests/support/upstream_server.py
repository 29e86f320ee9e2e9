"""An MCP server over standard input and output, of the standard library alone, so that it starts at once.

    python upstream_server.py [--seed N] [--tools NAME,...] [--modern]

It speaks revision 2025-11-25, or with `--modern` 2026-07-28. Its state is the working folder and a counter in memory.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0000003010100"
        "18dd8db00000000049454e44ae426082"
    )
).decode()
HOSTILE = {
    "type": "object",
    "properties": {
        "class": {
            "type": "string",
            "enum": ['"; import os; os._exit(1) #', "é\u2028\n", "yes"],
            "title": "\\N{BULLET}",
        },
        "a b-c": {"anyOf": [{"$ref": "#/$defs/Δ"}, {"type": "null"}], "default": None},
    },
    "required": ["class"],
    "additionalProperties": False,
    "$defs": {"Δ": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
    "x-unknown": {"kept": [1, 2.5, None]},
}


def text(words: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(words)}]}


def schema(**properties: str) -> dict[str, Any]:
    made = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": made, "required": [*made]}


class Server:
    def __init__(self, seed: str, shown: list[str], modern: bool):
        self.seed, self.modern, self.count = seed, modern, 0
        tools: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
            ("write", schema(path="string", text="string"), self.write),
            ("read", schema(path="string"), lambda path: text(Path(path).read_text())),
            ("link", schema(path="string", to="string"), lambda path, to: text(os.symlink(to, path))),
            ("counted", schema(), self.counted),
            ("seeded", schema(), lambda: text(self.seed)),
            ("variables", schema(), lambda: text(json.dumps(dict(os.environ)))),
            ("listed", schema(path="string"), lambda path: text(" ".join(sorted(os.listdir(path))))),
            ("reached", schema(port="integer"), self.reached),
            ("picture", schema(), lambda: {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}),
            ("structured", schema(), lambda: {**text('{"n": 1}'), "structuredContent": {"n": 1}}),
            ("against_its_schema", schema(), lambda: {**text("n"), "structuredContent": {"n": "one"}}),
            ("refused", schema(), lambda: {**text("not like this"), "isError": True}),
            ("hostile", HOSTILE, lambda **arguments: text(json.dumps(arguments))),
            ("progressing", schema(), self.progressing),
            ("flood", schema(megabytes="integer"), lambda megabytes: text("x" * (megabytes * 2**20))),
            ("die", schema(), lambda: os.kill(os.getpid(), signal.SIGKILL)),
            ("die_soon", schema(), self.die_soon),
            ("hang", schema(), lambda: time.sleep(3600)),
            ("garbage", schema(), lambda: print("this is no JSON\n\0\xff", flush=True) or text("after it")),
        ]
        self.tools = {name: (it, call) for name, it, call in tools if not shown or name in shown}

    def write(self, path: str, text: str) -> dict[str, Any]:
        Path(path).write_text(text)
        return {"content": [{"type": "text", "text": f"wrote {path}"}]}

    def counted(self) -> dict[str, Any]:
        self.count += 1
        return text(self.count)

    def reached(self, port: int) -> dict[str, Any]:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError as error:
            return text(error)
        return text("reached")

    def progressing(self) -> dict[str, Any]:
        for step in (1, 2):
            parameters = {"progressToken": self.token, "progress": step, "total": 2, "message": f"step {step}"}
            self.send({"method": "notifications/progress", "params": parameters})
        return text("done")

    def die_soon(self) -> dict[str, Any]:
        # Gone when the next request comes, and only then.
        self.dying = True
        return text("soon")

    def listing(self) -> list[dict[str, Any]]:
        made = [
            {"name": name, "description": f"Calls {name}.", "inputSchema": it} for name, (it, _) in self.tools.items()
        ]
        for tool in made:
            if tool["name"] == "against_its_schema":
                tool["outputSchema"] = {"type": "object", "properties": {"n": {"type": "integer"}}}
            if tool["name"] == "read":
                tool.update(title="Read it", annotations={"readOnlyHint": True, "openWorldHint": False})
        return made

    def send(self, message: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        method, given = message["method"], message.get("params", {})
        kind = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        name = {"serverInfo": {"name": "upstream", "version": "1"}, "capabilities": {"tools": {}}}
        if method == "initialize" and not self.modern:
            told = {"instructions": "Do as the server says."}
            return {"result": {**name, **told, "protocolVersion": "2025-11-25"}}
        if method == "server/discover" and self.modern:
            return {"result": {**name, **kind, "supportedVersions": ["2026-07-28"]}}
        if method == "tools/list":
            # In two pages.
            tools, half = self.listing(), len(self.tools) // 2
            if half == 0 or given.get("cursor"):
                return {"result": {**kind, "tools": tools[half:]}}
            return {"result": {**kind, "tools": tools[:half], "nextCursor": "more"}}
        if method == "tools/call" and given["name"] in self.tools:
            self.token = given.get("_meta", {}).get("progressToken")
            try:
                return {
                    "result": {
                        **(kind and {"resultType": "complete"}),
                        **self.tools[given["name"]][1](**given.get("arguments", {})),
                    }
                }
            except OSError as error:
                return {"error": {"code": -32603, "message": f"it broke: {error.strerror}"}}
        return {"error": {"code": -32601, "message": f"no {method}"}}

    def run(self) -> None:
        self.dying = False
        for line in sys.stdin:
            if self.dying:
                os._exit(3)
            message = json.loads(line)
            if "id" in message:
                self.send({"id": message["id"], **self.answer(message)})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", default="none")
    parser.add_argument("--tools", default="")
    parser.add_argument("--modern", action="store_true")
    parser.add_argument("--words-at-end", default="")
    chosen = parser.parse_args()
    if chosen.words_at_end:
        sys.exit(chosen.words_at_end)
    Server(chosen.seed, [name for name in chosen.tools.split(",") if name], chosen.modern).run()


if __name__ == "__main__":
    main()
