"""A Ray cluster of two nodes on this machine, and gateways that are replicas of each other."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from postgresql import postgresql
from replicas import SCORED, SECRET, Pair, Replicas

__all__ = ["postgresql"]

ray = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")

SYSTEM = {
    # Ray runs its workers at niceness 15. On a busy machine the hosts would get no time at all.
    "worker_niceness": 0,
    # As the docs recommend, and a little faster still.
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}

SHARED = f"test-{os.getpid()}-shared"

_numbers = itertools.count()


# Not for the session: its processes would be there when other tests count theirs.
@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    nodes = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": SYSTEM},
    )
    nodes.add_node(num_cpus=1)
    yield nodes
    nodes.shutdown()


@pytest.fixture
def replicas(two_nodes: Any) -> Iterator[Replicas]:
    """For replicas with hosts of their own: for tests of other settings, and for those that end hosts."""
    with ExitStack() as stack:
        yield Replicas(two_nodes.address, f"test-{os.getpid()}-{next(_numbers)}", stack)


@pytest.fixture(scope="module")
def pair(two_nodes: Any) -> Iterator[Pair]:
    """Two replicas for many tests: starting them and their hosts takes most of a test."""
    with ExitStack() as stack:
        shared = Replicas(two_nodes.address, SHARED, stack)
        yield shared.start(*SCORED, ENVPORT_SECRET=SECRET), shared.start(*SCORED, ENVPORT_SECRET=SECRET)


@pytest.fixture
def shared(two_nodes: Any, pair: Pair) -> Iterator[Replicas]:
    """For further replicas beside those two."""
    with ExitStack() as stack:
        yield Replicas(two_nodes.address, SHARED, stack)
