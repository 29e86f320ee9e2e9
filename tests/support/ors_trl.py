"""TRL's binder for the Open Reward Standard, as a program that has both TRL and `openreward`, which goes by path.

Run as `ors_trl.py SITE_PACKAGES URL`: reads a line of JSON for each environment, `{"name", "split", "index", "calls"}`,
plays an episode of it, and writes what the trainer would see as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import openreward_light  # noqa: F401

# Behind TRL's own packages, so that nothing of the other environment takes the place of one of these.
sys.path.append(sys.argv[1])
os.environ.update(OPENREWARD_SESSION_URL=sys.argv[2], OPENREWARD_API_URL=sys.argv[2], TRL_EXPERIMENTAL_SILENCE="1")

from trl.experimental.openreward import OpenRewardSpec


def played(name: str, split: str, index: int, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    spec = OpenRewardSpec(sys.argv[2], env_name=name, split=split, indices=[index])
    rows = spec.train_dataset
    environment = spec.environment_factory()
    prompt = environment.reset(**rows[0])
    results = [getattr(environment, tool)(**arguments) for tool, arguments in calls]
    rewards = spec.reward_funcs(environments=[environment], prompts=[""], completions=[""])
    environment._close()
    return {
        "row": rows[0],
        "prompt": prompt,
        "results": results,
        "reward": rewards[0],
        "rewards": environment.rewards,
        "finished": environment.finished,
    }


for line in sys.stdin:
    try:
        told = played(**json.loads(line))
    except Exception as error:
        told = {"raised": type(error).__name__, "message": str(error)}
    except SyntaxError as error:
        told = {"raised": "SyntaxError", "message": str(error)}
    print(json.dumps(told), flush=True)
