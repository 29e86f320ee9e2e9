"""The way to the first process of a sandbox: starts it, sends it requests, and waits for what it answers."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any, cast

from envport.errors import ConfigurationError
from envport.player_code.bubblewrap import PlayerLimits, SandboxView, start
from envport.player_code.warden import length_of
from envport.sandboxing import ADVICE

__all__ = ["START_SECONDS", "exchange", "started"]


START_SECONDS = 30.0
"""Seconds that a sandbox may take to start."""


def started(limits: PlayerLimits, view: SandboxView) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a sandbox, and wait until it takes requests.

    Raises:
        ConfigurationError: This system cannot run it; the message says what to install or allow.
    """
    sock, process = start(limits, view)
    assert process.stderr is not None
    with process.stderr as stderr:
        try:
            exchange(sock, b"", START_SECONDS)
        except (OSError, ValueError):
            sock.close()
            process.kill()
            process.wait()
            why = stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise ConfigurationError(
                f"bubblewrap cannot make a sandbox for code of the player here: {why or 'it ended'}. {ADVICE}"
            ) from None
    return sock, process


def exchange(sock: socket.socket, sent: bytes, seconds: float) -> Mapping[str, Any]:
    """Send a packed message, if there is one, and wait for a message.

    Raises:
        OSError: There is none in time.
        ValueError: It is no message.
    """
    deadline = time.monotonic() + seconds
    sock.settimeout(seconds)
    sock.sendall(sent)
    answer = json.loads(_received(sock, length_of(_received(sock, 4, deadline)), deadline))
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object")
    return cast("dict[str, Any]", answer)


def _received(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        part = sock.recv(min(size - len(data), 2**20))
        if not part:
            raise ConnectionResetError
        data += part
    return bytes(data)
