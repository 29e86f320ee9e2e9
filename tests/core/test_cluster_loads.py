"""A replica keeps itself informed of the loads of its hosts, and that takes no more than a share of its time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from patience import patient

from envport.cluster.hosts import HostLost
from envport.cluster.messages import HostLoad, HostMessage
from envport.cluster.settings import ClusterSettings
from envport.cluster.table import ClusterTable
from envport.episodes import Limits


class HostsHere:
    """`Hosts` in this process, each with one live episode."""

    def __init__(self, count: int):
        self.settings = ClusterSettings("1", {}, asdict(Limits()), "secret")
        self.here = [f"{number:04}" for number in range(count)]
        self.asked: Counter[str] = Counter()
        self.lost: set[str] = set()
        self.most_at_a_time = self._at_a_time = 0
        self.changed = asyncio.Condition()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        yield

    def names(self) -> Sequence[str]:
        return self.here

    async def ask(self, host: str, message: HostMessage[Any], life: str | None = None, progress: Any = None) -> Any:
        self._at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
        # As over a network, whoever is asked at the same time has begun by now.
        await asyncio.sleep(0)
        async with self.changed:
            self._at_a_time -= 1
            self.asked[host] += 1
            self.changed.notify_all()
        if host in self.lost:
            raise HostLost
        return HostLoad(1, 10, {})

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(patient(20)), self.changed:
            await self.changed.wait_for(lambda: all(self.asked[host] >= times for host in self.here))


async def test_all_hosts_are_asked_in_turn_and_only_some_at_a_time():
    hosts = HostsHere(120)
    table = ClusterTable([], hosts, load_seconds=0)
    async with table.run():
        assert table.live == 120
        hosts.most_at_a_time = 0
        await hosts.until_asked(4)
        assert 0 < hosts.most_at_a_time <= 50
        assert max(hosts.asked.values()) - min(hosts.asked.values()) <= 1


async def test_the_load_of_a_host_that_is_gone_or_does_not_answer_is_forgotten():
    hosts = HostsHere(60)
    table = ClusterTable([], hosts, load_seconds=0)
    async with table.run():
        hosts.lost = {"0003"}
        hosts.here = hosts.here[:55]
        await hosts.until_asked(4)
        assert table.live == 54
