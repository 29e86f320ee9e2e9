"""Change the source at random places, one at a time, and list the changes that no test notices. Run by `make mutants`.

A change is made in a copy of the three packages that comes first on PYTHONPATH; the working tree stays as it is. The
tests that touch the changed lines are run until one fails, at first the quickest ones only, then the others, and last
those near to the file (`nearest.py`). A survivor that changes nothing that anybody can see belongs into
`mutants_equivalent.txt` as it is printed, with the reason; it is then not tried.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

from copied import Copy, load
from mutations import PACKAGES, Mutant, mutants_in
from nearest import nearest
from patience import factor
from touched import FOLDER, Touched, forget

EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
# The quick pass: at most so many tests, which take so many seconds.
QUICK, QUICK_SECONDS = 40, 30


class Trials:
    """Tries mutants in a process of its own, with a copy of its own."""

    def __init__(self, folder: str, touched: Touched, seconds: float):
        self._folder, self._touched, self._seconds = folder, touched, seconds
        self._copy: Copy | None = None

    def __call__(self, mutant: Mutant) -> tuple[Mutant, str, str | None, float]:
        """The mutant, the pass that was the last, what has failed then, and the seconds that it took."""
        if self._copy is None:
            self._copy = Copy(Path(tempfile.mkdtemp(dir=self._folder)))
            self._copy.check()
        began = time.monotonic()
        covering, near = nearest(mutant, self._touched)
        quick = self._touched.quick(covering or near, QUICK_SECONDS, QUICK)
        rest = [test for test in (*covering, *near) if test not in set(quick)]
        killer, which = self._killer(quick, mutant), "quick"
        if killer is None:
            killer, which = self._killer(self._touched.quick(rest, self._seconds), mutant), "long"
        return mutant, which, killer, time.monotonic() - began

    def _killer(self, tests: list[str], mutant: Mutant) -> str | None:
        assert self._copy is not None
        return self._copy.killer({test: self._touched.seconds([test]) for test in tests}, mutant)


_trials: Trials


def _begin(trials: Trials) -> None:
    global _trials
    _trials = trials


def _try(mutant: Mutant) -> tuple[Mutant, str, str | None, float]:
    return _trials(mutant)


def equivalent() -> set[str]:
    """The survivors that are known; the number of the line may have changed."""
    lines = EQUIVALENT.read_text().splitlines()
    return {re.sub(r":\d+: ", ": ", line, count=1) for line in lines if line and not line.startswith("#")}


def picked(paths: list[str], number: int, seed: int) -> tuple[list[Mutant], int]:
    """A sample of the mutants, without those that are known to be equivalent, and how many mutants there are.

    What has been chosen does not depend on the other mutants, so that a change of the source changes the sample little.
    """
    found = sorted(
        mutants_in(paths or PACKAGES), key=lambda it: random.Random(f"{seed} {it.path}: {it.change}").random()
    )
    known = equivalent()
    return [it for it in found[:number] if f"{it.path}: {it.change}" not in known], len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=150, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--seconds", type=float, default=180, help="of tests to run when the quickest have passed")
    parser.add_argument("--record", action="store_true", help="record anew which tests touch which lines")
    parser.add_argument("--verbose", action="store_true", help="print what has killed the others, too")
    parser.add_argument("paths", nargs="*", help="files, folders or single lines (path:12) to change; all if not given")
    chosen = parser.parse_args()
    os.nice(5)
    factor(chosen.jobs)
    if chosen.record:
        forget()
    touched = Touched()
    touched.refresh()
    load()
    mutants, there = picked(chosen.paths, chosen.number, chosen.seed)
    killed = Counter[str]()
    # Not in /tmp, which a sandbox has to find empty.
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        trials = Trials(folder, touched, chosen.seconds)
        with multiprocessing.get_context("fork").Pool(chosen.jobs, _begin, [trials]) as pool:
            for mutant, which, killer, seconds in pool.imap_unordered(_try, mutants):
                if killer is None:
                    print(f"survived: {mutant}", flush=True)
                else:
                    killed[which] += 1
                    if chosen.verbose:
                        print(f"killed in {seconds:.0f} s ({which}) by {killer}: {mutant}", flush=True)
    share = f" ({killed.total() / len(mutants):.1%})" if mutants else ""
    quick = f"{killed['quick']} of them by the quickest tests"
    print(f"{killed.total()} of {len(mutants)} were killed{share}, {quick}; there are {there} mutants.")


if __name__ == "__main__":
    main()
