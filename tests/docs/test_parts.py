"""`make test` runs all of its parts, whatever becomes of one, and tells of all at the end."""

from __future__ import annotations

from pathlib import Path

import parts
import pytest

PASSES = "def test_of_{}():\n    pass\n"
FAILS = "def test_of_{}():\n    assert False\n"


@pytest.mark.parametrize(("first", "second", "at_once"), [(FAILS, PASSES, "1"), (PASSES, FAILS, "3")])
def test_all_parts_run_and_are_told_of(
    first: str,
    second: str,
    at_once: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    # These tests of nothing need no plugins; loading all of them takes most of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / "test_first.py").write_text(first.format("many"))
    for beside, test in (("waits", second.format("one")), ("counts", PASSES.format("another"))):
        (tmp_path / beside).mkdir()
        (tmp_path / beside / f"test_{beside}.py").write_text(test)
    code = parts.main(["--workers", "0", "--at-once", at_once, "--beside", "waits", "counts"])
    told = capfd.readouterr().out.splitlines()
    told = told[len(told) - told[::-1].index("") :]
    assert code == 1
    for part, text, name in (("the others", first, "test_of_many"), ("waits", second, "test_of_one")):
        line = next(line for line in told if line.startswith(f"{part}: "))
        assert ("FAILED (exit code 1)" in line) == (text == FAILS)
        assert ("0 passed, 0 skipped, 1 failed" if text == FAILS else "1 passed, 0 skipped, 0 failed") in line
        assert any(name in line for line in told) == (text == FAILS)
    assert any(line.startswith("counts: passed") for line in told)
    assert len(told) == 4
