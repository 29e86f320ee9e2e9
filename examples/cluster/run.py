"""Two replicas of a gateway on a Ray cluster of two nodes; one replica is killed while everybody plays.

    pip install "envport[ray]"
    python examples/cluster/run.py

Everything runs on this machine. Fails if an episode was lost, or a call was played twice or not at all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import mcp
from ray.cluster_utils import Cluster

from envport import AsyncClient

# What the README recommends: hosts that get their share of a busy CPU, and the loss of a node noticed in seconds.
SYSTEM = {
    "worker_niceness": 0,
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@dataclass
class Seat:
    """One episode, and what its player saw."""

    episode_id: str
    counts: list[int] = field(default_factory=list)
    retries: int = 0
    worst_gap: float = 0.0


@contextlib.contextmanager
def ray_nodes(count: int) -> Iterator[str]:
    """Start a Ray cluster of so many nodes on this machine."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    nodes = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": SYSTEM},
    )
    for _ in range(count - 1):
        nodes.add_node(num_cpus=1)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


@contextlib.contextmanager
def replica(address: str, environment: str = "counter") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a replica on a free port."""
    command = [sys.executable, "-m", "envport.cli", "serve", environment, "--port", "0", "--log-level", "error"]
    command += ["--runtime", "ray", "--ray-address", address, "--end-with-input"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"serves .* at (http\S+)", line):
                    yield found[1], process
                    break
            else:
                raise SystemExit("the replica did not start")
        finally:
            process.kill()


async def play(seat: Seat, urls: list[str], calls: int, played: asyncio.Semaphore) -> None:
    """Count to `calls`, at whichever replica answers.

    A call carries a name in `_meta`: where nobody answered it is sent again, to the next replica, and played once.
    """
    at, last = 0, time.monotonic()
    while len(seat.counts) < calls:
        with contextlib.suppress(Exception):
            async with mcp.Client(f"{urls[at % len(urls)]}/episodes/{seat.episode_id}/mcp") as client:
                while len(seat.counts) < calls:
                    name = f"call-{len(seat.counts)}"
                    result = await client.call_tool("count", {}, meta={"envport/call_id": name})
                    if result.is_error:
                        raise SystemExit(f"episode {seat.episode_id}: {result.content}")
                    seat.counts.append(int(result.content[0].text))
                    seat.worst_gap = max(seat.worst_gap, time.monotonic() - last)
                    last = time.monotonic()
                    played.release()
                return
        seat.retries += 1
        at += 1
        assert seat.retries < 100, "no replica answers"


async def story(address: str, episodes: int, calls: int) -> list[Seat]:
    """Open episodes at one replica, and kill it when a third of the calls are made."""
    with replica(address) as (first, process), replica(address) as (second, _):
        async with AsyncClient(first) as control:
            opened = [await control.open("counter", seed=seed) for seed in range(episodes)]
        seats = [Seat(one.episode_id) for one in opened]
        played = asyncio.Semaphore(0)
        players = [asyncio.create_task(play(seat, [first, second], calls, played)) for seat in seats]
        for _ in range(episodes * calls // 3):
            await played.acquire()
        process.kill()
        await asyncio.gather(*players)
        async with AsyncClient(second) as control:
            infos = [await control.episode(seat.episode_id) for seat in seats]
        assert all(info.steps == calls for info in infos), [info.steps for info in infos]
    return seats


def main() -> None:
    """Play, and say what was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--calls", type=int, default=100, help="calls in each episode")
    options = parser.parse_args()
    with ray_nodes(2) as address:
        seats = asyncio.run(story(address, options.episodes, options.calls))
    lost = sum(seat.counts != list(range(1, options.calls + 1)) for seat in seats)
    hosts = len({seat.episode_id.partition(".")[0] for seat in seats})
    print(
        f"{len(seats)} episodes on {hosts} nodes, {options.calls} calls each, one of two replicas killed: "
        f"{lost} lost, {sum(seat.retries for seat in seats)} went on at the other one, "
        f"longest wait {max(seat.worst_gap for seat in seats):.2f} s"
    )
    assert not lost


if __name__ == "__main__":
    main()
