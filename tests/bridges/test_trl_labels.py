"""What the bridge tells a gateway with each episode: its labels and secrets."""

from __future__ import annotations

from harness import running

from envport import Client
from envport.registry import load
from envport.types import Choice
from envport_bridges.rollouts.labels import RolloutLabels
from envport_bridges.trl import EnvironmentSpec


def test_a_bridge_labels_run_group_and_sample() -> None:
    with running(load("catch")) as gateway:
        spec = EnvironmentSpec(
            f"{gateway.url}/environments/catch", num_tasks=2, labels={"run": "of-a-bridge", "who": "me"}
        )
        environments = [spec.environment_factory() for _ in range(4)]
        for number, environment in enumerate(environments):
            environment.reset(**spec.rows[number // 2])
        with Client(gateway.url) as control:
            found = [it.labels for it in control.episodes(labels={"run": "of-a-bridge"})]
        groups = [f"split=train task={row['task_index']} seed={row['seed']}" for row in spec.rows]
        assert {(it["group"], it["sample"], it["who"]) for it in found} == {
            (group, sample, "me") for group in groups for sample in "01"
        }


def test_of_very_many_groups_the_oldest_is_forgotten_and_begins_again() -> None:
    labels = RolloutLabels({})
    for seed in range(10_001):
        assert labels.of(Choice(seed=seed))["sample"] == "0"
    assert [labels.of(Choice(seed=seed))["sample"] for seed in (10_000, 2, 0)] == ["1", "1", "0"]


def test_a_spec_does_not_show_its_secrets() -> None:
    spec = EnvironmentSpec("catch", secrets={"KEY": "hush-hush"})
    assert dict(spec.target.secrets) == {"KEY": "hush-hush"}
    assert "hush-hush" not in repr(spec.target)
