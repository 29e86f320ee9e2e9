"""Gateways that an evaluation or a training starts for itself, each in its own process."""

from __future__ import annotations

import secrets
import subprocess
import sys
from dataclasses import dataclass

from envport_bridges.agents.children import ChildServer

__all__ = ["Hosted"]


@dataclass(frozen=True)
class Hosted:
    """A gateway that we started, with a control token that only we have.

    Attributes:
        token: The token of its control plane.
        child: Its process, and what that told.
    """

    token: str
    child: ChildServer

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
        return cls(token, ChildServer("envport_bridges.agents.gateways.child", asked, f"the gateway for {reference}"))

    @property
    def url(self) -> str:
        """Its address."""
        return self.child.url

    @property
    def name(self) -> str:
        """Name of the environment that it serves."""
        return self.child.told["name"]

    @property
    def process(self) -> subprocess.Popen[str]:
        """Its process."""
        return self.child.process

    def stop(self) -> None:
        """Stop the gateway. Stopping it again changes nothing."""
        self.child.stop()
