"""Programs of others that drive a resources server of NeMo Gym play our environments."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apart import python_of
from harness import RunningGateway, running
from patience import patient
from scored_environments import Judged

from envport import AsyncClient
from envport.access import Access, Principal
from envport.registry import EnvironmentDefinition, load
from envport_bridges.nemo_gym import nemo_gym_root_surface, nemo_gym_surface
from envport_bridges.nemo_gym.rows import RowsWanted, rows_of
from envport_bridges.rollouts import AsyncRollouts, Rollouts

SUPPORT = Path(__file__).parents[1] / "support"
TOKEN = "trainer-0123456789abcdef"
WHOLE, BROKEN = EnvironmentDefinition("whole", Judged), EnvironmentDefinition("broken", Judged, {"score": "error"})


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningGateway]:
    access = Access([(hashlib.sha256(TOKEN.encode()).digest(), Principal("trainer", frozenset({"control", "play"})))])
    with running(WHOLE, BROKEN, access=access, environment_surfaces={"nemo_gym": nemo_gym_surface}) as serving:
        yield serving


async def printed(python: Path, program: str, *asked: Any) -> list[Any]:
    """What a program prints when it is asked this."""
    process = await asyncio.create_subprocess_exec(
        python, SUPPORT / program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(patient(120)):
        output, _ = await process.communicate("".join(json.dumps(it) + "\n" for it in asked).encode())
    assert process.returncode == 0
    return list(map(json.loads, output.splitlines()))


async def rows(reference: str, **wanted: Any) -> list[dict[str, Any]]:
    return [made async for made in rows_of(await AsyncRollouts.connect(reference), RowsWanted(**wanted))]


@pytest.mark.slow
async def test_the_taskset_of_verifiers_plays_our_environments(guarded: RunningGateway, tmp_path: Path):
    python = python_of("verifiers", "0.4.0")
    asked: list[dict[str, Any]] = []
    for name in ("whole", "broken"):
        file = tmp_path / f"{name}.jsonl"
        reference = f"{name}={SUPPORT / 'scored_environments.py'}:Judged" + ("?score=error" if name == "broken" else "")
        file.write_text("\n".join(map(json.dumps, await rows(reference, rows=1))))
        server = {"resources_url": f"{guarded.url}/environments/{name}/nemo_gym"}
        taskset = {
            "id": "nemo-gym",
            "dataset": str(file),
            "task": server | {"headers": {"Authorization": f"Bearer {TOKEN}"}},
        }
        asked.append({"calls": [["count", {}], ["count", {"x": 1}], ["count", {}]], "tasks": 1, "taskset": taskset})
    whole, broken = await printed(python, "verifiers_player.py", *asked)
    [played] = whole["episodes"]
    assert (played["rewards"], played["metrics"]) == ({"nemo_gym": 22.0}, {"steps": 2.0, "tool_errors": 1.0})
    assert (played["ok"], played["errors"]) == (True, [])
    told = [message.get("content") for message in whole["asked"][-1]["messages"]]
    assert told[0] == "Count to 0.\n\nat 0"
    assert (told[2], told[6]) == ("at 1", "at 2")
    assert "x" in told[4]
    assert [json.dumps(it["function"]["parameters"]) for it in whole["asked"][0]["tools"]] == [
        json.dumps(it["inputSchema"]) for it in WHOLE.listing
    ]
    # A lost episode is an error there, and no reward.
    [lost] = broken["episodes"]
    assert not [value for value in lost["rewards"].values() if value is not None]
    assert "502" in " ".join(lost["errors"])
    async with AsyncClient(guarded.url, token=TOKEN) as control:
        assert sorted(info.status for info in await control.episodes()) == ["failed", "truncated"]


@pytest.mark.slow
async def test_the_agent_of_nemo_gym_plays_at_the_root():
    python = python_of("nemo_gym", "0.4.0", target=".venv/nemo_gym/0.4.0")
    guesses = [
        ["verify", {}],
        ["seed_session", {}],
        ["episodes", {"environment": "catch"}],
        ["move", {"direction": "up"}],
    ]
    calls = [["move", {"direction": "right"}], *guesses, *([["move", {"direction": "right"}]] * 8)]
    with running(load("catch"), WHOLE, BROKEN, root_surface=nemo_gym_root_surface) as gateway:
        lost = {"environment": "broken", "seed": 1}
        begun = {"responses_create_params": {"input": "Count."}}
        made = [
            *await rows("catch", rows=2),
            begun | {"verifier_metadata": {"envport": lost}},
            begun | {"verifier_metadata": {"envport": lost | {"on_loss": "mask"}}},
        ]
        asked = {"port": gateway.port, "calls": calls, "rows": made}
        *played, failed, masked, metrics = await printed(python, "nemo_gym_player.py", asked)
        async with AsyncClient(gateway.url) as control:
            assert not [info for info in await control.episodes() if info.outcome is None]
    for place, answer in enumerate(played):
        outputs = [it["output"] for it in answer["body"]["response"]["output"] if it["type"] == "function_call_output"]
        with Rollouts("catch").open(split="train", task=place, seed=place) as rollout:
            texts = [rollout.call("move", {"direction": "right"}).content[0]["text"] for _ in range(9)]
            assert [outputs[0], *outputs[5:]] == texts
            assert (answer["status"], answer["body"]["reward"]) == (200, rollout.finish())
        assert "reward" not in json.dumps(outputs)
    # Its agent has no word for a loss: the rollout fails, and with it the run.
    assert failed["status"] == 500
    assert "The episode was lost" in failed["body"]
    assert (masked["status"], masked["body"]["mask_sample"]) == (200, True)
    assert masked["body"]["_ng_failure_class"] == "envport_environment"
    assert (metrics["status"], metrics["body"]["key_metrics"]) == (200, {"mean/reward": 1.0})
