"""Which tests touch which line of the packages, and how long each test takes; recorded once and kept in `.mutants`.

Each test is run once under coverage, with the test as the context. Only the process of the tests is watched: a command,
a forked runtime and a cluster are processes of their own. Later, only test files that are new or have changed are run
again, and the lines of a source that has changed are found again by their text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from mutations import PACKAGES, ROOT
from patience import VARIABLE, factor

FOLDER = ROOT / ".mutants"
# Quick ones first: what is recorded before an interruption is kept.
FOLDERS = ("core", "gateway", "trajectories", "agents", "envs", "cli", "web", "evaluation")
FOLDERS += ("runtimes", "bridges", "bench", "cluster")
ALONE = ("runtimes", "bench", "cluster")
WORKERS = 2
TOLD = "TOUCHED_TOLD"
# Seconds that any test takes, for pytest itself.
_OVERHEAD = 0.05


class Touched:
    """What has been recorded; read from the cache, and written to it after each folder of tests."""

    def __init__(self, file: Path = FOLDER / "touched.json"):
        self._file = file
        kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self._digests: dict[str, str] = kept.get("digests", {})
        self._seconds: dict[str, float] = kept.get("seconds", {})
        self._sources: dict[str, str] = kept.get("sources", {})
        self._lines: dict[str, dict[int, set[str]]] = {}
        names: list[str] = kept.get("names", [])
        for path, lines in kept.get("lines", {}).items():
            self._lines[path] = {int(line): {names[number] for number in numbers} for line, numbers in lines.items()}
        self._moved = self._follow()

    def refresh(self) -> None:
        """Run the tests that are new or have changed, and say how old the rest is."""
        if self._moved and self._digests:
            print(
                f"{self._moved} lines of the source have changed since the tests were recorded; --record does it anew."
            )
        files = sorted((ROOT / "tests").glob("*/test_*.py"), key=lambda file: (_rank(file), file))
        for folder, found in groupby((file for file in files if file.parent.name in FOLDERS), key=lambda it: it.parent):
            changed = [file for file in found if self._digests.get(_name(file)) != _digest(file)]
            if changed:
                names = " ".join(file.name for file in changed)
                print(f"recording {folder.name}: {names}", flush=True)
                self._record(changed)

    def tests(self, path: str, first: int, last: int) -> list[str]:
        """The tests that touch a line of these, quickest first."""
        lines = self._lines.get(path, {})
        found = set[str]().union(*(lines.get(line, ()) for line in range(first, last + 1)))
        return self._ordered(found)

    def mentioning(self, name: str) -> list[str]:
        """The tests that touch a line with this word, which is what a constant or a field is for."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        found: set[str] = set()
        for path, source in self._sources.items():
            lines = self._lines.get(path, {})
            for number, line in enumerate(source.splitlines(), 1):
                if word.search(line):
                    found |= lines.get(number, set())
        return self._ordered(found)

    def touching(self, path: str) -> list[str]:
        """The tests that touch any line of this file, quickest first."""
        return self._ordered(set[str]().union(*self._lines.get(path, {}).values()))

    def among(self, path: str) -> list[str]:
        """The tests of this file or folder, quickest first."""
        return self._ordered(test for test in self._seconds if test.startswith((f"{path}/", f"{path}::")))

    def quick(self, tests: Sequence[str], seconds: float, number: int | None = None) -> list[str]:
        """As many of these tests, in this order, as fit into so many seconds; the first one always."""
        chosen: list[str] = []
        for test in tests:
            if len(chosen) != number and (self.seconds([test]) <= seconds or not chosen):
                seconds -= self.seconds([test])
                chosen.append(test)
        return chosen

    def seconds(self, tests: Iterable[str]) -> float:
        """How long they took, one after the other."""
        return sum(self._seconds.get(test, 1.0) for test in tests)

    def _ordered(self, tests: Iterable[str]) -> list[str]:
        """Quickest first; each further case of a parametrized test counts as so much slower."""
        costs: list[tuple[float, str]] = []
        cases = Counter[str]()
        for test in sorted((test for test in tests if test in self._seconds), key=lambda test: self._seconds[test]):
            cases[test.partition("[")[0]] += 1
            costs.append(((_OVERHEAD + self._seconds[test]) * cases[test.partition("[")[0]], test))
        return [test for _, test in sorted(costs)]

    def _record(self, files: list[Path]) -> None:
        data, told = FOLDER / "coverage", FOLDER / "told.jsonl"
        for left in (*FOLDER.glob("coverage*"), told):
            left.unlink(missing_ok=True)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "recording.ini").write_text("[run]\nconcurrency = thread\n")
        alone = files[0].parent.name in ALONE
        words = ["-q", "-p", "no:cacheprovider", "-p", "touched_told", "-m", "not slow", "--cov-context=test"]
        words += [f"--cov={Path(package).name}" for package in PACKAGES]
        words += [f"--cov-config={FOLDER / 'recording.ini'}", "--cov-report="]
        words += [] if alone else ["-n", str(WORKERS), "--dist", "worksteal"]
        variables = {VARIABLE: str(factor(WORKERS)), "COVERAGE_FILE": str(data), TOLD: str(told)}
        variables["PYTHONPATH"] = str(Path(__file__).parent)
        command = [sys.executable, "-m", "pytest", *words, *map(str, files)]
        with (FOLDER / "recording.txt").open("a") as log:
            subprocess.run(command, cwd=ROOT, env=os.environ | variables, stdout=log, stderr=log, check=False)
        self._add(files, data, told)

    def _add(self, files: list[Path], data: Path, told: Path) -> None:
        from coverage import CoverageData

        names = {_name(file) for file in files}
        self._seconds = {test: it for test, it in self._seconds.items() if test.partition("::")[0] not in names}
        for lines in self._lines.values():
            for number in lines:
                lines[number] = {test for test in lines[number] if test.partition("::")[0] not in names}
        if not told.exists() or not data.exists():
            sys.exit(f"the tests could not be recorded, see {FOLDER / 'recording.txt'}")
        reports = [json.loads(line) for line in told.read_text().splitlines()]
        failed = {test for test, outcome, _ in reports if outcome != "passed"}
        for test, _, seconds in reports:
            if test not in failed:
                self._seconds[test] = round(self._seconds.get(test, 0) + seconds, 3)
        recorded = CoverageData(str(data))
        recorded.read()
        for measured in recorded.measured_files():
            path = _name(Path(measured))
            lines = self._lines.setdefault(path, {})
            for number, contexts in recorded.contexts_by_lineno(measured).items():
                tests = {context.rpartition("|")[0] for context in contexts if context}
                lines.setdefault(number, set()).update(tests)
        self._digests |= {_name(file): _digest(file) for file in files}
        self._write()

    def _follow(self) -> int:
        """Find the recorded lines in the sources as they are now; returns how many lines have changed."""
        moved = 0
        for path, text in _sources():
            before, after = self._sources.get(path, "").splitlines(), text.splitlines()
            if before == after:
                continue
            lines, self._lines[path] = self._lines.get(path, {}), {}
            matches = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
            for match in matches:
                for offset in range(match.size):
                    if match.a + offset + 1 in lines:
                        self._lines[path][match.b + offset + 1] = lines[match.a + offset + 1]
            moved += len(after) - sum(match.size for match in matches)
        self._sources = dict(_sources())
        return moved

    def _write(self) -> None:
        names = sorted(self._seconds)
        numbers = {name: number for number, name in enumerate(names)}
        lines = {
            path: {line: sorted(numbers[it] for it in tests if it in numbers) for line, tests in touched.items()}
            for path, touched in self._lines.items()
        }
        kept = {"names": names, "seconds": self._seconds, "digests": self._digests, "sources": self._sources}
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(kept | {"lines": lines}))
        fresh.replace(self._file)


def forget() -> None:
    """Have everything recorded anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)


@cache
def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _name(file: Path) -> str:
    return str(file.resolve().relative_to(ROOT))


def _rank(file: Path) -> int:
    return FOLDERS.index(file.parent.name) if file.parent.name in FOLDERS else len(FOLDERS)


def _sources() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            yield _name(file), file.read_text()
