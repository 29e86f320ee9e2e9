"""Keeps the gateway's secrets from the processes of environments and agents: in their variables, and in our memory."""

from __future__ import annotations

import ctypes
import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from envport.errors import ConfigurationError

__all__ = ["hide_memory", "kept_secret", "without_secrets"]

_PR_SET_DUMPABLE = 4
_SECRET = "episode-tokens.secret"
_PREFIX = "ENVPORT_"
_NAMES = frozenset(
    {
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
        "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
    }
)
"""Variables that may contain the keys of trace and log collectors."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, without those of envport, which hold its tokens, and without collectors' keys."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIX) and name not in _NAMES}


def kept_secret(folder: Path) -> str:
    """The secret that is kept in a folder, in a file that only its owner can read. Made if it is not there.

    Raises:
        ConfigurationError: The file cannot be used, or others can read it.
    """
    path = folder / _SECRET
    try:
        made = folder / f"{_SECRET}.{os.getpid()}"
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        # Another gateway may make it at the same time. A link is made whole, and never in place of another file.
        with suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"others can read {path}, which signs the tokens of episodes: chmod 600 {path}")
        return path.read_text("ascii")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"the secret of the gateway cannot be kept in {path}: {why}") from None


def hide_memory() -> None:
    """On Linux, hide this process's memory and environment variables from other processes of the same user."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
