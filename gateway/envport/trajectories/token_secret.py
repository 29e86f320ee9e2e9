"""The secret that signs the tokens of single episodes, kept with the episodes, so that both outlive the gateway."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from envport.errors import ConfigurationError

__all__ = ["kept_secret"]

_SECRET = "episode-tokens.secret"


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
