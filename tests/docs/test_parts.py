"""`make test` runs all of its parts, whatever becomes of one, and tells of all at the end."""

from __future__ import annotations

from pathlib import Path

import parts
import pytest

PASSES = "def test_of_{}():\n    pass\n"
FAILS = "def test_of_{}():\n    assert False\n"


@pytest.mark.parametrize(("first", "second"), [(FAILS, PASSES), (PASSES, FAILS)])
def test_all_parts_run_and_are_told_of(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
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
    code = parts.main(["--workers", "0", "--beside", "waits", "counts"])
    told = capfd.readouterr().out.splitlines()
    of_first = next(number for number, line in enumerate(told) if line.startswith("side by side: "))
    of_second = next(number for number, line in enumerate(told) if line.startswith("waits beside them: "))
    assert code == 1
    for line, text, name in ((of_first, first, "test_of_many"), (of_second, second, "test_of_one")):
        assert ("FAILED (exit code 1)" in told[line]) == (text == FAILS)
        assert ("0 passed, 0 skipped, 1 failed" if text == FAILS else "1 passed, 0 skipped, 0 failed") in told[line]
        assert any(name in after for after in told[of_first:]) == (text == FAILS)
    assert any(line.startswith("counts beside them: passed") for line in told)
    assert len(told) - of_first == 4
