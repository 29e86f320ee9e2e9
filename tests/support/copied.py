"""A copy of the three packages in which one thing is changed at a time, and pytest forked to import it.

What the tests import of others is loaded once, in the process that forks; the tests and the packages are imported in
each fork. Nothing of ours may be loaded before.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import pytest
from mutations import PACKAGES, ROOT, Mutant
from patience import patient

_SET_CHILD_SUBREAPER = 36
HUNG = "takes far longer"
BROKEN = "cannot be collected"
LOADED = (
    *("aiohttp", "fastapi", "griffe", "httpx2", "hypothesis", "jsonschema", "mcp.client.streamable_http", "mcp.server"),
    *("opentelemetry.sdk.trace", "PIL.Image", "prometheus_client", "rich.console", "typer", "uvicorn", "websockets"),
    *("torch", "transformers", "trl.trainer.grpo_trainer", "inspect_ai", "datasets", "textarena", "matplotlib.pyplot"),
)
# Plugins of pytest are among what is loaded, which it would warn of.
WORDS = ("-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-m", "not slow")
WHERE = """
import subprocess, command_line, envport
def test_where():
    assert envport.__file__.startswith({folder!r})
    assert subprocess.check_output([{python!r}, {where!r}], text=True).strip() == envport.__file__
    assert envport.__file__ in command_line.envport("check", "{where}:Nothing").stdout
"""


def load() -> None:
    """Import what the tests need of others, as far as it is there."""
    for name in LOADED:
        with contextlib.suppress(ImportError):
            import_module(name)
    ours = {Path(package).name for package in PACKAGES} & set(sys.modules)
    assert not ours, f"{ours} would not be imported from the copy"
    gc.collect()
    gc.freeze()


class Ended:
    """A plugin of pytest: how the tests went. What is found later, when Python cleans up, does not count."""

    code = int(pytest.ExitCode.INTERNAL_ERROR)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.code = int(exitstatus)


class Chosen:
    """A plugin of pytest: only these tests, in files in this order, and which one is running or has failed."""

    def __init__(self, tests: Sequence[str], told: Path):
        self._tests = set(tests)
        self._files = {file: place for place, file in reversed(list(enumerate(map(_file, tests))))}
        self._told = told

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Within a file, as pytest has ordered them for the sake of the fixtures.
        chosen = [item for item in items if item.nodeid in self._tests]
        items[:] = sorted(chosen, key=lambda item: self._files[_file(item.nodeid)])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._told.write_text(nodeid)


class Copy:
    """The copy, in a folder that is empty yet."""

    def __init__(self, folder: Path):
        self._folder, self._told = folder, folder / "running.txt"
        # Some tests run as another user.
        for closed in (folder, folder.parent):
            closed.chmod(0o755)
        for package in PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, folder / Path(package).name, ignore=ignored)
        _adopt()
        subprocess.run([sys.executable, "-m", "compileall", "-q", folder], check=True)
        self._passing: dict[str, bool] = {}

    def check(self) -> None:
        """Fails if tests would import something else, in their own process, in another, or in a forked command."""
        where, test = self._folder / "where.py", self._folder / "test_where.py"
        where.write_text("import envport; print(envport.__file__)")
        test.write_text(WHERE.format(folder=str(self._folder), where=str(where), python=sys.executable))
        words = ["--rootdir", str(ROOT), "--config-file", str(ROOT / "pyproject.toml"), str(test)]
        assert self._run(words, 120) == 0, f"the copy is not imported, see {self._folder / 'output.txt'}"

    def killer(self, tests: Mapping[str, float], mutant: Mutant) -> str | None:
        """The test that fails with the mutant, if one does; it has to fail twice, and to pass without the mutant.

        Args:
            tests: Which tests may be run, and how many seconds each takes without the mutant.
            mutant: What to change.
        """
        left = dict(tests)
        while left:
            with self._changed(mutant):
                failed = self._failed(left)
                if failed is None or failed == HUNG:
                    return failed
                again = failed == BROKEN or self._failed({failed: left[failed]})
            if failed == BROKEN:
                return failed if self._failed(left) != BROKEN else None
            if again and self._passes(failed, left[failed]):
                return failed
            del left[failed]
        return None

    def _passes(self, test: str, seconds: float) -> bool:
        if test not in self._passing:
            self._passing[test] = self._failed({test: seconds}) is None
        return self._passing[test]

    def _failed(self, tests: Mapping[str, float]) -> str | None:
        self._told.unlink(missing_ok=True)
        one, all_of_them = 15 + 4 * max(tests.values()), 30 + 3 * sum(tests.values())
        words = ["--timeout", f"{one:.0f}", *dict.fromkeys(map(_file, tests))]
        code = self._run(words, patient(all_of_them), Chosen(list(tests), self._told))
        if code is None:
            return HUNG
        if code == pytest.ExitCode.TESTS_FAILED:
            return self._told.read_text() if self._told.exists() else BROKEN
        return None if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else BROKEN

    @contextlib.contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        file = self._folder / Path(mutant.path).relative_to(Path(mutant.path).parts[0])
        # A compiled file counts as fresh if size and second are the same.
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()
        file.write_bytes(mutant.changed)
        try:
            yield
        finally:
            file.write_bytes(mutant.source)

    def _run(self, words: Sequence[str], limit: float, *plugins: object) -> int | None:
        """Run pytest in a fork; its exit code, or None if it took too long."""
        pid = os.fork()
        if pid == 0:
            ended = Ended()
            try:
                self._become()
                pytest.main([*WORDS, *words], plugins=[ended, *plugins])
            finally:
                os._exit(ended.code)
        try:
            return _wait(pid, limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            _end_what_is_left()

    def _become(self) -> None:
        os.setsid()
        output = os.open(self._folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream, number in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
            os.dup2(stream, number)
        os.environ |= {
            "PYTHONPATH": str(self._folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis"),
        }
        sys.dont_write_bytecode = True
        # As `python -m pytest` has it.
        sys.path[:1] = [str(ROOT), str(self._folder)]
        os.chdir(ROOT)


def _adopt() -> None:
    """Become the parent of every process that a test leaves behind, as tests of a mutant may."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_what_is_left() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _wait(pid: int, limit: float) -> int | None:
    ended = os.pidfd_open(pid)
    try:
        in_time, _, _ = select.select([ended], [], [], limit)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return status if in_time else None
    finally:
        os.close(ended)


def _file(test: str) -> str:
    return re.sub("::.*", "", test, count=1, flags=re.DOTALL)
