"""The process that scores answers: `python -m envport_envs.reasoning_gym.scorer`.

It reads from its standard input what it is to score, as one line of JSON, and writes a line when it is ready. Each
answer is scored in a child of its own, whose CPU time and memory are limited. It ends when its parent does.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socketserver
import sys
from typing import Any

from envport_envs.reasoning_gym.library import Questions

__all__ = ["READY"]

READY = "ready\n"

_MEMORY = 4 * 2**30
# How much CPU time there is between the signal that ends the child and the one that it cannot catch.
_GRACE = 2


class _Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """Answers each connection in a child, so that one that takes long keeps no other waiting."""

    def __init__(self, address: str, questions: Questions, seconds: int):
        super().__init__(address, _Handler)
        self.questions = questions
        self.seconds = seconds
        self._parent = os.getppid()

    def service_actions(self) -> None:
        """Reap children, and end with the gateway."""
        super().service_actions()
        if os.getppid() != self._parent:
            raise SystemExit


class _Handler(socketserver.StreamRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        asked = json.loads(self.rfile.read())
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _reply(writing, self.server, asked)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        self.wfile.write(said if said else json.dumps(_ended(status)).encode())


def _ended(status: int) -> dict[str, Any]:
    """The reply for a child that has said nothing."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        # The kernel's, for want of memory on this machine: nothing is known of the answer.
        return {"fault": "the process that scored the answer was killed"}
    return {"score": 0.0}


def _reply(writing: int, server: _Server, asked: dict[str, Any]) -> None:
    try:
        said = {"score": _score(server, asked["number"], asked["answer"])}
    except Exception as error:
        said = {"fault": f"{type(error).__name__}: {error}"}
    os.write(writing, json.dumps(said).encode())
    os._exit(0)


def _score(server: _Server, number: int, answer: str) -> float:
    made = server.questions.dataset(server.questions.name(number))
    entry = made[number]
    _limit(server.seconds)
    try:
        score = float(made.score_answer(answer=answer, entry=entry))
    except Exception:
        # Some scorers raise for answers that they cannot read. A scorer that accepts the right answer is not broken.
        if made.score_answer(answer=entry["answer"], entry=made[number]) == 1:
            return 0.0
        raise
    # The scorer of spell_backward adds shares up, and gives a wrong answer 1.0000000000000002.
    return score if 0 <= score <= 1 else 0.0


def _limit(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + _GRACE))


def _main() -> None:
    given = json.loads(sys.stdin.readline())
    questions = Questions(**given["questions"])
    for name in questions.names:
        # Children find them made.
        questions.dataset(name)
    with _Server(given["address"], questions, given["seconds"]) as server:
        os.write(sys.stdout.fileno(), READY.encode())
        # What scorers print is for nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        server.serve_forever()


if __name__ == "__main__":
    _main()
