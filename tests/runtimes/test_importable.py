"""What a sandboxed program can import: modules and packages, and nothing that lies beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from envport.sandboxing import importable


def test_data_and_keys_beside_modules_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shown, hidden = ("module.py", "package", "Thing-1.0.dist-info"), ("keys", "notes.txt", "no-package", ".ssh")
    for name in ("package", "Thing-1.0.dist-info", "keys", "no-package", ".ssh"):
        (tmp_path / name).mkdir()
    for name in ("module.py", "notes.txt", "package/__init__.py", "no-package/__init__.py", "keys/private.pem"):
        (tmp_path / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert sorted(importable()) == sorted(str(tmp_path / name) for name in shown)
    assert {path.name for path in tmp_path.iterdir()} == {*shown, *hidden}
