"""The checker plays episodes again: alone, and in another process. Nothing may differ, and nothing may be left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from command_line import envport, envport_here

from envport import Environment, Task, tool
from envport.checker import CheckReport, check_environment
from envport.errors import InvalidEnvironment

# In a file of its own: another process then does not import this one.
HASHES = """
from envport import Environment, Step, tool

WORDS = {{"alder", "beech", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine"}}


class Trees(Environment):
    "Name the first tree."

    def reset(self, *, seed, task):
        return "Trees."

    @tool
    def first(self) -> str:
        "Name it."
        return {first}
"""


class Plain(Environment):
    """Does nothing wrong."""

    def reset(self, *, seed: int, task: Task | None) -> Any:
        self.number = self.rng.random()
        return "ready"

    @tool
    def act(self) -> float:
        """Act."""
        return self.number


class Latest(Plain):
    """Keeps the number of the latest reset on the class: that of the second instance is that of the first."""

    def reset(self, *, seed: int, task: Task | None) -> Any:
        type(self).number = self.rng.random()
        return "ready"


class Tidy(Plain):
    """Takes one of each, and gives all back."""

    keeps: ClassVar[str] = ""
    pipes: ClassVar[list[int]] = []
    children: ClassVar[list[subprocess.Popen[bytes]]] = []
    ends: ClassVar[threading.Event] = threading.Event()

    def reset(self, *, seed: int, task: Task | None) -> Any:
        self._over = threading.Event()
        thread = threading.Thread(target=self._wait, name=f"player-{seed}")
        thread.start()
        self._thread = thread
        self._child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        self._folder = tempfile.TemporaryDirectory(prefix="board-")
        self._descriptor = os.open(os.devnull, os.O_RDONLY)
        return super().reset(seed=seed, task=task)

    def _wait(self) -> None:
        while not self._over.wait(0.05) and not type(self).ends.is_set():
            pass

    def close(self) -> None:
        if not hasattr(self, "_descriptor"):
            return
        if self.keeps != "thread":
            self._over.set()
            self._thread.join()
        if self.keeps == "child":
            type(self).children.append(self._child)
        else:
            self._child.communicate()
        if self.keeps == "folder":
            self._folder._finalizer.detach()  # type: ignore[attr-defined]
        else:
            self._folder.cleanup()
        if self.keeps == "descriptor":
            type(self).pipes.append(self._descriptor)
        else:
            os.close(self._descriptor)


class KeepsThread(Tidy):
    keeps = "thread"


class KeepsChild(Tidy):
    keeps = "child"


class KeepsFolder(Tidy):
    keeps = "folder"


class KeepsDescriptor(Tidy):
    keeps = "descriptor"


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """Give back what the environments here keep."""
    Tidy.ends.clear()
    yield
    Tidy.ends.set()
    while Tidy.children:
        Tidy.children.pop().communicate()
    while Tidy.pipes:
        os.close(Tidy.pipes.pop())
    for thread in threading.enumerate():
        if thread.name.startswith("player-"):
            thread.join()


def trees(folder: Path, first: str) -> str:
    (folder / "trees.py").write_text(HASHES.format(first=first))
    return f"{folder}/trees.py:Trees"


def complaint(cls: type[Environment]) -> str:
    with pytest.raises(InvalidEnvironment) as caught:
        check_environment(cls, another_process=False)
    return str(caught.value)


def test_the_order_of_a_set_is_found_in_another_process(tmp_path: Path):
    # Also where somebody has set what the hashes begin with, so that they would be the same again.
    done = envport("check", trees(tmp_path, "next(iter(WORDS))"), "--steps", "2", fresh=True, PYTHONHASHSEED="1")
    assert done.returncode == 1
    assert "error [reproducibility] seed 0, played in another process: the reply of first({}) was " in done.stdout
    assert "sort sets" in done.stdout


def test_what_gives_the_same_everywhere_is_told(tmp_path: Path):
    done = envport_here("check", trees(tmp_path, "min(WORDS)"), "--steps", "2")
    assert done.returncode == 0, done
    assert "3 episodes gave the same in another process, with other hashes of text." in done.stdout
    assert "3 episodes gave the same alone as beside others, and left nothing behind." in done.stdout


def test_an_episode_that_another_one_changes_is_found():
    said = complaint(Latest)
    assert "error [isolation] seed 1, played alone: the reply of act({}) was " in said
    assert "keep nothing in globals or on the class" in said


@pytest.mark.parametrize(
    ("cls", "what"),
    [
        (KeepsThread, "3 threads (player-1, player-2, player-3) are left of 3 closed episodes"),
        (KeepsChild, "3 child processes (python"),
        (KeepsFolder, "3 temporary files (board-"),
        (KeepsDescriptor, "3 open descriptors (/dev/null, /dev/null, /dev/null) are left"),
    ],
)
def test_what_a_closed_episode_keeps_is_found(cls: type[Environment], what: str):
    said = complaint(cls)
    assert f"error [release] {what}" in said
    assert "release them in close()" in said


def test_what_is_given_back_is_no_fault():
    assert passed(Tidy).alone == 3


def test_what_no_other_process_finds_is_told_and_no_fault():
    class Local(Plain):
        """In a function."""

    report = check_environment(Local)
    assert (report.elsewhere, report.alone) == (0, 3)
    assert "is defined within a function" in str(report.not_elsewhere)


def passed(cls: type[Environment]) -> CheckReport:
    report = check_environment(cls, another_process=False)
    assert report.findings == []
    return report
