"""The cheating agents of the examples: each is run, and none of them pays."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from bubblewrap import needs_bubblewrap
from command_line import envport_here

FOLDER = Path(__file__).parents[2] / "examples" / "cheating_agents"
PAGE = (FOLDER / "README.md").read_text()

sys.path.insert(0, str(FOLDER.parent))

from cheating_agents import run  # noqa: E402


# What holds each of them off has tests of its own: of the sandbox, the control plane, losses, and limits.
@pytest.mark.slow
@needs_bubblewrap
def test_no_cheat_pays_and_the_page_shows_what_each_earns():
    done = envport_here(*run.words())
    table = run.judged(done.returncode, done.stdout, done.stderr)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert shown in f"{table}\n"
    assert "2 of 3 episodes were lost (67%); allowed: 5% (--max-lost)" in table


def test_every_agent_has_its_row():
    agents = {path.stem for path in (FOLDER / "agents").glob("*.py")} - {"play"}
    assert agents == set(run.AGENTS) == set(re.findall(r"^\| \[`(\w+)\.py`\]", PAGE, flags=re.MULTILINE))
    assert re.findall(r"^```bash\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL) == [
        "python examples/cheating_agents/run.py\n"
    ]
