"""Packages that cannot be installed beside ours: each release has a virtual environment of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("ENVPORT_APART", Path(__file__).parents[2] / ".venv"))


def python_of(package: str, release: str, *, target: str = "test") -> Path:
    """The Python that has a release installed; skips if there is none.

    Args:
        package: What is imported.
        release: Its release.
        target: What `make` is told to install it.
    """
    home = ROOT / package / release
    if not any(home.glob(f"lib/python3*/site-packages/{package}")):
        pytest.skip(f"{package} {release} is not installed in {home} (make {target} installs it)")
    return home / "bin" / "python"
