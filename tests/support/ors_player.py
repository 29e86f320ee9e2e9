"""The real client of the Open Reward Standard, in a process of its own, as tests play with it."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from apart import python_of

PROGRAM = Path(__file__).with_name("ors_client.py")
RELEASE = "0.1.167"


class Raised(Exception):
    """What the client raised.

    Attributes:
        kind: Name of the class.
        message: Its message.
        reason: Its `reason`, if it has one.
        status: Its HTTP status, if it has one.
    """

    def __init__(self, told: dict[str, Any]):
        super().__init__(told["message"])
        self.kind: str = told["raised"]
        self.message: str = told["message"]
        self.reason: str | None = told["reason"]
        self.status: int | None = told["status"]


@cache
def shared_player() -> OrsPlayer:
    """A client for all tests of this process: to start one takes a second."""
    player = OrsPlayer()
    atexit.register(player.end)
    return player


class OrsPlayer:
    """The client's process."""

    def __init__(self) -> None:
        fresh = {name: value for name, value in os.environ.items() if not name.startswith("OPENREWARD_")}
        self._process = subprocess.Popen(
            [python_of("openreward", RELEASE), PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=fresh,
        )

    def say(self, do: str, **fields: Any) -> None:
        """Have something done, without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """What came of it."""
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        if "raised" in told:
            raise Raised(told)
        return told["told"]

    def ask(self, do: str, **fields: Any) -> Any:
        self.say(do, **fields)
        return self.hear()

    @contextmanager
    def session(self, url: str, name: str, **chosen: Any) -> Iterator[OrsSeat]:
        """An episode."""
        opened = self.ask("open", url=url, name=name, **chosen)
        try:
            yield OrsSeat(self, opened)
        finally:
            self.ask("close", session=opened["session"])

    def end(self) -> None:
        """End at once, as a client that is killed."""
        self._process.kill()
        self._process.communicate()


class OrsSeat:
    """A player's place at an episode.

    Attributes:
        opened: What the client saw at the beginning: `sid`, `prompt`, `tools`.
    """

    def __init__(self, player: OrsPlayer, opened: dict[str, Any]):
        self._player = player
        self.opened = opened

    @property
    def text(self) -> str:
        """The text of the prompt."""
        return "\n".join(block["text"] for block in self.opened["prompt"] if block["type"] == "text")

    def call(self, name: str, /, **input: Any) -> dict[str, Any]:
        return self._player.ask("call", session=self.opened["session"], tool=name, input=input)

    def stop(self) -> dict[str, Any]:
        return self._player.ask("stop", session=self.opened["session"])

    def messages(self) -> Any:
        return self._player.ask("messages", session=self.opened["session"])
