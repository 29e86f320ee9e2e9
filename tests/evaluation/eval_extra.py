"""What of the extra `eval` is missing here."""

from __future__ import annotations

from importlib.util import find_spec

MISSING = [package for package in ("inspect_ai", "matplotlib") if find_spec(package) is None]
