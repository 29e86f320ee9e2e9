"""Secrets of an episode: they reach its environment in every runtime, and nobody else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_line import Served
from harness import running

from envport import Client, Environment, Task, tool
from envport.cluster.messages import OpenMessage
from envport.environment import RuntimeKind
from envport.episodes import Episodes, OpenRequest
from envport.errors import EpisodeFailed, InvalidRequest
from envport.registry import EnvironmentDefinition
from envport.types import Choice
from envport_bridges.rollouts import Rollouts, RolloutTarget

SECRET = "hush-hush-hush"
RUNTIMES: list[RuntimeKind] = ["inline", "thread", "process"]


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Keeper(Environment):
    """Tells which secrets it has, and not what they are."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return json.dumps({name: digest(value) for name, value in self.secrets.items()})

    @tool
    def look(self) -> str:
        """Look."""
        return digest(self.secrets["KEY"])

    @tool
    def crash(self) -> str:
        """Break."""
        raise RuntimeError("broken")


class Own(Keeper):
    """Has a tool of that name."""

    @tool
    def secrets(self) -> str:  # type: ignore[override]
        """What secrets?"""
        return "none"

    def reset(self, *, seed: int, task: Task | None) -> str:
        return ""


KEEPER = EnvironmentDefinition("keeper", Keeper)


@asynccontextmanager
async def episodes_of(spec: EnvironmentDefinition, runtime: RuntimeKind) -> AsyncIterator[Episodes]:
    episodes = Episodes({spec.name: spec}, runtime=runtime)
    async with episodes.run():
        yield episodes


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_they_reach_the_environment_before_its_reset_and_survive_a_reset(runtime: RuntimeKind):
    async with episodes_of(KEEPER, runtime) as episodes:
        opened = await episodes.open(OpenRequest("keeper", "me", secrets={"KEY": SECRET}))
        assert json.loads(opened.observation.text) == {"KEY": digest(SECRET)}
        found = episodes.find(opened.handle, "me")
        assert (await episodes.call(found, "look", {})).observation.text == digest(SECRET)
        again = await episodes.reset(found, Choice())
        assert json.loads(again.observation.text) == {"KEY": digest(SECRET)}
        # Another episode has none of them.
        other = await episodes.open(OpenRequest("keeper", "me"))
        assert other.observation.text == "{}"


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_those_of_the_environment_are_joined_by_those_of_the_episode(runtime: RuntimeKind):
    spec = replace(KEEPER, secrets={"KEY": "of all", "OTHER": "of all"})
    async with episodes_of(spec, runtime) as episodes:
        opened = await episodes.open(OpenRequest("keeper", "me", secrets={"KEY": SECRET}))
        assert json.loads(opened.observation.text) == {"KEY": digest(SECRET), "OTHER": digest("of all")}
    assert "of all" not in repr(spec)


async def test_a_tool_named_secrets_is_left_alone():
    async with episodes_of(EnvironmentDefinition("own", Own), "inline") as episodes:
        opened = await episodes.open(OpenRequest("own", "me"))
        result = await episodes.call(episodes.find(opened.handle, "me"), "secrets", {})
    assert result.observation.text == "none"


def test_nobody_is_shown_them(tmp_path: Path):
    (tmp_path / "keeper.py").write_text(
        "import hashlib, json\nfrom envport import Environment, Task, tool\n\n\n"
        "def digest(secret):\n    return hashlib.sha256(secret.encode()).hexdigest()\n\n\n" + _source(Keeper)
    )
    said = ""
    with Served("./keeper.py:Keeper", "--log-level", "debug", "--log-format", "json", cwd=tmp_path) as served:
        with Client(served.url) as control:
            opened = control.open("keeper", secrets={"KEY": SECRET})
            assert digest(SECRET) in opened.observation.text
            said += opened.model_dump_json() + control.episode(opened.episode_id).model_dump_json()
            said += "".join(it.model_dump_json() for it in control.episodes())
            said += control.environment("keeper").model_dump_json()
        with Rollouts(RolloutTarget(f"{served.url}/environments/keeper", secrets=(("KEY", SECRET),))).open() as rollout:
            assert digest(SECRET) in rollout.observation.text
            with pytest.raises(EpisodeFailed) as broken:
                rollout.call("crash", {})
            said += str(broken.value)
        for path in ("metrics", "openapi.json", f"episodes/{opened.episode_id}/trajectory", "readyz"):
            said += httpx2.get(f"{served.url}/{path}").text
        said += served.log
    assert "Traceback" in said
    assert SECRET not in said


def _source(cls: type) -> str:
    import inspect

    return inspect.getsource(cls)


BAD: list[tuple[Any, str]] = [
    ({"KEY": SECRET * 2000}, "secret 'KEY' has to be text of 1 to 16384 characters"),
    ({"KEY": ""}, "secret 'KEY' has to be text"),
    ({"K E Y": SECRET}, "'K E Y' cannot name a secret"),
    ({f"K{number}": SECRET for number in range(33)}, "33 secrets are given; allowed: at most 32"),
    ({"KEY": [SECRET]}, "secrets 'KEY': Input should be a valid string"),
    ([SECRET], "secrets: Input should be a valid dictionary"),
    (SECRET, "secrets: Input should be a valid dictionary"),
]


@pytest.mark.parametrize(("secrets", "complaint"), BAD)
def test_a_refusal_does_not_repeat_them(secrets: Any, complaint: str):
    with running(KEEPER) as gateway:
        answer = httpx2.post(f"{gateway.url}/episodes", json={"environment": "keeper", "secrets": secrets})
    assert answer.status_code == 422
    assert complaint in answer.json()["error"]["message"]
    assert SECRET not in answer.text


def test_nothing_that_holds_them_has_them_in_its_repr():
    request = OpenRequest("keeper", "me", secrets={"KEY": SECRET})
    target = RolloutTarget("keeper", secrets=(("KEY", SECRET),))
    for holder in (request, OpenMessage(request), target, replace(KEEPER, secrets={"KEY": SECRET})):
        assert SECRET not in repr(holder)


async def test_in_process_they_are_checked_as_well():
    async with episodes_of(KEEPER, "inline") as episodes:
        with pytest.raises(InvalidRequest, match="'1' cannot name a secret") as refused:
            await episodes.open(OpenRequest("keeper", "me", secrets={"1": SECRET}))
    assert SECRET not in str(refused.value)
