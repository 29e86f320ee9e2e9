"""Why an episode was lost is told to the trainer in the gateway's own words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from breaking_environments import Breaking, How, Quick
from harness import running
from slow import slow

from envport.errors import EpisodeFailed
from envport.registry import EnvironmentDefinition
from envport.types import FaultOwner, Reason
from envport_bridges.rollouts import Rollouts
from envport_bridges.rollouts.connection import _connections
from envport_bridges.trl import EnvironmentSpec


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with running(EnvironmentDefinition("breaking", Breaking)) as gateway:
        yield f"{gateway.url}/environments/breaking"
    while _connections:
        _connections.popitem()[1].stop()


EXPECTED: list[tuple[How, Reason, FaultOwner]] = [
    ("raise", "environment_error", "environment"),
    ("exit", "worker_lost", "environment"),
    ("hang", "deadline", "environment"),
    ("upstream", "upstream", "infrastructure"),
]


@pytest.mark.parametrize(
    ("where", "how", "reason", "owner"),
    [
        *(("at a gateway", *expected) for expected in EXPECTED),
        ("here", *EXPECTED[1]),
        # Each starts a process from which its own is forked.
        *slow(("here", *expected) for expected in (EXPECTED[0], *EXPECTED[2:])),
    ],
)
def test_an_environment_has_the_reason(served: str, where: str, how: How, reason: Reason, owner: FaultOwner):
    spec = EnvironmentSpec("breaking_environments:Breaking" if where == "here" else served, num_tasks=1)
    environment = spec.environment_factory()
    environment.reset(**spec.train_dataset[0])
    with pytest.raises(EpisodeFailed):
        environment.break_by(how=how)
    assert (environment.outcome.reason, environment.outcome.fault, environment.score) == (reason, owner, None)


@pytest.mark.parametrize(("how", "reason", "owner"), EXPECTED[1:2])
def test_a_rollout_has_the_reason(served: str, how: How, reason: Reason, owner: FaultOwner):
    rollout = Rollouts(served).open()
    with pytest.raises(EpisodeFailed):
        rollout.call("break_by", {"how": how})
    assert rollout.outcome is not None
    assert (rollout.outcome.reason, rollout.outcome.fault) == (reason, owner)


@pytest.mark.parametrize(("drained", "reason"), [(True, "shutdown"), (False, "unreachable")])
def test_a_gateway_that_goes_is_the_reason(drained: bool, reason: Reason):
    with running(EnvironmentDefinition("breaking", Quick)) as gateway:
        spec = EnvironmentSpec(f"{gateway.url}/environments/breaking", num_tasks=1, patience=0.0)
        environment = spec.environment_factory()
        environment.reset(**spec.train_dataset[0])
        if drained:
            gateway.run(lambda: gateway.gateway.table.drain(0.0))
            with pytest.raises(EpisodeFailed):
                environment.break_by(how="raise")
    if not drained:
        with pytest.raises(EpisodeFailed):
            environment.break_by(how="raise")
    assert (environment.outcome.reason, environment.outcome.fault) == (reason, "infrastructure")
