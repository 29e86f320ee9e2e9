from __future__ import annotations

import subprocess
import sys

import pytest
from extras import MISSING

IMPORTING = """
import sys
sys.modules["transformers"] = None
try:
    import envport_bridges.trl
except ImportError as error:
    print(f"{type(error).__name__}: {error}")
"""


def test_the_training_bridge_can_be_tested():
    if MISSING:
        pytest.skip(f"the training bridge is not tested: {', '.join(MISSING)} missing (pip install 'envport[trl]')")


def test_without_the_extra_an_import_names_it_and_is_an_import_error():
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True)
    said = "MissingExtra: The training bridge needs a package that is not installed: pip install 'envport[trl]'"
    assert done.stdout.strip() == said, done.stderr
