"""Room for the descriptors that many connections and processes take."""

from __future__ import annotations

import sys

__all__ = ["allow_descriptors"]


def allow_descriptors() -> None:
    """Let this process open as many files as it may; the usual limit of 1,024 is only a default."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
