"""Copies of episodes: both go on apart, from any call, also of episodes that have ended."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import resumed_environments
from command_line import envport_here
from harness import Raw, RunningGateway, running
from resumed_environments import rolled

from envport import Client
from envport.access import Access, Principal
from envport.checker import check_environment
from envport.definition import EnvironmentDefinition
from envport.episodes import Limits
from envport.errors import AtCapacity, EpisodeFailed, InvalidRequest, UnknownEpisode
from envport.registry import load
from envport.trajectories.archive import StoredEpisode
from envport.trajectories.recorder import DatabaseTrajectories
from envport.types import OpenedEpisode

SPECS = [
    load("catch?rows=5&columns=5"),
    *(
        EnvironmentDefinition(cls.__name__.lower(), cls)
        for cls in (
            resumed_environments.Walk,
            resumed_environments.Dice,
            resumed_environments.DiceInThread,
            resumed_environments.DiceInProcess,
            resumed_environments.AsyncDice,
            resumed_environments.Coin,
            resumed_environments.Liar,
        )
    ),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    # Ended episodes are only in the store at once.
    trajectories = DatabaseTrajectories(tmp_path_factory.mktemp("store"))
    with running(*SPECS, trajectories=trajectories, limits=Limits(max_ended=1)) as gateway:
        yield gateway


@pytest.fixture
def control(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url) as client:
        yield client


def call(opened: OpenedEpisode, tool: str, **arguments: Any) -> tuple[str, float | None]:
    """Call a tool over MCP."""
    with Raw(opened.mcp_url, "modern") as player:
        result = player.post("tools/call", {"name": tool, "arguments": arguments}).json()["result"]
    assert not result["isError"], result
    return result["content"][0]["text"], result["_meta"].get("envport/reward")


def stored(gateway: RunningGateway, handle: str) -> StoredEpisode:
    archive = gateway.gateway.archive
    assert archive is not None
    return gateway.run(lambda: archive.episode(handle))


def test_a_search_tries_each_move_in_a_copy(gateway: RunningGateway, control: Client) -> None:
    """Whoever sees no further than the ends of branches catches every ball."""
    root = control.open("catch", seed=0, reward_in_meta=True, labels={"run": "search"})
    rewards: dict[tuple[str, ...], float | None] = {}
    layer: dict[tuple[str, ...], OpenedEpisode] = {(): root}
    for _ in range(4):
        nodes: dict[tuple[str, ...], OpenedEpisode] = {}
        for path, node in layer.items():
            for way in ("left", "right"):
                copy = nodes[*path, way] = control.fork(node.episode_id)
                _, rewards[*path, way] = call(copy, "move", direction=way)
        layer = nodes
    assert {rewards[path] for path in layer} == {1.0, -1.0}
    info = control.episode(root.episode_id)
    assert (info.status, info.steps) == ("running", 0)
    assert len(control.episodes(labels={"run": "search"}, limit=1000)) == 1 + 2 + 4 + 8 + 16
    one = layer["left", "left", "left", "left"]
    trajectory = control.trajectory(one.episode_id)
    assert [step.arguments["direction"] for step in trajectory.steps] == ["left"] * 4
    assert (trajectory.episode.seed, trajectory.episode.task) == (0, info.task)


def test_a_copy_begins_with_the_calls_before_it_and_goes_on_apart(gateway: RunningGateway, control: Client) -> None:
    root = control.open("walk", seed=5, reward_in_meta=True)
    seen = [call(root, "step", by=by) for by in range(4)]
    copy = control.fork(root.episode_id, 2, labels={"sample": "b"}, mint_token=True)
    assert copy.observation.text == seen[1][0]
    assert copy.token is not None
    # The same call as in the episode gives the same, and another one something else.
    assert call(copy, "step", by=2) == seen[2]
    assert call(copy, "step", by=70)[0] != seen[3][0]
    info = control.episode(copy.episode_id)
    assert (info.steps, info.labels, info.seed) == (4, {"sample": "b"}, 5)
    assert info.rewards[:3] == [reward for _, reward in seen[:3]]
    assert [step.index for step in control.trajectory(copy.episode_id).steps] == [1, 2, 3, 4]
    assert (stored(gateway, copy.episode_id).forked_from, stored(gateway, copy.episode_id).forked_at) == (
        root.episode_id,
        2,
    )
    assert control.episode(root.episode_id).steps == 4
    # A copy of a copy, from before the first call.
    assert call(control.fork(copy.episode_id, 0), "step", by=0) == seen[0]
    # Once it is reset, it is no copy any more.
    control.reset(copy.episode_id)
    assert stored(gateway, copy.episode_id).forked_from is None


@pytest.mark.parametrize("name", ["dice", "diceinthread", "diceinprocess", "asyncdice"])
def test_a_live_episode_is_copied_by_its_snapshot(control: Client, name: str) -> None:
    root = control.open(name, reward_in_meta=True)
    state = int(call(root, "roll")[0])
    copy = control.fork(root.episode_id)
    drawn = call(root, "drawn")
    assert call(copy, "drawn") == drawn
    for opened in (copy, root, copy):
        call(opened, "drawn")
    assert [call(opened, "roll")[0] for opened in (root, copy)] == [str(rolled(state))] * 2
    assert control.fork(root.episode_id, 4).observation.text == str(rolled(state))
    with pytest.raises(InvalidRequest, match="only a live episode can be copied, and only as it is now"):
        control.fork(root.episode_id, 1)
    control.close_episode(root.episode_id)
    with pytest.raises(InvalidRequest, match="only a live episode can be copied"):
        control.fork(root.episode_id)


def test_an_episode_that_has_ended_is_copied_before_its_end(control: Client) -> None:
    root = control.open("catch", seed=1, reward_in_meta=True)
    seen = [call(root, "move", direction="left") for _ in range(4)]
    closed = control.open("walk", seed=2)
    at = call(closed, "step", by=1)
    control.close_episode(closed.episode_id)
    # Only the last one that ended is remembered, so the first is in the store alone.
    with pytest.raises(InvalidRequest, match="Call 4 ended the episode, so a copy would have ended too: choose a st"):
        control.fork(root.episode_id)
    copy = control.fork(root.episode_id, 3)
    assert call(copy, "move", direction="left") == seen[3]
    assert control.episode(copy.episode_id).status == "terminated"
    # One that was closed goes on in its copy.
    assert control.fork(closed.episode_id).observation.text == at[0]


def test_what_cannot_be_copied_is_refused_with_the_reason(control: Client) -> None:
    coin = control.open("coin")
    call(coin, "flip")
    with pytest.raises(InvalidRequest, match=r"at call 1: its environment 'coin' has neither snapshot\(\) and restore"):
        control.fork(coin.episode_id)
    for step in (2, -1):
        with pytest.raises(InvalidRequest, match=f"step is {step}; the episode has 1 calls, so it has to be from 0 to"):
            control.fork(coin.episode_id, step)
    liar = control.open("liar")
    call(liar, "flip")
    before = control.episodes(limit=1000)
    with pytest.raises(EpisodeFailed, match=r"could not be made: call 1 \(flip\) gave another observation") as failed:
        control.fork(liar.episode_id)
    assert failed.value.fault == "environment"
    assert control.episode(liar.episode_id).status == "running"
    (copy,) = {info.episode_id for info in control.episodes(limit=1000)} - {info.episode_id for info in before}
    assert control.episode(copy).status == "failed"
    with pytest.raises(UnknownEpisode):
        control.fork("ep_there_is_none")
    secret = control.open("walk", secrets={"KEY": "hunter2"})
    # A live episode has its secrets at hand, and so has its copy.
    assert control.fork(secret.episode_id).observation == secret.observation


def test_a_copy_is_its_owners_and_within_the_limits() -> None:
    scopes = frozenset({"control", "play"})
    tokens = [(token.encode(), name) for name, token in (("me", "m" * 20), ("you", "y" * 20))]
    access = Access([(_digest(token), Principal(name, scopes)) for token, name in tokens])
    limits = Limits(max_episodes_per_principal=2, wait_seconds=0)
    with (
        running(EnvironmentDefinition("walk", resumed_environments.Walk), access=access, limits=limits) as gateway,
        Client(gateway.url, token="m" * 20) as mine,
        Client(gateway.url, token="y" * 20) as yours,
    ):
        root = mine.open("walk")
        with pytest.raises(UnknownEpisode) as unknown:
            yours.fork(root.episode_id)
        with pytest.raises(UnknownEpisode) as never:
            yours.fork("ep_there_is_none")
        assert str(unknown.value) == str(never.value)
        copy = mine.fork(root.episode_id)
        with pytest.raises(AtCapacity, match="your 2 episodes"):
            mine.fork(root.episode_id)
        with pytest.raises(UnknownEpisode):
            yours.episode(copy.episode_id)
        mine.close_episode(copy.episode_id)
        # Nothing of one that has ended is kept here but its latest calls.
        with pytest.raises(InvalidRequest, match="Only live episodes can be copied here"):
            mine.fork(copy.episode_id)


def test_the_command_opens_a_copy(gateway: RunningGateway, control: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENVPORT_TOKEN", raising=False)
    root = control.open("walk", seed=3)
    seen = call(root, "step", by=1)
    printed = envport_here("episodes", "fork", root.episode_id, "--url", gateway.url, "--json").stdout
    copy = OpenedEpisode.model_validate_json(printed)
    assert copy.observation.text == seen[0]
    again = ("episodes", "fork", root.episode_id, "--step", "0", "--token-for-agent", "--url", gateway.url)
    shown = envport_here(*again).stdout
    (token,) = re.findall(r"^token +(epk_\S+)$", shown, flags=re.MULTILINE)
    assert f"Bearer {token}" in shown.replace("\\", "")


def test_the_page_can_be_followed(control: Client) -> None:
    page = Path(__file__).parents[2] / "gateway/envport/episodes/README.md"
    environment, search = re.findall(r"^```python\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(environment, names)
    check_environment(names["Dice"], seeds=(0,), another_process=False)
    exec(search, names)
    root = control.open("catch", seed=1, reward_in_meta=True, labels={"run": "page"})
    for _ in range(3):
        call(root, "move", direction="stay")
    best = names["best_first_move"](control, root.episode_id, lambda copy, move: call(copy, "move", direction=move)[1])
    rewards = {
        step.arguments["direction"]: step.reward
        for info in control.episodes(labels={"run": "page"})
        if info.episode_id != root.episode_id
        for step in control.trajectory(info.episode_id).steps[3:]
    }
    assert len(rewards) == 3
    assert rewards[best] == max(reward for reward in rewards.values() if reward is not None)


def _digest(token: bytes) -> bytes:

    return hashlib.sha256(token).digest()
