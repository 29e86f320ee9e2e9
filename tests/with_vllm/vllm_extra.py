"""What these tests need and is not installed; `make test-vllm` installs it."""

from __future__ import annotations

from importlib.util import find_spec

MISSING = [package for package in ("vllm", "trl", "inspect_ai") if find_spec(package) is None]
