"""The virtual environment of a peer: made at the first use, and kept in the user's cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from envport.errors import ConfigurationError

__all__ = ["peer_python"]


def peer_python(name: str, requirements: Sequence[str], say: Callable[[str], None]) -> Path:
    """The Python of a virtual environment that has a peer's packages.

    It is made once for each list of packages and version of Python, below `$XDG_CACHE_HOME` or `~/.cache`.

    Args:
        name: The peer.
        requirements: What is installed, as pip takes it.
        say: Receives progress messages.

    Raises:
        ConfigurationError: It could not be made, mostly because no package registry was reached.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256("\n".join((version, *requirements)).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "envport" / "bench" / f"{name}-{digest}"
    python, made = folder / "bin" / "python", folder / "made"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            # Two benchmarks may want it at the same time.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                say(f"making a virtual environment for {name} in {folder}")
                _run([sys.executable, "-m", "venv", str(folder)], name)
                _run([str(python), "-m", "pip", "install", "--quiet", "--retries", "2", *requirements], name)
                made.touch()
    except OSError as error:
        raise ConfigurationError(
            f"there is no place for the virtual environment of {name}: {error}. Set XDG_CACHE_HOME to a folder that "
            "can be written to"
        ) from None
    return python


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise ConfigurationError(
            f"{name} could not be installed; that takes a package registry, once. {command[2]} said: "
            f"{' '.join(errors) or f'exit code {done.returncode}'}"
        )
