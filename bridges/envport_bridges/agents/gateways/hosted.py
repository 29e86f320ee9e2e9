"""Gateways that an evaluation or a training starts for itself, each in its own process."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, Any

from envport.errors import ConfigurationError, error_from_code
from envport.secrecy import without_secrets

__all__ = ["Hosted"]

_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Hosted:
    """A gateway that we started, with a control token that only we have.

    Attributes:
        url: Its address.
        name: Name of the environment that it serves.
        token: The token of its control plane.
        process: Its process.
    """

    url: str
    name: str
    token: str
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, reference: str, options: str = "", score: str | None = None) -> Hosted:
        """Serve an environment on a free port of this machine's loopback address.

        Args:
            reference: A reference as for `envport serve`.
            options: Options of the environment as a JSON object, if they are not in the reference.
            score: Function that scores final states, as for `envport serve`.

        Raises:
            ConfigurationError: The environment cannot be served.
        """
        token = secrets.token_urlsafe(32)
        # It finds modules where this process finds them: beside a training script, for example.
        asked = {"reference": reference, "options": options, "score": score, "token": token, "path": sys.path}
        process = subprocess.Popen(
            [sys.executable, "-m", "envport_bridges.agents.gateways.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=without_secrets(os.environ),
            # Keep Ctrl-C away from the gateway: we still have to close our episodes there.
            start_new_session=True,
        )
        _pipe(process.stdin).write(json.dumps(asked) + "\n")
        _pipe(process.stdin).flush()
        answer: dict[str, Any] = json.loads(_pipe(process.stdout).readline() or "{}")
        if "url" not in answer:
            process.wait(_STOP_SECONDS)
            _pipe(process.stdin).close()
            _pipe(process.stdout).close()
            error = answer.get("error", {"code": "configuration", "message": f"the gateway for {reference} broke"})
            raise error_from_code(error["code"], error["message"]) from ConfigurationError(reference)
        hosted = cls(answer["url"], answer["name"], token, process)
        atexit.register(hosted.stop)
        return hosted

    def stop(self) -> None:
        """Stop the gateway. Stopping it again changes nothing."""
        atexit.unregister(self.stop)
        if self.process.poll() is None:
            _pipe(self.process.stdin).close()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        _pipe(self.process.stdin).close()
        _pipe(self.process.stdout).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
