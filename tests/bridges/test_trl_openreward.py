"""TRL's `OpenRewardSpec` plays our environments with a URL and nothing else of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from apart import python_of
from harness import running
from patience import patient

from envport import Environment, Step, Task, tool
from envport.blocks import text_of
from envport.errors import MissingExtra
from envport.registry import EnvironmentDefinition, load
from envport.tools.sampling import ArgumentSampler
from envport_bridges.audit.catalogue import ENTRIES
from envport_bridges.ors import ors_root_surface
from envport_bridges.rollouts import Rollouts

PROGRAM = Path(__file__).parents[1] / "support" / "ors_trl.py"
Plan = Mapping[str, Any]


class Shaped(Environment):
    """Gives rewards on the way, a score at the end, and breaks when it is told to."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"seed {seed}"

    @tool
    def step(self, reward: float, note: str | None = None) -> Step[str]:
        """Take a step.

        Args:
            reward: What it is worth.
            note: Anything.
        """
        return Step(f"stepped, {note}", reward=reward)

    @tool
    def end(self) -> Step[str]:
        """End it."""
        return Step("ended", reward=0.25, terminated=True)

    @tool
    def break_it(self) -> Step[str]:
        """Break."""
        raise RuntimeError("the secret cause")

    def score(self) -> float:
        return 10.0


def site_packages() -> Path:
    return next(python_of("openreward", "0.1.167").parents[1].glob("lib/python3*/site-packages"))


def played(definitions: Sequence[EnvironmentDefinition], plans: Sequence[Plan]) -> list[dict[str, Any]]:
    packages = site_packages()
    with running(*definitions, root_surface=ors_root_surface) as gateway:
        done = subprocess.run(
            [sys.executable, PROGRAM, packages, gateway.url],
            input="\n".join(map(json.dumps, plans)),
            capture_output=True,
            text=True,
            timeout=patient(120),
        )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_dataset_the_environments_and_the_reward_are_those_of_every_other_way() -> None:
    shaped = EnvironmentDefinition("shaped", Shaped)
    steps = [("step", {"reward": 0.5}), ("step", {"reward": 1.0, "note": "so"})]
    catch, whole, cut, lost = played(
        [load("catch"), shaped],
        [
            {"name": "catch", "split": "train", "index": 3, "calls": [("move", {"direction": "left"})] * 10},
            {"name": "shaped", "split": "train", "index": 4, "calls": [*steps, ("end", {})]},
            {"name": "shaped", "split": "train", "index": 4, "calls": steps},
            {"name": "shaped", "split": "train", "index": 4, "calls": [*steps, ("break_it", {}), *steps]},
        ],
    )
    with Rollouts("catch").open(split="train", task=3, seed=3) as rollout:
        assert catch["prompt"] == f"{rollout.prompt}\n\n{rollout.observation.text}"
        replies = [rollout.call("move", {"direction": "left"}) for _ in range(9)]
        assert catch["results"][:9] == [reply.content[0]["text"] for reply in replies]
        assert (catch["reward"], catch["finished"]) == (rollout.finish(), True)
    assert catch["results"][9].startswith("Error: episode_finished: ")
    assert {"task_index": 3, "task": 3, "seed": 3, "split": "train"}.items() <= catch["row"].items()
    # The last reward, which is the one that TRL takes, is that of the episode, and comes once.
    assert whole["results"] == ["stepped, None", "stepped, so", "ended"]
    assert (whole["rewards"], whole["reward"]) == ([None, None, 11.75], 11.75)
    # What is not over, and what is lost, is not scored: never by a reward of the steps so far.
    assert (cut["reward"], cut["finished"]) == (None, False)
    assert (lost["reward"], lost["rewards"]) == (None, [None] * 5)
    assert "secret" not in "".join(lost["results"])


# Its tool `from` is Python that the binder cannot compile.
BEYOND = {"showcase"}
CALLS = 6


@pytest.mark.slow
def test_every_environment_of_the_catalogue_is_played_but_those_whose_tools_cannot_be_bound() -> None:
    rng = Random(7)
    definitions: list[EnvironmentDefinition] = []
    plans: list[Plan] = []
    expected: list[tuple[str, list[str], float | None]] = []
    for entry in ENTRIES:
        try:
            definition = load(entry.reference)
        except MissingExtra:
            continue
        name = f"e{len(definitions)}"
        definitions.append(EnvironmentDefinition(**{**vars_of(definition), "name": name}))
        split = definition.default_split
        chosen = {"split": split, "task": 1} if split is not None else {}
        calls: list[tuple[str, dict[str, Any]]] = []
        texts: list[str] = []
        with Rollouts(entry.reference).open(seed=1, **chosen) as rollout:
            while rollout.outcome is None and len(calls) < CALLS:
                picked = rng.choice(rollout.tools)
                arguments = ArgumentSampler(picked["inputSchema"]).sample(rng)
                calls.append((picked["name"], arguments))
                texts.append("\n".join(seen(rollout.call(picked["name"], arguments).content)) or "(no output)")
            total = (rollout.finish() or 0.0) if rollout.outcome is not None else None
        plans.append({"name": name, "split": split or "train", "index": 1, "calls": calls})
        expected.append((entry.reference, texts, total))
    for told, (reference, texts, total) in zip(played(definitions, plans), expected, strict=True):
        if reference in BEYOND:
            assert told["raised"] == "SyntaxError"
            continue
        assert "raised" not in told, (reference, told)
        assert (reference, told["results"], told["reward"]) == (reference, texts, total)


@pytest.mark.slow
def test_grpo_trains_with_it() -> None:
    program = Path(__file__).with_name("ors_training.py")
    with running(load("echo"), load("catch"), root_surface=ors_root_surface) as gateway:
        done = subprocess.run(
            [sys.executable, program, site_packages(), gateway.url],
            capture_output=True,
            text=True,
            timeout=patient(200),
        )
    assert done.returncode == 0, done.stderr
    rewards = []
    for index in (3, 4):
        with Rollouts("catch").open(split="train", task=index, seed=index) as rollout:
            for _ in range(9):
                rollout.call("move", {"direction": "left"})
            rewards.append(rollout.finish() or 0.0)
    logged = json.loads(done.stdout.splitlines()[-1])
    assert logged["reward"] == pytest.approx(sum(rewards) / 2)
    assert (logged["tools/call_frequency"], logged["tools/failure_frequency"]) == (9.0, 0.0)


def vars_of(definition: EnvironmentDefinition) -> dict[str, Any]:
    return {
        field: getattr(definition, field)
        for field in ("cls", "options", "unshown_options", "limits", "secrets", "scorer")
    }


def seen(content: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts that a player without images sees."""
    return [text for block in content if block["type"] != "image" and (text := text_of(dict(block)))]
