"""The episodes of an evaluation are labelled: which evaluation, which sample, and which attempt at it."""

from __future__ import annotations

from evaluating import address, evaluate
from harness import running

from envport import Client
from envport.registry import load


def test_an_evaluation_labels_run_group_and_sample():
    with running(load("catch?rows=3")) as gateway, Client(gateway.url) as control:
        logs = [evaluate(address(gateway, "catch"), policy="noop", num_tasks=2, epochs=2) for _ in range(2)]
        for log in logs:
            found = [it.labels for it in control.episodes(labels={"run": log.eval.eval_id})]
            assert len(found) == 4
            assert all(it.keys() == {"run", "group", "sample"} for it in found)
            expected = {(str(sample.id), str(sample.epoch)) for sample in log.samples or ()}
            assert {(it["group"], it["sample"]) for it in found} == expected
        assert {sample for _, sample in expected} == {"1", "2"}
