"""NiceGUI keeps its state in the process, which several gateways may share."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import SECONDS

pytest.importorskip("nicegui", reason="the extra ui is not installed")

SCRIPT = Path(__file__).parents[1] / "support" / "page_gateways.py"


@pytest.mark.slow
def test_gateways_of_one_event_loop_share_nicegui_and_others_have_the_plain_page():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    # Nobody pays for NiceGUI before a browser asks for the page.
    assert said["imported before"] is False
    assert said["found"] == [["counter", "catch", "catch"], ["plain", "plain"]]
    assert "NiceGUI runs in another event loop of this process" in done.stderr
