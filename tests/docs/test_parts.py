"""`make test` runs all of its parts, whatever becomes of one, tells of all at the end, and runs few failures again."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import parts
import pytest

PASSES = "def test_of_{}():\n    pass\n"
FAILS = "def test_of_{}():\n    assert False\n"
# Each run leaves a line behind.
FAILS_ONCE = """
from pathlib import Path

def test_of_{}():
    runs = Path(__file__).with_suffix(".runs")
    with runs.open("a") as file:
        file.write("run\\n")
    assert runs.read_text() != "run\\n"
"""
# How nice it is, compared with who runs the parts.
YIELDS = "import os\n\ndef test_of_{{}}():\n    assert os.nice(0) == {}\n"
BROKEN = "import a_module_that_there_is_not\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # These tests of nothing need no plugins; loading all of them takes most of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    return tmp_path


@pytest.mark.parametrize(
    ("first", "second", "at_once", "code", "alone"),
    [
        (FAILS, PASSES, "1", 1, ["FAILED alone: test_first.py::test_of_many"]),
        (PASSES, FAILS_ONCE, "3", 0, ["passed alone: waits/test_waits.py::test_of_one"]),
    ],
)
def test_all_parts_run_and_are_told_of(
    first: str, second: str, at_once: str, code: int, alone: list[str], folder: Path, capfd: pytest.CaptureFixture[str]
):
    (folder / "test_first.py").write_text(first.format("many"))
    yields = YIELDS.format(os.nice(0) + 3)
    for beside, test in (("waits", second.format("one")), ("counts", yields.format("another"))):
        (folder / beside).mkdir()
        (folder / beside / f"test_{beside}.py").write_text(test)
    assert parts.main(["--at-once", at_once, "--beside", "waits", "counts"]) == code
    told = last_lines(capfd)
    for part, text, name in (("the others", first, "test_of_many"), ("waits", second, "test_of_one")):
        line = next(line for line in told if line.startswith(f"{part}: "))
        assert ("FAILED (exit code 1)" in line) == (text != PASSES)
        assert ("1 passed, 0 skipped, 0 failed" if text == PASSES else "0 passed, 0 skipped, 1 failed") in line
        assert any(name in line for line in told) == (text != PASSES)
    assert any(line.startswith("counts: passed") for line in told)
    assert told[4:] == [f"failed beside the others, {line}" for line in alone]


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        # Each of the four would pass the second time.
        ([FAILS_ONCE] * 4, ["4 tests failed, and no more than 3 are run once more"]),
        ([FAILS_ONCE, BROKEN], []),
    ],
)
def test_nothing_is_run_again_where_more_than_the_machine_is_wrong(
    tests: list[str], said: list[str], folder: Path, capfd: pytest.CaptureFixture[str]
):
    for number, test in enumerate(tests):
        (folder / f"test_{number}.py").write_text(test.format(number))
    assert parts.main([]) == 1
    told = last_lines(capfd)
    assert [line for line in told if "once more" in line or "alone" in line] == said
    assert {file.read_text() for file in folder.glob("*.runs")} <= {"run\n"}


def test_slow_tests_are_run_by_themselves(folder: Path, capfd: pytest.CaptureFixture[str]):
    (folder / "waits").mkdir()
    for path in ("test_first.py", "waits/test_waits.py"):
        (folder / path).write_text(f"import pytest\n{FAILS.format('speed')}\n@pytest.mark.slow\n{PASSES.format('all')}")
    assert parts.main(["--slow", "60", "--beside", "waits"]) == 0
    assert [line.rpartition("; ")[2] for line in last_lines(capfd) if line] == ["1 passed, 0 skipped, 0 failed"] * 2
    assert parts.main(["--beside", "waits"]) == 1


def test_a_part_without_slow_tests_does_not_fail_and_one_without_any_test_does(
    folder: Path, capfd: pytest.CaptureFixture[str]
):
    (folder / "quick").mkdir()
    (folder / "test_first.py").write_text(f"import pytest\n@pytest.mark.slow\n{PASSES.format('all')}")
    (folder / "quick" / "test_quick.py").write_text(PASSES.format("speed"))
    assert parts.main(["--slow", "60", "--beside", "quick"]) == 0
    assert any(line.startswith("quick: passed") for line in last_lines(capfd))
    (folder / "quick" / "test_quick.py").write_text("")
    assert parts.main(["--beside", "quick"]) == 1


def last_lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    told = capfd.readouterr().out.splitlines()
    return told[len(told) - told[::-1].index("") :]


def test_one_run_can_have_all_tests():
    """In one run of everything, pytest refuses a second file of the same name."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
