"""Run the tests in several parts, as many at the same time as a number of processes allows, and tell all results.

What mostly waits, or counts its own processes, or imports much, is a part of its own. The others share the last part.
A test that failed is run once more when all parts are done, with nothing beside it, and both results are told: what
fails only on a busy machine is to be mended, but says nothing against the change that is tested.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from patience import factor

OTHERS = "the others"
# With more, the change is at fault and not the machine.
MOST_RUN_AGAIN = 3
# What pytest exits with if it finds none.
_NO_TESTS = 5
# With much more, a part that yields would miss its limits of time.
_NICENESS = 3


@dataclass(frozen=True)
class Part:
    """A run of pytest.

    Attributes:
        name: What to call it.
        words: Arguments for pytest.
        processes: How many processes it takes.
        slow: The time limit of each test, if it runs those that are marked slow; `None` if it runs the others.
        yields: Whether parts that take longer come first at the cores.
    """

    name: str
    words: Sequence[str]
    processes: int
    slow: float | None
    yields: bool = False

    def run(self) -> Result:
        """Run it. What it prints is kept, so that it does not get between the lines of another one."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report, cache = Path(folder, "report.xml"), Path(folder, "cache")
            chosen = ["-m", "slow", "-o", f"timeout={self.slow}"] if self.slow is not None else ["-m", "not slow"]
            command = ["nice", "-n", str(_NICENESS)] if self.yields else []
            command += [sys.executable, "-m", "pytest", *chosen, f"--junit-xml={report}", *self.words]
            command += ["-o", f"cache_dir={cache}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            told = _told(report) if report.exists() else "it did not finish"
            # pytest's own names of them: those of the report leave out how the file is called.
            last = cache / "v" / "cache" / "lastfailed"
            failed = tuple(json.loads(last.read_text("utf-8"))) if done.returncode == 1 and last.exists() else ()
        # Not every part has slow tests.
        passed = done.returncode == 0 or (self.slow is not None and done.returncode == _NO_TESTS)
        verdict = "passed" if passed else f"FAILED (exit code {done.returncode})"
        line = f"{self.name}: {verdict} after {time.monotonic() - began:.0f} s; {told}"
        return Result(passed, line, done.stdout, failed)


@dataclass(frozen=True)
class Result:
    """What became of a part.

    Attributes:
        passed: Whether it passed.
        line: The lines that tell of it.
        output: What it printed.
        failed: The tests because of which it did not pass. None, if it did not pass for another reason.
    """

    passed: bool
    line: str
    output: bytes
    failed: tuple[str, ...]


def run_all(parts: Sequence[Part], at_once: int) -> list[Result]:
    """Run all parts, each as soon as its processes are free, and print what they print when they end.

    Args:
        parts: The parts, in the order in which they begin.
        at_once: How many processes there may be at the same time. A part that has more begins alone.
    """
    left, running, results = [*parts], dict[Future[Result], Part](), dict[str, Result]()
    with ThreadPoolExecutor(len(parts)) as threads:
        while left or running:
            free = at_once - sum(part.processes for part in running.values())
            for part in [*left]:
                if part.processes <= free or not running:
                    running[threads.submit(part.run)] = part
                    left.remove(part)
                    free -= part.processes
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                part, result = running.pop(ended), ended.result()
                results[part.name] = result
                print(f"\n{part.name}:", flush=True)
                sys.stdout.buffer.write(result.output)
                print(result.line, flush=True)
    return [results[part.name] for part in parts]


def run_again(results: Sequence[Result], slow: float | None) -> tuple[bool, list[str]]:
    """Run the tests that failed once more, one at a time, if they are few and nothing else went wrong.

    Args:
        results: What became of the parts.
        slow: As in `Part`.

    Returns:
        Whether all passes now, and a line about each test.
    """
    failed = [test for result in results for test in result.failed]
    if any(not result.passed and not result.failed for result in results):
        return False, []
    if len(failed) > MOST_RUN_AGAIN:
        return False, [f"{len(failed)} tests failed, and no more than {MOST_RUN_AGAIN} are run once more"]
    alone = run_all([Part(test, [test], 1, slow) for test in failed], 1) if failed else []
    lines = [
        f"failed beside the others, {'passed' if result.passed else 'FAILED'} alone: {test}"
        for test, result in zip(failed, alone, strict=True)
    ]
    return all(result.passed for result in alone), lines


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


def _shared_by(processes: int, how: str) -> list[str]:
    return ["-n", str(processes), "--dist", how] if processes > 1 else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; 0 if all passed, some of them perhaps the second time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=5, help="how many processes there may be at the same time")
    parser.add_argument("--workers", type=int, default=1, help="processes that share what is not named below")
    parser.add_argument(
        "--beside",
        nargs="+",
        default=[],
        help="what has a process of its own, or two: PATH:2; in the order in which they begin after the others. All "
        "but the first yield to that and to the others, which take longest",
    )
    parser.add_argument(
        "--slow",
        type=float,
        metavar="SECONDS",
        help="run the tests that are marked slow, with this time limit for each",
    )
    parser.add_argument("paths", nargs="*", help="what is run, apart from that; by default all")
    chosen = parser.parse_args(arguments)
    beside = [_path_and_number(words) for words in chosen.beside]
    # What is measured once they run would be a guess.
    factor(min(chosen.at_once, chosen.workers + sum(number for _, number in beside)))
    # Otherwise each of hundreds of processes would compile what it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A file's fixtures are made once in each process that runs tests of it.
    parts = [
        Part(path, [path, *_shared_by(number, "loadfile")], number, chosen.slow, yields=index > 0)
        for index, (path, number) in enumerate(beside)
    ]
    ignored = [f"--ignore={path}" for path, _ in beside]
    # It has the most tests.
    others = [*chosen.paths, *_shared_by(chosen.workers, "worksteal"), *ignored]
    parts.insert(0, Part(OTHERS, others, chosen.workers, chosen.slow))
    results = run_all(parts, chosen.at_once)
    passed, lines = run_again(results, chosen.slow)
    print("", *(result.line for result in results), *lines, sep="\n", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
