"""`envport audit`: each way in which a reward cannot be trusted is found, and a sound environment passes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from command_line import envport_here

from envport import Environment, Solution, Step, Task, tool
from envport.errors import InvalidEnvironment
from envport.registry import EnvironmentDefinition
from envport_bridges.audit.auditing import Audit, audit


class Sound(Environment):
    """Say the number of the task."""

    reward_floor = 0.1
    pays_for: ClassVar[str] = ""

    def splits(self) -> Any:
        return {
            "train": [Task(id=f"{n}", prompt=f"Say {n}.", metadata={"n": n}) for n in range(10, 18)],
            "test": [Task(id=f"{n}", prompt=f"Say {n}.", metadata={"n": n}) for n in range(20, 22)],
        }

    def reset(self, *, seed: int, task: Task | None) -> str:
        self.wanted = task.metadata["n"] if task is not None else 0
        self.said: str | None = None
        return "Go on."

    @tool
    def say(self, words: str) -> Step:
        """Say something."""
        self.said = words
        return Step("Well.", terminated=True)

    def score(self) -> float:
        return float(self.said == f"{self.wanted}")

    def reference_solution(self, task: Task | None) -> Solution:
        return Solution([("say", {"words": f"{task.metadata['n']}"})] if task is not None else [])


class PaysForNothing(Sound):
    """Earns by making no call."""

    def score(self) -> float:
        return 1.0 if self.said is None else super().score()


class PaysForAnything(Sound):
    """Earns by any call."""

    def score(self) -> float:
        return float(self.said is not None)


class FromTheClock(Sound):
    """Draws from what no seed has set."""

    draws = Random()

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"{super().reset(seed=seed, task=task)} {self.draws.random()}"


class LeavesEarly(Sound):
    """Believes a program that ends before it was tested."""

    def score(self) -> float:
        return float("_exit(0)" in (self.said or "")) or super().score()


class Leaks(Sound):
    """Has the tasks of one split in another."""

    def splits(self) -> Any:
        splits = super().splits()
        return {**splits, "test": [*splits["test"], splits["train"][3].model_copy(update={"id": "another"})]}


class Breaks(Sound):
    """Fails where it should lose."""

    def score(self) -> float:
        return 1.0 / (len(self.said or "") < 1_000 and self.said == f"{self.wanted}")


class WrongReference(Sound):
    """Has a reference solution that does not solve it."""

    def reference_solution(self, task: Task | None) -> Solution:
        return Solution([("say", {"words": "I do not know"})])


class Stalls(Sound):
    """Takes something away for a wrong answer."""

    def score(self) -> float:
        return 0.0 if self.said is None else 2 * super().score() - 1


async def audited(cls: type[Environment], **options: Any) -> Audit:
    return await audit(EnvironmentDefinition("it", cls), episodes=6, most_calls=10, **options)


# What an audit does after the players that every environment gets.
LAST = ["the environment's own cheats", "reference", "replay"]


async def test_a_sound_environment_passes():
    told: list[str] = []
    found = await audited(Sound, tell=told.append)
    assert told == [*(one for one in told if one not in LAST), *LAST]
    assert {finding.check: finding.status for finding in found.findings} == {
        "oracle_max": "pass",
        "floor_gap": "pass",
        "adversarial_floor": "pass",
        "stalling": "pass",
        "replayability": "pass",
        "leakage": "pass",
        "masking": "pass",
    }
    means = {one.name: one.reward.mean for one in found.players}
    assert (means["reference"], means["nothing"], means["hostile texts"]) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("cls", "check", "says"),
    [
        (PaysForNothing, "adversarial_floor", "nothing earns 1.000"),
        (PaysForAnything, "adversarial_floor", "one call, then stop earns 1.000"),
        (LeavesEarly, "adversarial_floor", "hostile texts earns 1.000"),
        (FromTheClock, "replayability", "another observation"),
        (Leaks, "leakage", "another of test is 13 of train"),
        (Breaks, "masking", "environment_error"),
        (WrongReference, "oracle_max", "earns 0, not 1"),
        (Stalls, "stalling", "making no call earns 0, more than the worst end, -1"),
    ],
)
async def test_what_cannot_be_trusted_is_found(cls: type[Environment], check: str, says: str):
    found = await audited(cls)
    assert not found.passed
    finding = next(finding for finding in found.findings if finding.check == check)
    assert finding.status == "fail"
    assert says in finding.message


class ReadsTheReport(Sound):
    """Earns by a word that its own scoring looks for."""

    def score(self) -> float:
        return max(super().score(), float("PASSED" in (self.said or "")))

    def cheats(self, task: Task | None) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        return {"writes a report": [("say", {"words": "1 PASSED"})], "says nothing": [("say", {"words": ""})]}


async def test_the_environment_s_own_cheats_are_played():
    found = await audited(ReadsTheReport)
    cheats = {one.name: one.reward.mean for one in found.players if one.kind == "cheat"}
    assert (cheats["writes a report"], cheats["says nothing"]) == (1.0, 0.0)
    finding = next(finding for finding in found.findings if finding.check == "adversarial_floor")
    assert (finding.status, finding.message.count("earns 1.000")) == ("fail", 1)
    assert "writes a report earns 1.000" in finding.message


async def test_a_cheat_has_a_name_of_its_own():
    taken = type("Taken", (Sound,), {"__doc__": "Taken.", "cheats": lambda self, task: {"hostile texts": []}})
    with pytest.raises(InvalidEnvironment, match="'hostile texts', which another player is called"):
        await audited(taken)


async def test_an_environment_may_say_what_it_is():
    told = type("Told", (Stalls,), {"__doc__": "Told.", "stalling": "a quiz show", "reward_ceiling": 1.0})
    stalling = next(finding for finding in (await audited(told)).findings if finding.check == "stalling")
    assert (stalling.status, "as said: a quiz show" in stalling.message) == ("pass", True)
    lucky = type("Lucky", (PaysForAnything,), {"__doc__": "Lucky.", "reward_floor": None})
    found = await audited(lucky)
    assert not found.floor.declared
    assert found.floor.value == 1.0
    assert next(finding.status for finding in found.findings if finding.check == "floor_gap") == "fail"


def test_the_command_tells_writes_and_draws(tmp_path: Path):
    (tmp_path / "cheats.py").write_text(
        'def peek(table):\n    return None if table.made else ("move", {"direction": "left"})\n'
    )
    words = ["audit", "catch?rows=4", "--episodes", "4", "--cheat", str(tmp_path / "cheats.py") + ":peek"]
    done = envport_here(*words, "--json", str(tmp_path / "audit.json"), "--picture", str(tmp_path / "audit.png"))
    assert done.returncode == 0, done.stderr
    assert "peek (cheat)" in done.stdout
    assert "catch: no check failed" in done.stdout
    written = json.loads((tmp_path / "audit.json").read_text())
    assert written["passed"] is True
    assert [one["name"] for one in written["players"]][-1] == "peek"
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")
