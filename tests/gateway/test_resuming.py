"""Episodes go on after their gateway was killed and started again on the same store."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import anyio
import mcp
import pytest
import resumed_environments
from command_line import Served, player, text
from patience import patient
from resumed_environments import STEPS, rolled

from envport import Client, Environment, Task
from envport.definition import EnvironmentDefinition
from envport.episodes import Episodes, Limits, OpenRequest, RecordedEpisodes
from envport.errors import (
    ConfigurationError,
    EpisodeFailed,
    InvalidArguments,
    InvalidRequest,
    Resuming,
    UnknownEpisode,
)
from envport.registry import load
from envport.serve_settings import StoreSettings
from envport.trajectories import EpisodeFilter
from envport.trajectories.recorder import DatabaseTrajectories, open_archive
from envport.trajectories.token_secret import kept_secret
from envport.types import Choice, EpisodeInfo, OpenedEpisode

MADE = str(Path(__file__).parents[1] / "support" / "resumed_environments.py")
BUILT_IN = ("catch", "counter", "maze")
WALKS = ("Walk", "WalkInThread", "WalkInProcess", "WalkInSandbox")
DICE = ("Dice", "DiceInThread", "DiceInProcess", "DiceInSandbox", "AsyncDice")
# How often each is played, in the long test.
SHARES = {"catch": 20, "counter": 20, "maze": 17, "Walk": 9, "WalkInThread": 9, "WalkInProcess": 4, "Dice": 6} | {
    "DiceInThread": 6,
    "DiceInProcess": 3,
    "AsyncDice": 2,
    "WalkInSandbox": 1,
    "DiceInSandbox": 1,
    "Coin": 2,
}
CLIENTS = 16


def references(*names: str) -> list[str]:
    return [name if name in BUILT_IN else f"{name}={MADE}:{name}" for name in names]


@dataclass
class Played:
    """An episode, and what its player saw."""

    name: str
    seed: int
    opened: OpenedEpisode
    seen: list[tuple[str, float | None]] = field(default_factory=list)

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        if self.name == "catch":
            return [("move", {"direction": "stay"})] * 9
        if self.name == "counter":
            return [("count", {})] * STEPS
        if self.name == "maze":
            return [("move", {"direction": way}) for way in ("up", "left", "down", "right")] * 2
        if self.name in WALKS:
            return [("step", {"by": number}) for number in range(STEPS)]
        return [("roll" if self.name in DICE else "flip", {})] * STEPS

    async def play(self, last: int, answered: Callable[[], None] = lambda: None) -> None:
        """Make the calls from the first without an answer up to a number, each with an id."""
        url, token = self.opened.mcp_url, self.opened.token
        async with player(url, headers={"Authorization": f"Bearer {token}"}) as client:
            for number in range(len(self.seen), last):
                self.seen.append(await self.call(client, number))
                answered()

    async def call(self, client: mcp.Client, number: int) -> tuple[str, float | None]:
        tool, arguments = self.calls[number]
        result = await client.call_tool(tool, arguments, meta={"envport/call_id": f"call {number}"})
        assert not result.is_error, (self.name, number, text(result))
        assert result.meta is not None
        return text(result), result.meta.get("envport/reward")

    def would_have_seen(self, info: EpisodeInfo) -> list[tuple[str, float | None]]:
        """What comes in an episode that nothing interrupts."""
        if self.name in DICE:
            state, states = int(self.opened.observation.text), list[int]()
            for _ in self.calls:
                states.append(state := rolled(state))
            return [(str(state), float(state % 6)) for state in states]
        spec = load(references(self.name)[0].partition("=")[2] or self.name)
        made: Any = spec.make()
        made.rng = random.Random(self.seed)
        made.reset(seed=self.seed, task=info.task)
        seen: list[tuple[str, float | None]] = []
        for tool, arguments in self.calls:
            step = getattr(made, tool)(**arguments)
            seen.append((str(getattr(step, "observation", step)), getattr(step, "reward", None)))
        return seen


async def all_at_once(work: list[Any]) -> None:
    limit = asyncio.Semaphore(CLIENTS)

    async def one(it: Any) -> None:
        async with limit:
            await it

    await asyncio.gather(*(one(it) for it in work))


def serve(store: Path, names: tuple[str, ...], *words: str, port: int = 0, **variables: str) -> Served:
    where = ("--store", str(store), "--port", str(port), "--resume-episodes", "--log-level", "warning")
    # A program of its own: the kill has to reach the gateway, and not what forks it.
    return Served(*references(*names), *where, *words, fresh=True, **variables)


def shares(*, long: bool) -> Mapping[str, int]:
    return SHARES if long else dict.fromkeys(("catch", "Walk", "Dice", "DiceInProcess", "Coin"), 1)


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_episodes_go_on_after_the_gateway_was_killed(tmp_path: Path, long: bool) -> None:
    names = tuple(name for name, share in shares(long=long).items() if share)
    episodes: list[Played] = []
    with serve(tmp_path, names) as served, Client(served.url) as control:
        for name, share in shares(long=long).items():
            for number in range(share):
                labels = {"run": name, "sample": str(number)}
                opened = control.open(name, seed=number + 3, reward_in_meta=True, mint_token=True, labels=labels)
                episodes.append(Played(name, number + 3, opened))
        await all_at_once([one.play(len(one.calls) // 2) for one in episodes])
        await killed_meanwhile(served, episodes)
        port = int(served.url.rpartition(":")[2])
    with serve(tmp_path, names, port=port) as served, Client(served.url) as control:
        lost = [one for one in episodes if one.name == "Coin"]
        kept = [one for one in episodes if one.name != "Coin"]
        await all_at_once([sent_again(one) for one in kept[::2] if len(one.seen) < len(one.calls)])
        # Also calls that were played, but whose answers were lost, are not played twice.
        await all_at_once([one.play(len(one.calls)) for one in kept])
        for one in kept:
            info = control.episode(one.opened.episode_id)
            assert one.seen == one.would_have_seen(info)
            assert info.labels["run"] == one.name
            assert info.steps == len(one.calls)
            assert info.rewards == [reward for _, reward in one.seen]
            assert (info.status == "terminated") == (one.name in (*WALKS, "catch"))
            steps = control.trajectory(one.opened.episode_id).steps
            assert [step.index for step in steps] == list(range(1, len(one.calls) + 1))
            assert [step.observation.text for step in steps] == [words for words, _ in one.seen]
        for one in lost:
            outcome = control.episode(one.opened.episode_id).outcome
            assert outcome is not None
            assert (outcome.status, outcome.reason, outcome.fault) == ("failed", "shutdown", "infrastructure")
            assert "'Coin' has neither snapshot() and restore(), nor does it declare deterministic" in outcome.message


async def killed_meanwhile(served: Served, episodes: list[Played]) -> None:
    """Play on, and kill the gateway when half of the calls that are left have been answered."""
    left = sum(len(one.calls) - len(one.seen) for one in episodes) // 2

    def answered() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            served.process.send_signal(signal.SIGKILL)

    async def play(one: Played) -> None:
        try:
            # One call before its end, so that none has ended when the gateway is killed.
            await one.play(len(one.calls) - 1, answered)
        except Exception:
            assert left <= 0, "it broke before the gateway was killed"

    await all_at_once([play(one) for one in episodes])
    served.process.wait(patient(30))


async def sent_again(episode: Played) -> None:
    """The client has not heard the last answer, and sends its call again."""
    async with player(episode.opened.mcp_url, headers={"Authorization": f"Bearer {episode.opened.token}"}) as client:
        assert await episode.call(client, len(episode.seen) - 1) == episode.seen[-1]


@asynccontextmanager
async def table(store: Path, *specs: EnvironmentDefinition, resumes: bool = True, **limits: Any):
    """The episodes of a gateway, which leaves its live ones to the next when it ends."""
    trajectories = DatabaseTrajectories(store, resumes=resumes)
    episodes = Episodes({spec.name: spec for spec in specs}, Limits(**limits), trajectories=trajectories)
    async with episodes.run():
        yield episodes


def made(cls: type[Environment], name: str = "it", **limits: float) -> EnvironmentDefinition:
    return EnvironmentDefinition(name, cls, limits=limits)


class Newer(resumed_environments.Walk):
    version = "2"


class Elsewhere(resumed_environments.Walk):
    """The same tools, in another file."""


WALK, LIAR = resumed_environments.Walk, resumed_environments.Liar
BEFORE = [*(made(WALK, name) for name in ("unserved", "version", "source", "limits", "secrets")), made(LIAR, "liar")]
AFTER = [made(Newer, "version"), made(Elsewhere, "source"), made(WALK, "limits", max_steps=5), made(LIAR, "liar")]
WHY = {
    "unserved": "its environment 'unserved' is not served any more",
    "version": "its environment 'version' has version 2 now, and had 1",
    "source": "the source of its environment 'source' has changed",
    "limits": "its environment 'limits' is served with other options or limits now",
    "liar": "call 1 (flip) gave another observation than before, when it was played again",
}


async def test_what_cannot_go_on_is_lost_with_the_reason_why(tmp_path: Path) -> None:
    secret = "hunter2hunter2"
    handles: dict[str, str] = {}
    async with table(tmp_path, *BEFORE) as before:
        for spec in BEFORE:
            secrets = {"KEY": secret} if spec.name == "secrets" else {}
            handles[spec.name] = (await before.open(OpenRequest(spec.name, "me", secrets=secrets))).handle
            await before.call(before.find(handles[spec.name], "me"), next(iter(spec.tools)), {})
    assert secret.encode() not in everything_in(tmp_path)
    async with table(tmp_path, *AFTER, made(WALK, "secrets")) as after:
        for name, why in WHY.items():
            info = await settled(after, handles[name])
            assert info.outcome is not None
            assert (info.status, info.outcome.reason, info.outcome.fault) == ("failed", "shutdown", "infrastructure")
            assert info.outcome.message == f"Its gateway was stopped, and it cannot go on: {why}."
            assert (info.steps, info.reward) == (1, None)
        # It could not have outlived its gateway, so that one ended it.
        assert (await settled(after, handles["secrets"])).status == "closed"
        found = after.find(handles["liar"], "me")
        with pytest.raises(EpisodeFailed, match="shut down") as failed:
            await after.call(found, "flip", {})
        assert (failed.value.fault, failed.value.reason) == ("infrastructure", "shutdown")
        assert [step.tool for step in (await after.trajectory(found.handle, "me")).steps] == ["flip"]


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def settled(episodes: Episodes, handle: str) -> EpisodeInfo:
    """The state of an episode, which may have waited for being put back."""
    with contextlib.suppress(UnknownEpisode):
        await episodes.keep_alive(episodes.find(handle, "me"))
    return await RecordedEpisodes(episodes, episodes.trajectories.archive).info(handle, "me")


async def test_a_refused_call_and_one_without_an_answer_are_no_obstacle(tmp_path: Path) -> None:
    specs = made(WALK), made(resumed_environments.Dice, "dice")
    async with table(tmp_path, *specs) as before:
        found = before.find((await before.open(OpenRequest("it", "me", choice=Choice(seed=4)))).handle, "me")
        dice = before.find((await before.open(OpenRequest("dice", "me", choice=Choice(seed=4)))).handle, "me")
        drawn = [(await before.call(dice, "drawn", {})).observation.text for _ in range(2)]
        first = await before.call(found, "step", {"by": 2})
        with pytest.raises(InvalidArguments):
            await before.call(found, "step", {"by": "far"}, call_id="a")
        assert (await before.call(found, "step", {"by": 13})).is_error
        with pytest.raises(InvalidArguments) as told:
            await before.call(found, "step", {"by": "far"}, call_id="b")
    async with table(tmp_path, *specs) as after:
        # The state of `rng` is kept beside a snapshot.
        drawn += [(await after.call(dice, "drawn", {})).observation.text for _ in range(2)]
        # The answer to the last call was an error, and is one again.
        with pytest.raises(InvalidArguments, match=re.escape(str(told.value))):
            await after.call(found, "step", {"by": "far"}, call_id="b")
        with pytest.raises(InvalidRequest, match="another tool or other arguments"):
            await after.call(found, "step", {}, call_id="b")
        result = await after.call(found, "step", {"by": 1})
        info = await after.info(found.handle, "me")
        # Recording goes on in the same run.
        assert after.trajectories.archive is not None
        assert await after.trajectories.archive.count(EpisodeFilter()) == 2
    assert (result.step, info.steps, info.errors) == (3, 3, 3)
    rng = random.Random(4)
    assert drawn == [str(rng.random()) for _ in range(4)]
    rng.seed(4)
    at = rng.randrange(100) + 2 + rng.randrange(10)
    assert first.observation.text == f"at {at}"
    assert result.observation.text == f"at {at + 1 + rng.randrange(10)}"


@pytest.mark.slow
async def test_an_episode_that_was_reset_goes_on_in_its_latest_run_and_may_outlive_two_gateways(tmp_path: Path) -> None:
    spec = made(WALK)
    async with table(tmp_path, spec) as first:
        found = first.find((await first.open(OpenRequest("it", "me"))).handle, "me")
        await first.call(found, "step", {})
        opening = await first.reset(found, Choice(seed=9))
        await first.call(found, "step", {})
        other = await first.open(OpenRequest("it", "me"))
    for number, room in ((2, 2), (3, 1)):
        async with table(tmp_path, spec, max_episodes=room) as episodes:
            assert (await episodes.opening(found)).observation == opening.observation
            assert (await episodes.call(found, "step", {})).step == number
            assert (await episodes.info(found.handle, "me")).resets == 1
            # They go on within the limits, the oldest first.
            assert (await settled(episodes, other.handle)).status == ("running" if room > 1 else "failed")
            assert episodes.live == room


async def test_a_gateway_that_does_not_resume_ends_the_episodes_and_one_that_looks_does_not(tmp_path: Path) -> None:
    spec = made(WALK)
    async with table(tmp_path, spec) as before:
        handle = (await before.open(OpenRequest("it", "me"))).handle
    looking = open_archive(tmp_path)
    assert (await looking.episode(handle)).info.status == "running"
    async with table(tmp_path, spec, resumes=False) as after:
        assert after.live == 0
        assert (await RecordedEpisodes(after, after.trajectories.archive).info(handle, "me")).status == "failed"


class Slow(resumed_environments.Walk):
    """Its second reset waits."""

    resets: ClassVar[int] = 0
    waited_for: ClassVar[asyncio.Event]

    async def reset(self, *, seed: int, task: Task | None) -> str:
        Slow.resets += 1
        if Slow.resets > 1:
            await Slow.waited_for.wait()
        return super().reset(seed=seed, task=task)


@pytest.mark.slow
async def test_who_calls_before_an_episode_is_put_back_is_told_to_come_again(tmp_path: Path) -> None:
    Slow.resets, Slow.waited_for = 0, asyncio.Event()
    spec = made(Slow)
    async with table(tmp_path, spec) as before:
        found = before.find((await before.open(OpenRequest("it", "me"))).handle, "me")
    async with table(tmp_path, spec, wait_seconds=0.01) as between:
        with pytest.raises(Resuming, match="is being put back"):
            await between.call(found, "step", {})
        await anyio.wait_all_tasks_blocked()
        assert between.preparations["it"].reason == "1 episodes are being put back"
        assert not between.at_once(found)
        # It stops before all are put back. What is under way is finished, and the rest is left to the next one.
        asyncio.get_running_loop().call_later(0.05, Slow.waited_for.set)
        assert (await between.info(found.handle, "me")).status == "opening"
    async with table(tmp_path, spec) as after:
        assert (await after.call(found, "step", {})).step == 1
        assert after.preparations["it"].status == "ready"


@pytest.mark.parametrize("where", [None, "memory"])
def test_it_needs_a_store_that_stays(where: str | None) -> None:
    with pytest.raises(ConfigurationError, match="--resume-episodes needs --store"):
        StoreSettings(where, resume=True).open()


@pytest.mark.parametrize("where", [None, "memory"])
def test_a_cluster_without_a_store_shares_none(where: str | None):
    assert StoreSettings(where).open_shared() is None


def test_a_cluster_cannot_share_a_folder():
    with pytest.raises(ConfigurationError, match="with --runtime ray, --store takes the URL of a PostgreSQL database"):
        StoreSettings("/tmp/episodes").open_shared()


def test_the_secret_of_the_tokens_is_kept_from_others(tmp_path: Path) -> None:
    secret = kept_secret(tmp_path)
    (file,) = tmp_path.iterdir()
    assert (kept_secret(tmp_path), file.stat().st_mode & 0o777, len(secret)) == (secret, 0o600, 64)
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        kept_secret(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        kept_secret(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="needs the variable ENVPORT_SECRET"):
        StoreSettings("postgresql://me@there/it", resume=True).secret({})
