"""What it costs to record every episode, and to look episodes up.

python -m envport.bench.recording [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import httpx2
from sqlalchemy import insert

from envport.bench.jobs import Job, JobKind, Sample
from envport.bench.processes import Process, below, cpu_seconds, memory_kb, require_linux
from envport.bench.runtimes import Figure
from envport.serve_settings import MEMORY
from envport.trajectories import EpisodeFilter
from envport.trajectories.database import Database
from envport.trajectories.database_archive import DatabaseArchive
from envport.trajectories.schema import episodes, labels, openings

__all__ = ["FILLING_CALL", "FILLING_EPISODE", "FILLING_MEMORY", "RecordingPlan", "measure_recording"]

FILLING_CALL = "CPU of the process that fills the database, for a call"
FILLING_EPISODE = "CPU of the process that fills the database, for the beginning and the end of an episode"
FILLING_MEMORY = "memory of the process that fills the database (USS)"
"""The figures that capacity planning needs."""

_CALLERS = 64
_WAYS = {"channel": "rollout channel", "episode-modern": "MCP"}
_GROUP = 8


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """The size of each measurement.

    Attributes:
        calls: Calls of a round, in all 64 episodes together.
        rounds: Rounds with and without a store, one after the other.
        opens: Episodes that are opened and closed.
        stored: Episodes that are in the store that is looked at.
    """

    calls: int = 20_000
    rounds: int = 7
    opens: int = 10_000
    stored: int = 100_000


QUICK = RecordingPlan(calls=128, rounds=1, opens=128, stored=1_000)


def measure_recording(plan: RecordingPlan) -> Iterator[Figure]:
    """Measure what a call costs with and without a store, then how long lookups take."""
    require_linux()
    with tempfile.TemporaryDirectory() as folder:
        yield from _calls(plan, Path(folder) / "recorded")
        yield from anyio.run(_lookups, plan, Path(folder) / "stored")


def _calls(plan: RecordingPlan, folder: Path) -> Iterator[Figure]:
    with ExitStack() as stack:
        load = stack.enter_context(Process("envport.bench.load"))
        gateways = {store: _gateway(stack, store) for store in (str(folder), MEMORY)}
        recorded = gateways[str(folder)]
        before = _filling(*recorded)
        for target, way in _WAYS.items():
            speed: list[float] = []
            cpu: list[float] = []
            for _ in range(plan.rounds):
                # A pair in the same moment: other work on the machine then slows both.
                kept, memory = (_round(load, "calls", target, *at, plan.calls) for at in gateways.values())
                speed.append(memory.seconds / kept.seconds)
                cpu.append(kept.cpu_seconds / memory.cpu_seconds)
            what = f"recorded over not, {_CALLERS} episodes, {way}"
            yield Figure(f"{what}: calls per second", median(speed), "x", 0.85, True)
            yield Figure(f"{what}: CPU of the gateway's process", median(cpu), "x")
        calls = _filling(*recorded)
        yield Figure(FILLING_CALL, (calls - before) / (len(_WAYS) * plan.rounds * plan.calls) * 1e6, "us")
        _round(load, "opens", "channel", *recorded, plan.opens)
        yield Figure(FILLING_EPISODE, (_filling(*recorded) - calls) / plan.opens * 1e6, "us")
        yield Figure(FILLING_MEMORY, sum(map(memory_kb, below(recorded[0]))) * 1024 / 1e6, "MB")


def _filling(pid: int, url: str) -> float:
    """CPU time so far of the process that fills the database of a gateway, once it has everything."""
    # Whoever asks for episodes waits for that.
    httpx2.get(f"{url}/episodes?limit=1").raise_for_status()
    return sum(cpu_seconds(child) for child in below(pid))


def _gateway(stack: ExitStack, store: str) -> tuple[int, str]:
    options = ("--port", "0", "--log-level", "warning", "--drain-seconds", "0", "--end-with-input", "--store", store)
    process = stack.enter_context(Process("envport.cli", "serve", "echo", "--config", "/dev/null", *options))
    while (found := re.search(r"http://[\w.:]+", process.read())) is None:
        pass
    return process.pid, found[0]


def _round(load: Process, kind: JobKind, target: str, pid: int, url: str, count: int) -> Sample:
    answer: dict[str, Any] = json.loads(load.ask(json.dumps(asdict(Job(kind, target, url, pid, _CALLERS, count)))))
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return Sample(**answer)


async def _lookups(plan: RecordingPlan, folder: Path) -> list[Figure]:
    with closing(Database(folder)) as database:
        _fill(database, plan.stored)
        archive = DatabaseArchive(database)
        asked = {
            "the newest 100": EpisodeFilter(),
            "100 of an environment, by reward": EpisodeFilter(environment="catch", min_reward=0.5),
            "the group of a GRPO step, by its label": EpisodeFilter(labels={"group": str(plan.stored // _GROUP // 2)}),
            "100 that were lost": EpisodeFilter(lost=True),
        }
        figures: list[Figure] = []
        for what, wanted in asked.items():
            times: list[float] = []
            for _ in range(11):
                begin = time.perf_counter()
                page = await archive.find(wanted)
                times.append(time.perf_counter() - begin)
                if not page.episodes:
                    raise RuntimeError(f"nothing was found of: {what}")
            title = f"{plan.stored:,} episodes: {what}"
            figures.append(Figure(title, median(times) * 1e3, "ms", 100))
        return figures


def _fill(database: Database, count: int) -> None:
    """Put episodes into a store, as a training run leaves them."""
    body = json.dumps(
        {"task": None, "labels": {}, "prompt": "", "first_observation": {"content": []}, "reward_in_meta": True}
    )
    for first in range(1, count + 1, 1_000):
        keys = range(first, min(first + 1_000, count + 1))
        with database.write() as connection:
            connection.execute(insert(episodes), [_row(key) for key in keys])
            connection.execute(insert(openings), [{"episode": key, "body": body} for key in keys])
            connection.execute(
                insert(labels), [{"episode": key, "name": "group", "value": str(key // _GROUP)} for key in keys]
            )


def _row(key: int) -> dict[str, Any]:
    lost = key % 1_000 == 0
    return {
        "id": key, "handle": f"ep_{key}", "resets": 0, "latest": True, "gateway": "g", "principal": "local",
        "environment": ("catch", "maze")[key % 2], "environment_version": "1", "seed": key, "fingerprint": "f",
        "created_at": 1.7e9 + key, "status": "failed" if lost else "terminated", "reason": "terminated",
        "fault": "infrastructure" if lost else None, "lost": lost, "steps": 10, "errors": 0,
        "reward": None if lost else key % 3 - 1.0, "score": None, "environment_seconds": 0.1,
        "ended_at": 1.7e9 + key + 1, "updated_at": 1.7e9 + key + 1, "bytes": 1_000,
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m envport.bench.recording", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--json", action="store_true", help="an object on each line")
    asked = parser.parse_args()
    missed = False
    for figure in measure_recording(QUICK if asked.quick else RecordingPlan()):
        missed = missed or figure.reached is False
        print(json.dumps(asdict(figure) | {"reached": figure.reached}) if asked.json else figure, flush=True)
    sys.exit(missed and not asked.quick)


if __name__ == "__main__":
    main()
