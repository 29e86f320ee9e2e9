"""Measures what an episode of `workspace` costs on this machine: `python -m envport_envs.workspace.measure`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from random import Random

from envport import PlayerCode
from envport_envs.workspace.environment import WorkspaceEnvironment
from envport_envs.workspace.tasks import KINDS, exercise_of

__all__ = ["measure"]

_EPISODES, _CALLS = 20, 50


def measure(episodes: int = _EPISODES, calls: int = _CALLS) -> dict[str, float]:
    """The median time in milliseconds of what is done in an episode, without the gateway.

    Args:
        episodes: How many episodes are played.
        calls: How many calls of each tool are made in each.
    """
    taken: dict[str, list[float]] = {}

    def timed(what: str, do: Callable[[], object]) -> None:
        began = time.perf_counter()
        do()
        taken.setdefault(what, []).append(1e3 * (time.perf_counter() - began))

    for number in range(episodes):
        environment = WorkspaceEnvironment()
        environment.player_code, environment.rng = PlayerCode(), Random(number)
        timed("reset", partial(environment.reset, seed=0, task=None))
        for tool, call in (("bash", partial(environment.bash, "true")), ("python", partial(environment.python, "1"))):
            timed(f"{tool}, first call", call)
            for _ in range(calls):
                timed(f"{tool}, later calls", call)
        timed("write_file", partial(environment.write_file, "file", "text"))
        timed("read_file", partial(environment.read_file, "file"))
        environment.player_code.close()
        for kind in KINDS:
            exercise = exercise_of({"kind": kind, "number": number})
            content = exercise.solution.encode()
            timed(f"hidden tests, {kind}", partial(exercise.test.passes, PlayerCode(), exercise.path, content))
    return {what: statistics.median(times) for what, times in taken.items()}


if __name__ == "__main__":
    for what, milliseconds in measure().items():
        sys.stdout.write(f"{what:24} {milliseconds:7.1f} ms\n")
