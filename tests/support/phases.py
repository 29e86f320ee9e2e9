"""Run the tests in two phases, always both, and tell the results of both at the end.

What measures, or counts processes, runs alone in the second phase; everything else runs side by side in the first.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

SIDE_BY_SIDE, ALONE = "side by side", "alone"


def run(name: str, words: Sequence[str]) -> tuple[bool, str]:
    """Run one phase; whether it passed, and the lines that tell of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-m", "not slow", f"--junit-xml={report}", *words]
        code = subprocess.call(command)
        told = _told(report) if report.exists() else "it did not finish"
    verdict = "passed" if code == 0 else f"FAILED (exit code {code})"
    return code == 0, f"{name}: {verdict} after {time.monotonic() - began:.0f} s; {told}"


def _told(report: Path) -> str:
    counts = {"passed": 0, "skipped": 0, "failed": 0}
    failed: list[str] = []
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
            failed.append(f"  {case.get('classname')}::{case.get('name')}")
        else:
            counts["passed" if case.find("skipped") is None else "skipped"] += 1
    return "\n".join([", ".join(f"{number} {what}" for what, number in counts.items()), *failed])


def main(words: Sequence[str] | None = None) -> int:
    """Run both phases; 0 if both passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="3", help="processes of the first phase")
    parser.add_argument("--alone", nargs="+", default=[], help="what the second phase runs")
    parser.add_argument("paths", nargs="*", help="what the first phase runs, without the former; by default all")
    chosen = parser.parse_args(words)
    ignored = [f"--ignore={path}" for path in chosen.alone]
    results = [
        run(SIDE_BY_SIDE, [*chosen.paths, "-n", chosen.workers, "--dist", "worksteal", *ignored]),
        run(ALONE, chosen.alone),
    ]
    print("", *(line for _, line in results), sep="\n", flush=True)
    return 0 if all(passed for passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
