"""An agent that needs nothing but the standard library, so that it starts at once; plays well or badly, as it is told.

    python small_player.py MODES [FOLDER]

With several modes, the first mission is played in the first mode, and so on: files in the folder count them. With
`--resident` in the end it plays one mission after another.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


class Player:
    """One mission."""

    def __init__(self, mission: dict[str, str]):
        self.mission = mission
        self.tools = [
            {"type": "function", "function": {"name": t["name"], "description": t.get("description"), "parameters": s}}
            for t in self.episode("tools/list", {})["tools"]
            for s in [t["inputSchema"]]
        ]
        self.messages: list[Any] = [{"role": "user", "content": mission["prompt"]}]

    def episode(self, method: str, params: dict[str, Any]) -> Any:
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = post(self.mission["mcp_url"], self.mission["mcp_token"], body, headers)
        return answer["result"]

    def model(self, messages: list[Any], **options: Any) -> Any:
        body = {"model": "policy", "messages": messages, **options}
        return post(f"{self.mission['model_url']}/chat/completions", self.mission["model_token"], body, {})

    def turn(self, **options: Any) -> Any:
        answer = self.model(self.messages, tools=self.tools, **options)
        message = answer["choices"][0]["message"]
        self.messages.append(message)
        return message

    def act(self, message: Any) -> bool:
        for call in message.get("tool_calls") or []:
            arguments = json.loads(call["function"]["arguments"])
            result = self.episode("tools/call", {"name": call["function"]["name"], "arguments": arguments})
            text = "\n".join(block["text"] for block in result["content"])
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        return bool(message.get("tool_calls"))

    def play(self, turns: int = 8) -> None:
        for _ in range(turns):
            if not self.act(self.turn()):
                return


def post(url: str, token: str, body: Any, headers: dict[str, str]) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def plain(player: Player) -> None:
    player.play()


def crash(player: Player) -> None:
    player.act(player.turn())
    print("something is wrong", file=sys.stderr)
    os._exit(3)


def hang(player: Player) -> None:
    player.act(player.turn())
    time.sleep(3600)


def asleep(player: Player) -> None:
    """Asks its model for nothing, and does not end."""
    print("is awaited", flush=True)
    time.sleep(3600)


def silent(player: Player) -> None:
    """Asks its model for nothing."""


def two(player: Player) -> None:
    """Has somebody else sum up between its turns."""
    for turn in range(4):
        player.model([{"role": "user", "content": f"Sum up: turn {turn}."}])
        if not player.act(player.turn()):
            return


def compact(player: Player) -> None:
    """Forgets the middle."""
    start = player.messages[:1]
    for _ in range(2):
        player.act(player.turn())
    player.messages = [*start, {"role": "user", "content": "In short: two guesses were wrong."}]
    player.play()


def retry(player: Player) -> None:
    """Asks everything twice, as after a time-out."""
    for _ in range(4):
        first = player.model(player.messages, tools=player.tools)["choices"][0]["message"]
        if (again := player.turn()) != first:
            sys.exit(f"another answer: {first} and {again}")
        if not player.act(again):
            return


def stop(player: Player) -> None:
    message = player.turn(stop=["<"], max_tokens=5)
    if message.get("tool_calls"):
        sys.exit("a call that was cut off")
    player.messages.append({"role": "user", "content": "Go on."})
    player.play()


def long(player: Player) -> None:
    """Asks until there is no room."""
    player.messages[0]["content"] += " word" * 20_000
    refused(player, 400, "context_length_exceeded")


def flood(player: Player) -> None:
    """Asks more often than it may."""
    for turn in range(100):
        try:
            player.model([{"role": "user", "content": f"{turn}"}])
        except urllib.error.HTTPError as error:
            if json.load(error)["error"]["code"] != "budget_exceeded":
                raise
            return
    sys.exit("never refused")


def refused(player: Player, status: int, code: str) -> None:
    try:
        player.turn()
    except urllib.error.HTTPError as error:
        said = json.load(error)["error"]["code"]
        if (error.code, said) == (status, code):
            return
        sys.exit(f"refused by {error.code} {said}")
    sys.exit("not refused")


def linger(player: Player) -> None:
    """Leaves a process behind that goes on asking."""
    player.play()
    if os.fork() == 0:
        os.setsid()
        while True:
            with contextlib.suppress(OSError, urllib.error.HTTPError):
                player.model([{"role": "user", "content": "still here"}])
            time.sleep(0.05)


def next_mode(modes: list[str], folder: str | None) -> str:
    if folder is None or len(modes) == 1:
        return modes[0]
    for number in range(10_000):
        with contextlib.suppress(FileExistsError):
            os.close(os.open(Path(folder, str(number)), os.O_CREAT | os.O_EXCL))
            return modes[number % len(modes)]
    raise AssertionError


def main() -> None:
    modes, folder = sys.argv[1].split(","), next((word for word in sys.argv[2:] if word[0] != "-"), None)
    if sys.argv[-1] != "--resident":
        mission = {
            "mcp_url": os.environ["ENVPORT_MCP_URL"],
            "mcp_token": os.environ["ENVPORT_TOKEN"],
            "model_url": os.environ["OPENAI_BASE_URL"],
            "model_token": os.environ["OPENAI_API_KEY"],
            "prompt": Path(os.environ["ENVPORT_PROMPT_FILE"]).read_text(),
        }
        globals()[next_mode(modes, folder)](Player(mission))
        return
    for line in sys.stdin:
        mission = json.loads(line)
        globals()[next_mode(modes, folder)](Player(mission))
        print(json.dumps({"done": mission["id"]}), flush=True)


if __name__ == "__main__":
    main()
