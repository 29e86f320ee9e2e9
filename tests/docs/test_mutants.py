"""`make mutants` takes hours; this shows that what it changes is what its tests import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from patience import patient

SUPPORT = Path(__file__).parents[1] / "support"
CHECK = "import sys; from pathlib import Path; from copied import Copy; Copy(Path(sys.argv[1])).check()"


def test_tests_of_a_mutant_import_the_copy_that_is_changed(tmp_path: Path):
    folder = tmp_path / "copy"
    folder.mkdir()
    command = [sys.executable, "-c", CHECK, str(folder)]
    checked = subprocess.run(command, cwd=SUPPORT, capture_output=True, text=True, timeout=patient(120), check=False)
    assert checked.returncode == 0, checked.stderr
