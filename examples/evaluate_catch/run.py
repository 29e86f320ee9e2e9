"""Evaluates random moves, doing nothing, a reference policy and a whole agent on Catch, and checks who is best.

python examples/evaluate_catch/run.py                  # all tasks
python examples/evaluate_catch/run.py --num-tasks 4    # options of `envport eval` may follow
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PLAYERS = {
    "random": ["--policy", "random"],
    "noop": ["--policy", "noop"],
    "reference": ["--policy", f"{HERE / 'policies.py'}:reference"],
    "agent": ["--agent", f"{{python}} {HERE / 'agent.py'} {{mcp_url}}"],
}


def main() -> None:
    envport = str(Path(sys.executable).with_name("envport"))
    words = [word for player in PLAYERS.values() for word in player]
    done = subprocess.run(
        [envport, "eval", "catch", "--split", "test", *words, "--report", "report.html", "--json", *sys.argv[1:]],
        stdout=subprocess.PIPE,
        check=True,
    )
    # One result for each player: policies come before agents.
    results = dict(zip(PLAYERS, json.loads(done.stdout), strict=True))
    for name, result in results.items():
        print(f"{name:10} reward {result['reward']['mean']:+.2f}   success {result['success']['mean']:.0%}")
    for best in ("reference", "agent"):
        assert results[best]["success"]["mean"] == 1.0, best
    for other in ("random", "noop"):
        assert results[other]["success"]["mean"] < 1.0, other
    assert Path("report.html").is_file()


if __name__ == "__main__":
    main()
