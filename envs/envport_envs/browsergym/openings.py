"""Few browsers are started at the same time: of many at once, each would take longer than it may."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

__all__ = ["make_places", "one_place"]


def make_places(folder: Path) -> None:
    """Make as many places as this machine has cores.

    Args:
        folder: A folder that all processes see.
    """
    for number in range(os.cpu_count() or 1):
        (folder / f"place-{number}").touch()


@contextmanager
def one_place(folder: Path) -> Generator[None]:
    """Hold a place, after waiting for one. A process that is killed leaves its own.

    Args:
        folder: The folder of the places.
    """
    with ExitStack() as closing:
        places = [closing.enter_context(path.open("rb")) for path in folder.glob("place-*")]
        for place in places:
            with suppress(BlockingIOError):
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        else:
            fcntl.flock(places[(os.getpid() + threading.get_ident()) % len(places)], fcntl.LOCK_EX)
        yield
