"""A chat format whose ids are bytes, so that nothing of transformers is needed, and models that write in it."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scripted_sampler import ScriptedSampler

from envport_bridges.agents.model.sampling import Sampler
from envport_bridges.model_serving.loading import ServedModel
from envport_bridges.model_serving.server import ModelServer, ServingAddress
from envport_bridges.model_serving.settings import ServedModelSettings

POSITIONS = re.compile(r"Ball in column (\d+), paddle in column (\d+)")
TOKEN = "a-control-token-of-the-models"
END = 0


def ids_of(text: str) -> list[int]:
    return [byte + 1 for byte in text.encode()]


def text_of(ids: Sequence[int]) -> str:
    return bytes(id_ - 1 for id_ in ids if id_ != END).decode(errors="replace")


class ByteChat:
    """Messages are JSON, one a line; a turn that is an object with a name calls that tool."""

    end_ids = frozenset({END})

    def __init__(self, most_ids: int = 100_000):
        self.most_ids = most_ids

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        return ids_of("".join(f"{json.dumps(message)}\n" for message in [*tools, *messages]))

    def following(
        self, message: Mapping[str, Any], later: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[int | None, list[int]] | None:
        return END, self.render(later, ())

    def read(self, ids: Sequence[int], prefix: Sequence[int], tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            call = json.loads(text_of(ids))
            function = {"name": call["name"], "arguments": call["arguments"]}
            return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
        return {"role": "assistant", "content": text_of(ids)}

    def text(self, ids: Sequence[int]) -> str:
        return text_of(ids)


def says(text: str) -> Callable[[Sequence[int], int], list[int]]:
    return lambda context, room: [*ids_of(text), END][:room]


def catches(context: Sequence[int], room: int) -> list[int]:
    """Plays catch, and ends when the game does."""
    *_, board = text_of(context).strip().split("\n")
    found = POSITIONS.findall(board)
    if not found or "The game is over" in board:
        return [*ids_of("Done."), END]
    ball, paddle = map(int, found[-1])
    direction = "stay" if ball == paddle else "right" if ball > paddle else "left"
    return [*ids_of(json.dumps({"name": "move", "arguments": {"direction": direction}})), END]


@contextlib.contextmanager
def served(
    sampler: Sampler, *, name: str = "policy", token: str | None = TOKEN, most_ids: int = 100_000, **settings: Any
) -> Iterator[ModelServer]:
    """Serve a model in a thread, as `envport model serve` does in a process."""
    weights = f"weights of {name}"
    model = ServedModel(name, weights, ByteChat(most_ids), sampler, ServedModelSettings(**settings))
    server, ready = ModelServer(model, ServingAddress(token=token)), threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def writing(text: str) -> ScriptedSampler:
    """A model that always writes the same."""
    return ScriptedSampler(says(text))
