"""The catalogue: what comes with envport is checked, audited and measured; a sample here, all by `make catalogue`."""

from __future__ import annotations

from pathlib import Path

import pytest
from slow import slow

from envport.registry import schemes
from envport_bridges.audit import catalogue
from envport_bridges.audit.memory import memory_of

HOARD = """
from envport import Environment, tool

class Hoard(Environment):
    "Keep two MiB."

    def reset(self, *, seed, task):
        self.kept = bytearray(1 << 20)
        return "mine"

    @tool
    def more(self) -> str:
        "Keep more, at most twice as much."
        self.kept = bytearray(b"x" * (2 << 20))
        return "mine"
"""
ROOT = Path(__file__).parents[2]
# Each of another runtime, or scored in another way. What is not installed here is told, and passes.
SAMPLE = {
    "catch": "| `catch` |  | Apache-2.0 | `move` | 25 |",
    "openspiel:kuhn_poker": "| `openspiel:kuhn_poker` | `openspiel` | Apache-2.0 | ",
}
MORE = {
    "counter": "| `counter` |  | Apache-2.0 | ",
    "gymnasium:FrozenLake-v1": "| `gymnasium:FrozenLake-v1` | `gymnasium` | MIT | ",
}


@pytest.mark.parametrize("sample", [SAMPLE, *slow([MORE])])
def test_a_sample_passes_and_makes_a_page(sample: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(catalogue, "_EPISODES", 4)
    page = tmp_path / "page.md"
    only = [word for name in sample for word in ("--only", name)]
    assert catalogue.main([*only, "--page", str(page)]) == 0
    rows = {line.split("`")[1]: line for line in page.read_text().splitlines() if line.startswith("| `")}
    assert rows.keys() == sample.keys()
    for name, row in rows.items():
        assert row.startswith(sample[name])
        assert row.endswith("| passes |") or "not examined" in row


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs the PSS of Linux")
async def test_the_memory_of_an_open_episode_is_that_which_it_holds(tmp_path: Path):
    (tmp_path / "hoard.py").write_text(HOARD)
    assert 1.9 < await memory_of(f"{tmp_path}/hoard.py:Hoard") < 2.3


def test_the_page_has_what_comes_with_envport():
    page = (ROOT / "CATALOGUE.md").read_text()
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == [
        entry.reference for entry in catalogue.ENTRIES
    ]
    assert "fails" not in page
    # The others need files or a server of the user.
    listed = {entry.reference.partition(":")[0] for entry in catalogue.ENTRIES if ":" in entry.reference}
    assert listed == schemes().keys() - {"mcp", "harbor", "openenv", "ors"}
