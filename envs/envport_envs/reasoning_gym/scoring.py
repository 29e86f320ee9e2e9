"""Having answers scored in another process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from envport_envs.reasoning_gym.library import Questions
from envport_envs.reasoning_gym.scorer import READY

__all__ = ["score", "scoring"]

_SECONDS = 10
# Only a machine that is stuck takes so long: children have limits of their own.
_STUCK_SECONDS = 300.0


@contextmanager
def scoring(questions: Questions, seconds: int = _SECONDS) -> Generator[str]:
    """Run the process that scores answers, until the end.

    Args:
        questions: What it is to score.
        seconds: CPU time that it may take for one answer.

    Yields:
        Its address, for `score`.

    Raises:
        RuntimeError: The process ended at once.
    """
    with tempfile.TemporaryDirectory(prefix="envport-") as folder:
        address = str(Path(folder) / "scorer")
        given = {"address": address, "seconds": seconds, "questions": asdict(questions)}
        command = [sys.executable, "-m", "envport_envs.reasoning_gym.scorer"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                if _first_line(process, json.dumps(given)) != READY:
                    raise RuntimeError("the process that scores answers of reasoning-gym did not start")
                yield address
            finally:
                process.terminate()


def _first_line(process: subprocess.Popen[str], given: str) -> str:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process that scores answers has no pipes")
    process.stdin.write(f"{given}\n")
    process.stdin.flush()
    return process.stdout.readline()


def score(address: str, number: int, answer: str) -> float:
    """Score an answer.

    Args:
        address: Where the process listens.
        number: The question.
        answer: The answer. One that the scorer cannot read, or for which it needs more CPU time or memory than there
            is, gets 0.

    Returns:
        Reasoning-gym's score, from 0 to 1.

    Raises:
        RuntimeError: The scorer is broken, so that nothing is known of the answer.
        OSError: The process cannot be reached.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_STUCK_SECONDS)
        connection.connect(address)
        connection.sendall(json.dumps({"number": number, "answer": answer}).encode())
        connection.shutdown(socket.SHUT_WR)
        said = b"".join(iter(lambda: connection.recv(4096), b""))
    reply = json.loads(said or '{"fault": "the process that scores answers has ended"}')
    if "fault" in reply:
        raise RuntimeError(f"the answer to question {number} could not be scored: {reply['fault']}")
    return float(reply["score"])
