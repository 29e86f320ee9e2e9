"""Which tasks of reasoning-gym have a sound scorer: every task is played, and the lists have to be what comes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym is not installed")

from envport_envs.reasoning_gym.soundness import SOUND, UNSOUND, UNSOUND_PARTS

SWEEP = Path(__file__).parents[1] / "support" / "reasoning_sweep.py"
EXECUTED = 3
MUCH = 0.25


def begun(seed: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.Popen([sys.executable, str(SWEEP), seed], stdout=subprocess.PIPE, text=True, env=variables)


def verdict(one: dict[str, Any], other: dict[str, Any]) -> str:
    if one.get("ended") == EXECUTED:
        return "executes"
    assert "ended" not in one, one
    common = one["digests"].keys() & other["digests"].keys()
    if any(one["digests"][number] != other["digests"][number] for number in common):
        return "another process"
    if one["solved"] is None:
        return "no known answer"
    assert one["solved"], one
    if one["full"]:
        return "full score"
    return "parts" if one["parts"] >= MUCH else "sound"


@pytest.mark.slow
def test_the_lists_are_what_playing_every_task_shows() -> None:
    sides: list[dict[str, dict[str, Any]]] = []
    for process in [begun("1"), begun("2")]:
        said, _ = process.communicate()
        assert process.returncode == 0
        sides.append({line["task"]: line for line in map(json.loads, said.splitlines())})
    one, other = sides
    assert one.keys() == other.keys() == (SOUND | UNSOUND.keys()) - {"composite"}
    shown = {name: verdict(one[name], other[name]) for name in one}
    told = dict.fromkeys(SOUND, "sound") | dict.fromkeys(UNSOUND_PARTS, "parts")
    kinds = ("executes", "another process", "no known answer", "full score")
    told |= {name: next(kind for kind in kinds if kind in why) for name, why in UNSOUND.items() if name in shown}
    assert {name: (shown[name], told[name]) for name in shown if shown[name] != told[name]} == {}
