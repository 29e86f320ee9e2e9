"""Which packages of the extra `trl` are not installed."""

from __future__ import annotations

from importlib.util import find_spec

MISSING = [package for package in ("trl", "torch", "transformers", "datasets") if find_spec(package) is None]
