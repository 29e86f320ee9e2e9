"""Where the clients of other languages are, and why a test that needs one skips."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("ENVPORT_NODE", Path(__file__).parents[2] / ".venv" / "node"))


def package(name: str) -> Path:
    """The folder of an npm package, or a skip that says what is missing."""
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    path = ROOT / "node_modules" / name
    if not path.is_dir():
        pytest.skip(f"the npm package {name} is not installed in {ROOT} (make test installs it where npm is there)")
    return path


def executable(package_name: str, name: str) -> Path:
    """A command that an npm package brings."""
    package(package_name)
    return ROOT / "node_modules" / ".bin" / name
