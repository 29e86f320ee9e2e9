"""Raises the limit on open files, because many connections and processes need many descriptors."""

from __future__ import annotations

import sys

__all__ = ["allow_descriptors"]


def allow_descriptors() -> None:
    """Raise the soft limit on open files to the hard limit; the usual 1,024 is only a default."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
