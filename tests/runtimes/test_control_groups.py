"""Control groups tell an episode that took too much memory from one on a machine that had none left."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from patience import patient

from envport.runtimes.cgroups import ControlGroup, ControlGroups

MIB = 2**20
# It waits until it is in its group, and takes 64 MiB then.
EATER = f"import sys; sys.stdin.read(1); held = bytearray(64 * {MIB}); held[::4096] = b'x' * len(held[::4096])"


@pytest.fixture
def groups() -> Iterator[tuple[ControlGroup, ControlGroups]]:
    """A group, and a maker of groups within it."""
    machine = ControlGroups.find()
    if machine is None:
        pytest.skip("this process may make no control groups")
    above = machine.make()
    above.limit(2**40, None)
    within = ControlGroups(above.version, above.folders)
    yield above, within
    for folder in {*above.folders.values()}:
        for inside in folder.glob("envport-*"):
            inside.rmdir()
    assert above.remove()


def ended(group: ControlGroup) -> int:
    """Have a process of a group take memory, and return its exit status."""
    eater = subprocess.Popen([sys.executable, "-c", EATER], stdin=subprocess.PIPE)
    group.take(eater.pid)
    with contextlib.suppress(BrokenPipeError):
        eater.communicate(b".", timeout=patient(30))
    return eater.wait(patient(30))


@pytest.mark.parametrize(
    ("own", "above_all", "status", "over"),
    [(1024, 2048, 0, False), (32, 2048, -signal.SIGKILL, True), (1024, 32, -signal.SIGKILL, False)],
    ids=["enough", "the limit of the episode", "the memory of the machine"],
)
def test_only_its_own_limit_counts(
    groups: tuple[ControlGroup, ControlGroups], own: int, above_all: int, status: int, over: bool
):
    above, within = groups
    above.limit(above_all * MIB, None)
    group = within.make()
    group.limit(own * MIB, None)
    assert ended(group) == status
    assert group.out_of_memory() is over
