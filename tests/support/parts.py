"""Run the tests in several processes at the same time, and tell the results of all at the end.

What mostly waits, or counts its own processes, or imports much, has a process of its own beside those that share the
rest.
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

from patience import factor

SIDE_BY_SIDE, BESIDE = "side by side", "beside them"


class Part:
    """A run of pytest, which begins at once.

    Args:
        name: What to call it.
        words: Arguments for pytest.
        quiet: Show what it prints at its end only, so that it does not get between the lines of another one.
    """

    def __init__(self, name: str, words: Sequence[str], *, quiet: bool = False):
        self._name = name
        self._began = time.monotonic()
        self._folder = tempfile.TemporaryDirectory()
        self._report = Path(self._folder.name, "report.xml")
        self._output = Path(self._folder.name, "output").open("w+b") if quiet else None  # noqa: SIM115
        command = [sys.executable, "-m", "pytest", "-m", "not slow", f"--junit-xml={self._report}", *words]
        self._process = subprocess.Popen(command, stdout=self._output, stderr=self._output)

    def end(self) -> tuple[bool, str]:
        """Wait for it; whether it passed, and the lines that tell of it."""
        code = self._process.wait()
        told = _told(self._report) if self._report.exists() else "it did not finish"
        if self._output is not None:
            self._output.seek(0)
            print(f"\n{self._name}:", flush=True)
            sys.stdout.buffer.write(self._output.read())
            sys.stdout.flush()
            self._output.close()
        self._folder.cleanup()
        verdict = "passed" if code == 0 else f"FAILED (exit code {code})"
        return code == 0, f"{self._name}: {verdict} after {time.monotonic() - self._began:.0f} s; {told}"


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


def _path_and_number(text: str) -> tuple[str, int]:
    path, _, number = text.partition(":")
    return path, int(number or 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; 0 if all passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="2", help="processes that share what is not named below")
    parser.add_argument(
        "--beside",
        nargs="+",
        default=[],
        help="what has a process of its own, or two: PATH:2",
    )
    parser.add_argument("paths", nargs="*", help="what is run, apart from that; by default all")
    chosen = parser.parse_args(arguments)
    beside = [_path_and_number(words) for words in chosen.beside]
    # What is measured once they run would be a guess.
    factor(int(chosen.workers) + sum(number for _, number in beside))
    ignored = [f"--ignore={path}" for path, _ in beside]
    parts = [Part(SIDE_BY_SIDE, [*chosen.paths, "-n", chosen.workers, "--dist", "worksteal", *ignored])]
    for path, number in beside:
        # A file's fixtures are made once in each process that runs tests of it.
        words = ["-n", str(number), "--dist", "loadfile"] if number > 1 else []
        parts.append(Part(f"{path} {BESIDE}", [path, *words], quiet=True))
    results = [part.end() for part in parts]
    print("", *(line for _, line in results), sep="\n", flush=True)
    return 0 if all(passed for passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
