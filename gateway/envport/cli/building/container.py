"""The Dockerfile of an environment; that of `envport init` and that of `envport build` are written here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SANDBOX_PACKAGES", "Container"]

SANDBOX_PACKAGES = ("bubblewrap",)
"""The Debian packages that the sandbox of players and programs needs."""


@dataclass(frozen=True)
class Container:
    """An image that serves one environment, as an ordinary user.

    Attributes:
        port: The port that it serves at.
        install: The instructions that copy and install what is served.
        start: The instructions that start it.
        packages: Debian packages that it needs.
    """

    port: int
    install: Sequence[str]
    start: Sequence[str]
    packages: Sequence[str] = ()

    def dockerfile(self) -> str:
        """The text of the Dockerfile."""
        lines = [f"FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim"]
        if self.packages:
            names = " ".join(self.packages)
            lines += [
                "RUN apt-get update && \\",
                f"  apt-get install --yes --no-install-recommends {names} && rm -rf /var/lib/apt/lists/*",
            ]
        asked = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{self.port}/healthz', timeout=4)"
        return "\n".join(
            [
                *lines,
                # Spaces of Hugging Face run as the user 1000.
                "RUN useradd --create-home --uid 1000 user",
                "WORKDIR /app",
                *self.install,
                "USER user",
                f"EXPOSE {self.port}",
                "HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \\",
                f'  CMD ["python", "-c", "{asked}"]',
                "# Without a token (ENVPORT_TOKEN), this refuses to start.",
                *self.start,
                "",
            ]
        )
