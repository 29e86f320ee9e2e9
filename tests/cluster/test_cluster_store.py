"""The hosts of a cluster record in PostgreSQL: what was acknowledged outlives them."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest
from command_line import refused
from postgresql import Server
from replicas import FAR, Player, Replicas

from envport import Client
from envport.trajectories.recorder import open_archive


@pytest.mark.slow
async def test_a_lost_host_loses_no_acknowledged_call(replicas: Replicas, postgresql: Server) -> None:
    where = postgresql.database()
    served = replicas.start(ENVPORT_STORE=where)
    other = replicas.start(ENVPORT_STORE=where)
    with Client(served.url) as control, closing(open_archive(where)) as archive:
        handle = control.open("far", labels={"run": "a"}).episode_id
        with closing(Player([served.url], handle)) as player:
            told = []
            for number in range(1, 6):
                told.append(player.text("count"))
                # At once: nothing that the host has in memory or in files of its machine is needed.
                assert len(await archive.steps(handle)) == number
            host = player.where()["host"]
        os.kill(host, signal.SIGKILL)
        with Client(other.url) as elsewhere:
            recorded = elsewhere.trajectory(handle)
            assert [step.observation.text for step in recorded.steps if step.tool == "count"] == told
            listed = [info.episode_id for info in elsewhere.episodes(labels={"run": "a"})]
            assert listed == [handle]


@pytest.mark.slow
def test_a_folder_is_no_store_for_a_cluster(replicas: Replicas, tmp_path: object) -> None:
    complaint = refused("serve", FAR, *replicas.words, "--port", "0", "--store", str(tmp_path))
    assert "the hosts of a cluster cannot write to a folder of this machine" in complaint
