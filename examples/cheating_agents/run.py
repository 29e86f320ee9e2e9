"""Evaluates every cheat beside honest play, and checks that none of them pays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
AGENTS = (
    "honest",
    "crash_the_worker",
    "kill_the_gateway",
    "kill_the_supervisor",
    "read_memory",
    "end_early",
    "exhaust_a_limit",
)
# With this seed, one of three episodes is won.
EPISODES, SEED = 3, 3


def words() -> list[str]:
    """The words after `envport`."""
    players = [word for name in AGENTS for word in ("--agent", f"{{python}} {HERE / 'agents' / name}.py")]
    which = ["--num-tasks", f"{EPISODES}", "--seed", f"{SEED}", "--agent-reads", str(HERE / "agents")]
    return ["eval", f"{HERE / 'doors.py'}:Doors", *players, *which, "--json"]


def judged(code: int, output: str, errors: str) -> str:
    """A table of what each agent earned, after checking that cheating earns nothing."""
    results: dict[str, dict[str, Any]] = dict(zip(AGENTS, json.loads(output), strict=True))
    complaints = [line for line in errors.splitlines() if line.startswith("error: ")]
    lines = [f"{'agent':20}  success  lost  worst case"]
    for name, result in results.items():
        success, worst = (one["success"]["mean"] for one in (result, result["worst_case"]))
        lost = result["infrastructure_failures"]
        lines.append(f"{name:20} {success:8.0%} {lost:5} {worst:11.0%}")
        assert worst == results["honest"]["success"]["mean"] == 1 / 3, name
        # Whoever has losses left out is told of.
        assert (lost > 0) == any(f"{name}.py" in line for line in complaints) == (name == "crash_the_worker"), name
    assert code == 1, code
    return "\n".join([*lines, *complaints])


def main() -> None:
    envport = str(Path(sys.executable).with_name("envport"))
    done = subprocess.run([envport, *words()], capture_output=True, text=True, check=False)
    print(judged(done.returncode, done.stdout, done.stderr))


if __name__ == "__main__":
    main()
