"""Change the source at random places, one at a time, and list the changes that no test notices. Run by `make mutants`.

A change is made in a copy of the three packages that comes first on PYTHONPATH; the working tree stays as it is.
Only the tests nearest to a file are run (`TESTS`); `--tests tests` tries with all. A survivor that changes nothing that
anybody can see belongs into `mutants_equivalent.txt` as it is printed, with the reason; it is then not tried.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutations import ROOT, Mutant, mutants_in
from patience import VARIABLE, factor

PACKAGES = ("gateway/envport", "bridges/envport_bridges", "envs/envport_envs")
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
# The longest beginning of a file's path decides.
TESTS = {
    "gateway/envport": "core gateway cli",
    "gateway/envport/access.py": "gateway/test_access.py gateway/test_isolation.py gateway/test_refusals.py",
    "gateway/envport/app.py": "gateway",
    "gateway/envport/checker.py": "core/test_checker.py envs/test_all_environments.py",
    "gateway/envport/cli": "cli",
    "gateway/envport/client": "gateway/test_control_plane.py gateway/test_refusals.py gateway/test_access.py bridges",
    "gateway/envport/cluster": "cluster",
    "gateway/envport/environment.py": "core",
    "gateway/envport/episodes": "core/test_episodes.py core/test_episode_machine.py core/test_admission.py gateway",
    "gateway/envport/episodes/watched.py": "gateway/test_metrics.py core/test_episodes.py cli/test_cli_tracing.py",
    "gateway/envport/http": "gateway/test_control_plane.py gateway/test_refusals.py gateway cli/test_cli_tracing.py",
    "gateway/envport/mcp": "gateway cli/test_cli_stdio.py cli/test_cli_drain.py",
    "gateway/envport/metrics": "gateway/test_metrics.py",
    "gateway/envport/registry.py": "core/test_registry.py core cli/test_cli_catalogue.py cli/test_cli_errors.py",
    "gateway/envport/runtimes": "runtimes core/test_episodes.py",
    "gateway/envport/serving.py": "cli",
    "gateway/envport/telemetry": "gateway/test_metrics.py cli/test_cli_tracing.py cli/test_cli_logs.py",
    "gateway/envport/tools": "core/test_tool_schemas.py core/test_sampling.py core/test_content.py core gateway",
    "gateway/envport/tools/arguments.py": "core/test_bad_input.py core/test_tool_schemas.py gateway",
    "gateway/envport/tools/sampling.py": "core/test_sampling.py core/test_checker.py",
    "gateway/envport/trajectories": "core/test_trajectories.py core/test_episodes.py gateway/test_control_plane.py",
    "bridges/envport_bridges/evaluation": "evaluation",
    "bridges/envport_bridges/rollouts": "bridges/test_rollouts.py bridges/test_trl_connections.py bridges",
    "bridges/envport_bridges/trl": "bridges",
    "envs/envport_envs": "envs",
    **{f"envs/envport_envs/{name}.py": f"envs/test_{name}.py envs" for name in ("catch", "maze", "sudoku", "wordle")},
}
WHERE = """
import subprocess, command_line, envport
def test_where():
    assert envport.__file__.startswith({folder!r})
    assert subprocess.check_output([{python!r}, {where!r}], text=True).strip() == envport.__file__
    assert envport.__file__ in command_line.envport("check", "{where}:Nothing").stdout
"""


class Copy:
    """A copy of the packages, in which tests are run."""

    def __init__(self, folder: str):
        self._folder = Path(folder)
        for package in PACKAGES:
            target = self._folder / Path(package).name
            shutil.copytree(ROOT / package, target, ignore=shutil.ignore_patterns("__pycache__"))
        self._environment = os.environ | {
            VARIABLE: str(factor()),
            "PYTHONPATH": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis",
        }
        subprocess.run([sys.executable, "-m", "compileall", "-q", folder], check=True)
        self._seconds: dict[str, float] = {}

    def check(self) -> None:
        """Fails if tests would import something else, in their own process, in another, or in a forked command."""
        where, test = self._folder / "where.py", self._folder / "test_where.py"
        where.write_text("import envport; print(envport.__file__)")
        test.write_text(WHERE.format(folder=str(self._folder), where=str(where), python=sys.executable))
        assert self._run(f"--rootdir {ROOT} --config-file {ROOT / 'pyproject.toml'} {test}"), "the copy is not imported"

    def passes(self, tests: str, mutant: Mutant | None = None) -> bool:
        """Whether the tests pass with the mutant. What takes far longer than without it has not passed."""
        if mutant is None:
            began = time.monotonic()
            passed = self._run(tests)
            self._seconds[tests] = time.monotonic() - began
            return passed
        file = self._folder / Path(mutant.path).relative_to(Path(mutant.path).parts[0])
        # A compiled file counts as fresh if size and second are the same.
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()
        file.write_bytes(mutant.changed)
        try:
            return self._run(tests, limit=30 + 2 * self._seconds[tests])
        finally:
            file.write_bytes(mutant.source)

    def _run(self, tests: str, limit: float | None = None) -> bool:
        words = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--timeout", "120", *tests.split()]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words],
            env=self._environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(limit) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def equivalent() -> set[str]:
    """The survivors that are known; the number of the line may have changed."""
    lines = EQUIVALENT.read_text().splitlines()
    return {re.sub(r":\d+: ", ": ", line, count=1) for line in lines if line and not line.startswith("#")}


def nearest(path: str) -> str:
    names = TESTS[max((start for start in TESTS if path.startswith(start)), key=len)]
    return " ".join(f"tests/{name}" for name in names.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=150, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--tests", help="which tests to run, for all of them")
    parser.add_argument("paths", nargs="*", help="files, folders or single lines (path:12) to change; all if not given")
    chosen = parser.parse_args()
    known = equivalent()
    found = [it for it in mutants_in(chosen.paths or PACKAGES) if f"{it.path}: {it.change}" not in known]
    picked = random.Random(chosen.seed).sample(found, min(chosen.number, len(found)))
    survived = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(folder)
        copy.check()
        passing: dict[str, bool] = {}
        for mutant in sorted(picked, key=lambda mutant: (mutant.path, mutant.start)):
            tests = chosen.tests or nearest(mutant.path)
            if tests not in passing:
                passing[tests] = copy.passes(tests)
            if not passing[tests]:
                print(f"not tried, as {tests} fail without it: {mutant}", flush=True)
                continue
            tried += 1
            if copy.passes(tests, mutant):
                survived += 1
                print(f"survived: {mutant}", flush=True)
    share = f" ({(tried - survived) / tried:.0%})" if tried else ""
    print(f"{tried - survived} of {tried} were killed{share}, of {len(found)} that there are.")


if __name__ == "__main__":
    main()
