"""A mark for tests that need a sandbox of bubblewrap: without it they skip, and say so."""

from __future__ import annotations

import shutil

import pytest

__all__ = ["needs_bubblewrap"]

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed (apt-get install bubblewrap)"
)
