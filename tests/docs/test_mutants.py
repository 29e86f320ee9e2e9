"""`make mutants` takes hours; this shows that what it changes is what its tests import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mutations import PACKAGES, ROOT
from nearest import TESTS, mapped
from patience import patient
from touched import FOLDERS

SUPPORT = Path(__file__).parents[1] / "support"
CHECK = "import sys; from pathlib import Path; from copied import Copy; Copy(Path(sys.argv[1])).check()"


def test_tests_of_a_mutant_import_the_copy_that_is_changed(tmp_path: Path):
    folder = tmp_path / "copy"
    folder.mkdir()
    command = [sys.executable, "-c", CHECK, str(folder)]
    checked = subprocess.run(command, cwd=SUPPORT, capture_output=True, text=True, timeout=patient(120), check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_each_file_of_the_source_has_tests_that_are_near(package: str):
    for file in (ROOT / package).rglob("*.py"):
        assert mapped(str(file.relative_to(ROOT))), file


def test_what_is_near_is_there_and_recorded():
    for start, names in TESTS.items():
        assert (ROOT / start).exists(), start
        for name in names.split():
            assert (ROOT / name).is_file() or (ROOT / "tests" / name).exists(), f"{start}: {name}"
    folders = {file.parent.name for file in (ROOT / "tests").glob("*/test_*.py")}
    assert folders == {*FOLDERS, "docs", "with_vllm"}
