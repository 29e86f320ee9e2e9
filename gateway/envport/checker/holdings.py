"""What this process holds: threads, child processes, descriptors and temporary files."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio

__all__ = ["Holdings", "temporary_folder"]

_SELF = Path("/proc/self")
_LOOKS, _LOOK_SECONDS = 10, 0.1
_MOST_NAMED = 3


@dataclass(frozen=True)
class Holdings:
    """What this process holds.

    Attributes:
        kinds: For each kind, the things that are held: names for people, by a key that identifies each. A kind that
            this system cannot count is left out.
    """

    kinds: Mapping[str, Mapping[str, str]]

    @classmethod
    def now(cls, temporary: Path) -> Holdings:
        """What is held now. Call `gc.collect()` before, so that garbage does not count.

        Args:
            temporary: The folder of temporary files.
        """
        kinds = {
            "threads": {str(thread.ident): thread.name for thread in threading.enumerate()},
            "temporary files": {path.name: path.name for path in temporary.iterdir()},
        }
        if _SELF.is_dir():
            kinds |= {"child processes": _children(), "open descriptors": _descriptors()}
        return cls(kinds)

    async def left(self, temporary: Path, episodes: int) -> list[str]:
        """What is new since then and still held, in words for each kind. Only kinds with one thing per episode or more.

        Waits a moment for what is about to end.
        """
        gc.collect()
        for _ in range(_LOOKS):
            if not self._new(temporary, episodes):
                return []
            await anyio.sleep(_LOOK_SECONDS)
        return self._new(temporary, episodes)

    def _new(self, temporary: Path, episodes: int) -> list[str]:
        now = Holdings.now(temporary).kinds
        found: list[str] = []
        for kind, before in self.kinds.items():
            # The system reuses numbers. So compare the names too, to tell whether it is the same thing.
            new = [name for key, name in now[kind].items() if before.get(key) != name]
            if len(new) >= episodes and len(now[kind]) - len(before) >= episodes:
                more = f", and {len(new) - _MOST_NAMED} more" if len(new) > _MOST_NAMED else ""
                found.append(f"{len(new)} {kind} ({', '.join(new[:_MOST_NAMED])}{more})")
        return found


def _children() -> dict[str, str]:
    """The children of this process that run. One that has ended and was not waited for holds nothing."""
    found: dict[str, str] = {}
    for file in _SELF.glob("task/*/children"):
        with contextlib.suppress(OSError):
            for pid in file.read_text().split():
                name, _, state = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
                if state.split()[0] != "Z":
                    found[pid] = name
    return found


def _descriptors() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in (_SELF / "fd").iterdir():
        # The one that reads the folder is gone by then.
        with contextlib.suppress(OSError):
            found[path.name] = os.readlink(path)
    return found


@contextlib.contextmanager
def temporary_folder() -> Generator[Path]:
    """An empty folder that temporary files go to, of this process and of those that it starts."""
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="envport-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before
            if variable is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = variable
