"""The environment's share of a GRPO step of `examples/grpo_catch`, for `python -m envport_bridges.trl.bench step`."""

from __future__ import annotations

import importlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envport_bridges.trl.spec import EnvironmentSpec
from envport_bridges.trl.trainer import ConcurrentGRPOTrainer

__all__ = ["MOST_OF_A_STEP", "StepShare", "measure_step"]

MOST_OF_A_STEP = 0.02
"""Target: the environment's share of a step's time."""

Serving = Callable[..., AbstractContextManager[tuple[str, int]]]
"""Runs a module as a server in a process of its own: its address and its process id."""


@dataclass(frozen=True)
class StepShare:
    """What a step of training took; means over the steps.

    Attributes:
        steps: How many steps were measured.
        calls: Tool calls of a step.
        seconds: Time of a step.
        waited: Seconds of it for which the trainer waited for environments: to open episodes, and for results of calls.
        cpu: CPU time of a step in seconds, of trainer and gateway together.
        bridge: Seconds of it in the thread of the bridge.
        gateway: Seconds of it in the gateway, with the environments.
    """

    steps: int
    calls: float
    seconds: float
    waited: float
    cpu: float
    bridge: float
    gateway: float

    @property
    def of_time(self) -> float:
        """The environment's share of the time."""
        return self.waited / self.seconds

    @property
    def of_cpu(self) -> float:
        """The share of the CPU time: gateway, environments and bridge."""
        return (self.bridge + self.gateway) / self.cpu


def measure_step(example: Path, serving: Serving, steps: int, warm_up: int | None = None) -> StepShare:
    """Train as the example does, with a policy that its warm-up has taught to play.

    Args:
        example: The folder of the example.
        serving: Runs the gateway.
        steps: How many steps to train.
        warm_up: Episodes of the warm-up; as many as in the example if not given.
    """
    sys.path.insert(0, str(example))
    train: Any = importlib.import_module("train")
    with tempfile.TemporaryDirectory() as folder:
        words = ["--seeds", "0", "--batches", str(steps), "--output", folder]
        options = train.parse([*words, "--warm-up", str(warm_up)] if warm_up else words)
        lesson = train.LESSONS[options.game]
        stay = ("--port", "0", "--log-level", "warning", "--drain-seconds", "0", "--end-with-input")
        with serving("envport.cli", "serve", lesson.reference, *stay) as (url, gateway):
            return _trained(train, lesson, f"{url}/environments/{lesson.game}", gateway, options)


def _trained(train: Any, lesson: Any, address: str, gateway: int, options: Any) -> StepShare:
    import torch
    from transformers import set_seed

    torch.set_num_threads(1)  # As the example does.
    set_seed(0)
    spec = EnvironmentSpec(address, split="train", num_tasks=options.groups * options.batches, seed=0)
    model, tokenizer = train.policy(lesson, spec, options, 0, options.output)
    calls: list[int] = []

    def won(environments: list[Any], log_metric: Any, **columns: Any) -> list[float | None]:
        calls.append(sum(environment.steps for environment in environments))
        return train.won(environments, log_metric, **columns)

    trainer: Any = ConcurrentGRPOTrainer(
        model=model,
        args=train.settings(lesson, options, 0, options.output),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=[won],
    )
    trainer.remove_callback(importlib.import_module("transformers").PrinterCallback)
    clocks = {"gateway": (~gateway << 3) | 2, "bridge": _bridge_clock(address)}  # See clock_getcpuclockid(3).
    before = {name: time.clock_gettime(clock) for name, clock in clocks.items()}
    own = time.process_time()
    trainer.train()
    own = time.process_time() - own
    used = {name: time.clock_gettime(clock) - before[name] for name, clock in clocks.items()}
    logged = [entry for entry in trainer.state.log_history if "step_time" in entry]
    count = len(logged)
    return StepShare(
        steps=count,
        calls=sum(calls) / count,
        seconds=sum(entry["step_time"] for entry in logged) / count,
        waited=sum(entry.get("environment_seconds", 0.0) for entry in logged) / count,
        cpu=(own + used["gateway"]) / count,
        bridge=used["bridge"] / count,
        gateway=used["gateway"] / count,
    )


def _bridge_clock(address: str) -> int:
    """The clock of the CPU time of the thread that plays at an address."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == f"envport {address}"]
    return time.pthread_getcpuclockid(thread.ident or 0)
