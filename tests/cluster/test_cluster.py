"""Episodes on a cluster: any replica plays any of them, and what is lost is said to be lost."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx2
import pytest
from bubblewrap import needs_bubblewrap
from command_line import envport, player, refused, text
from harness import Raw
from patience import patient
from replicas import FAR, FEATURES, SCORED, SECRET, Pair, Player, Replicas
from slow import slow

from envport import Client
from envport.errors import AtCapacity, EpisodeFailed, UnknownEpisode

pytestmark = pytest.mark.timeout(180)

# From a kill -9 of a node's processes to the word of its loss, with the settings of these tests.
NODE_LOST_SECONDS = patient(40.0)


def host_of(handle: str) -> str:
    return handle.removeprefix("ep_").partition(".")[0]


def opened(control: Client, count: int, **wanted: Any) -> list[str]:
    return [control.open("far", seed=seed, **wanted).episode_id for seed in range(count)]


def counted(raw: Raw) -> str:
    """Count one further; the answer comes as a stream where a tool might report progress."""
    line = next(line for line in raw.post("tools/call", {"name": "count"}).text.splitlines() if "jsonrpc" in line)
    return json.loads(line.removeprefix("data:"))["result"]["content"][0]["text"]


def test_a_replica_is_killed_under_load_and_nothing_is_lost_or_played_twice(pair: Pair, shared: Replicas):
    first, (second, third) = shared.start(*SCORED), pair
    calls, episodes = 60, 16
    with Client(first.url) as control:
        handles = opened(control, episodes)
    assert len({host_of(handle) for handle in handles}) == 2, "one host got all episodes"
    under_way = threading.Barrier(episodes + 1)

    def play(handle: str) -> tuple[list[str], int]:
        with closing(Player([first.url, second.url], handle)) as one:
            before = [one.text("count") for _ in range(calls // 4)]
            under_way.wait(patient(60))
            after = [one.text("count") for _ in range(calls - calls // 4)]
            return before + after, one.retries

    with ThreadPoolExecutor(episodes) as pool:
        plays = [pool.submit(play, handle) for handle in handles]
        under_way.wait(patient(60))
        first.process.kill()
        results = [one.result() for one in plays]
    assert [counts for counts, _ in results] == [[str(count) for count in range(1, calls + 1)]] * episodes
    assert sum(retries for _, retries in results) > 0
    with Client(third.url) as control:
        infos = [control.episode(handle) for handle in handles]
        assert [(info.status, info.steps) for info in infos] == [("running", calls)] * episodes
        assert len(control.trajectory(handles[0]).steps) == calls


async def test_both_eras_and_every_way_play_at_any_replica(pair: Pair):
    first, second = pair
    with Client(first.url) as control:
        handle = control.open("far", seed=5).episode_id
    address = f"/episodes/{handle}/mcp"
    for mode in ("auto", "legacy"):
        async with player(first.url + address, mode) as one, player(second.url + address, mode) as other:
            assert one.instructions == other.instructions
            assert one.instructions is not None
            assert one.instructions.endswith("seed 5")
            assert (await one.list_tools()).tools == (await other.list_tools()).tools
            counts = [int(text(await it.call_tool("count"))) for it in (one, other, one)]
            assert counts == list(range(counts[0], counts[0] + 3))
    # A client of the session era that was led to the other replica between two requests.
    with Raw(first.url + address, "legacy") as raw:
        before = int(counted(raw))
        raw.url = second.url + address
        assert int(counted(raw)) == before + 1
    shared = "/environments/far/mcp"
    async with player(first.url + shared) as one, player(second.url + shared) as other:
        started = await one.call_tool("start_episode", {"seed": 1})
        named = {"episode_id": started.meta["envport/episode_id"]}
        assert text(await other.call_tool("count", named)) == "1"
        assert text(await one.call_tool("count", named)) == "2"


@pytest.mark.slow
@needs_bubblewrap
def test_what_an_environment_has_beside_tools_is_there_at_any_replica(replicas: Replicas):
    """Labels, secrets, tools of the task, legal calls, what was prepared, and code of the player."""
    secret = "hush-hush-0123456789"
    first, second = (replicas.start(environments=(FEATURES,)) for _ in range(2))
    with Client(first.url) as one, Client(second.url) as other:
        page = other.tasks("features")
        shown = [[tool["name"] for tool in page.listings[it]] for it in page.fingerprints]
        assert shown == [["run", "look"], ["count", "look"]]
        runs, counts = (
            one.open("features", task=task, labels={"run": "far", "task": str(task)}, secrets={"KEY": secret})
            for task in (0, 1)
        )
        assert [[tool["name"] for tool in it.tools or ()] for it in (runs, counts)] == shown
        assert [it.episode_id for it in other.episodes(labels={"run": "far"})] == [counts.episode_id, runs.episode_id]
        assert [it.episode_id for it in other.episodes(labels={"task": "0"})] == [runs.episode_id]
        with closing(Player([second.url], runs.episode_id)) as player_of_runs:
            looked = json.loads(player_of_runs.text("look"))
            assert looked["secret"] == len(secret)
            # It was prepared in the host, and not in a gateway.
            assert looked["host"] not in (first.process.pid, second.process.pid)
            assert player_of_runs.text("run", code="print(6 * 7)") == "42\n"
            with pytest.raises(AssertionError, match="count is not one of this episode's tools: run, look"):
                player_of_runs.call("count", up_to=1)
        with closing(Player([second.url], counts.episode_id)) as player_of_counts:
            assert other.legal_calls(counts.episode_id) == [("count", {"up_to": 1})]
            assert player_of_counts.text("count", up_to=1) == "1"
            assert one.legal_calls(counts.episode_id) == [("count", {"up_to": 2})]
        said = other.trajectory(runs.episode_id).model_dump_json() + httpx2.get(f"{first.url}/environments").text
        assert secret not in said + first.log + second.log


async def test_progress_reaches_the_client(pair: Pair):
    served, _ = pair
    with Client(served.url) as control:
        opened_at = control.open("far").mcp_url
    for mode in ("auto", "legacy"):
        reports: list[Any] = []

        async def note(done: float, total: float | None, message: str | None, reports: list[Any] = reports) -> None:
            reports.append((done, total, message))

        async with player(opened_at, mode) as one:
            result = await one.call_tool("report", progress_callback=note)
            assert text(result) == "reported"
        assert reports == [(0, 3, "part 0"), (1, 3, "part 1"), (2, 3, "part 2")]


def test_a_crash_ends_its_episode_alone(pair: Pair):
    served, _ = pair
    with Client(served.url) as control:
        crashed, *others = opened(control, 4)
        with closing(Player([served.url], crashed)) as one:
            result = one.call("crash")
            assert result["_meta"]["envport/error"] == "episode_failed"
            assert one.call("count")["_meta"]["envport/error"] == "episode_over"
        info = control.episode(crashed)
        assert info.outcome is not None
        assert (info.outcome.reason, info.outcome.lost, info.reward) == ("worker_lost", True, None)
        assert "SIGABRT" in info.outcome.message
        for handle in others:
            with closing(Player([served.url], handle)) as one:
                assert one.text("count") == "1"


def test_a_host_that_dies_fails_its_episodes_and_comes_back(pair: Pair):
    served, _ = pair
    with Client(served.url) as control:
        handles = opened(control, 8)
        victim = host_of(handles[0])
        lost = [handle for handle in handles if host_of(handle) == victim]
        with closing(Player([served.url], handles[0])) as one:
            os.kill(one.where()["host"], signal.SIGKILL)
        began = time.monotonic()
        for handle in lost:
            with closing(Player([served.url], handle)) as one:
                assert one.call("count")["_meta"]["envport/error"] == "episode_failed"
            info = control.episode(handle)
            assert info.outcome is not None
            assert (info.status, info.outcome.reason, info.outcome.fault) == ("failed", "worker_lost", "infrastructure")
            assert (info.environment, info.reward, control.close_episode(handle).status) == ("far", None, "failed")
            with pytest.raises(EpisodeFailed, match="machine that ran the episode was lost"):
                control.reset(handle)
        assert time.monotonic() - began < NODE_LOST_SECONDS
        for handle in set(handles) - set(lost):
            with closing(Player([served.url], handle)) as one:
                assert one.text("count") == "1"
        while victim not in {host_of(handle) for handle in opened(control, 4)}:
            assert time.monotonic() - began < patient(60), "the host did not come back"


@pytest.mark.slow
def test_a_node_that_is_lost_ends_its_episodes_in_bounded_time(two_nodes: Any, pair: Pair, shared: Replicas):
    node = two_nodes.add_node(num_cpus=1, resources={"lost": 1})
    gone = node.node_id[:16]
    served, _ = pair
    with Client(served.url) as control:
        began = time.monotonic()
        while not (lost := [handle for handle in opened(control, 4) if host_of(handle) == gone]):
            assert time.monotonic() - began < patient(60), "the node got no episodes"
        two_nodes.remove_node(node, allow_graceful=False)
        began = time.monotonic()
        with closing(Player([served.url], lost[0])) as one:
            # What runs on a node outlives it for a moment.
            while (error := one.call("count")["_meta"].get("envport/error")) is None:
                assert time.monotonic() - began < NODE_LOST_SECONDS
            assert error == "episode_failed"
        info = control.episode(lost[0])
        assert (info.status, info.outcome and info.outcome.lost) == ("failed", True)
        assert time.monotonic() - began < NODE_LOST_SECONDS
        assert {host_of(handle) for handle in opened(control, 8)}.isdisjoint({gone})
    # A replica that has never met the host says the same, and keeps the secret of whose it was.
    other = shared.start(*SCORED)
    with Client(other.url) as control:
        assert control.episode(lost[0]) == info


def test_handles_are_opaque_and_belong_to_their_principal(shared: Replicas, tmp_path: Any):
    tokens = tmp_path / "tokens.toml"
    tables = [
        f'[[tokens]]\nname = "{name}"\nscopes = ["control", "play"]\ntoken = "{name}-token-0123456789"\n'
        for name in ("mine", "yours")
    ]
    tokens.write_text("\n".join(tables))
    first, second = (shared.start(*SCORED, "--token-file", str(tokens)) for _ in range(2))
    mine, yours = (
        Client(it.url, token=f"{name}-token-0123456789") for it, name in ((first, "mine"), (second, "yours"))
    )
    with mine, yours:
        opened_there = mine.open("far", mint_token=True)
        handle = opened_there.episode_id
        forged = [handle[:-1] + ("a" if handle[-1] != "a" else "b"), "ep_unknown", handle.replace("ep_", "ep_0")]
        for wrong in [*forged, "ep_" + "0" * 16 + handle[19:]]:
            with pytest.raises(UnknownEpisode):
                mine.episode(wrong)
        with pytest.raises(UnknownEpisode):
            yours.episode(handle)
        # A token that one replica minted opens the episode at the other, and nothing else.
        minted = {"Authorization": f"Bearer {opened_there.token}"}
        with Raw(f"{second.url}/episodes/{handle}/mcp", "modern", minted) as raw:
            assert counted(raw) == "1"
        with Raw(f"{second.url}/episodes/{mine.open('far').episode_id}/mcp", "modern", minted) as raw:
            assert raw.post("tools/call", {"name": "count"}).status_code == 403


def test_an_episode_is_scored_where_it_runs_and_finished_at_any_replica(pair: Pair):
    first, second = pair
    with Client(first.url) as control, Client(second.url) as other:
        assert control.environment("far").scored
        (handle,) = opened(control, 1)
        with closing(Player([first.url], handle)) as one:
            assert [one.text("count") for _ in range(2)] == ["1", "2"]
        states = [control.finish(handle), other.finish(handle), other.episode(handle)]
    assert [(state.status, state.outcome and state.outcome.reason) for state in states] == 3 * [
        ("truncated", "finished")
    ]
    assert [(state.reward, state.score) for state in states] == 3 * [(22.0, 22.0)]


def test_past_the_capacity_of_all_hosts_requests_are_refused(replicas: Replicas):
    served = replicas.start("--max-episodes", "2", "--wait-seconds", "0")
    with Client(served.url) as control:
        handles = opened(control, 4)
        with pytest.raises(AtCapacity, match="No room for another episode"):
            control.open("far")
        assert control.close_episode(handles[0]).status == "closed"
        deadline = time.monotonic() + patient(30)
        while True:
            try:
                control.open("far")
                break
            except AtCapacity:
                assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_host_without_room_for_a_principal_delays_nobody_and_says_which_limit_it_was(replicas: Replicas):
    wait = patient(6.0)
    served = replicas.start("--max-episodes-per-principal", "1", "--wait-seconds", str(wait))
    with Client(served.url) as control:
        began = time.monotonic()
        # One on each host: whichever is asked first for the second one refuses it at once.
        opened(control, 2)
        assert time.monotonic() - began < wait
        with pytest.raises(AtCapacity, match="your 1 episodes are in use"):
            control.open("far")
        # It has waited at one host, not at each of them in turn.
        assert time.monotonic() - began < 2.5 * wait
    assert 'envport_admission_refusals_total{limit="principal"} 1.0' in httpx2.get(f"{served.url}/metrics").text


@pytest.mark.slow
def test_a_replica_that_is_stopped_waits_for_no_episode_and_loses_none(pair: Pair, shared: Replicas):
    one, (other, _) = shared.start(*SCORED, "--drain-seconds", "600"), pair
    with Client(one.url) as control:
        opened = control.open("far")
    assert one.stop() == 0
    ready = httpx2.get(f"{other.url}/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    player = Player([other.url], opened.episode_id)
    player.where()
    player.close()
    with Client(other.url) as control:
        assert control.episode(opened.episode_id).status == "running"


@pytest.mark.slow
def test_replicas_have_to_agree(shared: Replicas):
    """Those that run share a secret that was given; one that was given none takes theirs."""
    said = refused("serve", "--port", "0", "echo", *shared.words)
    assert "environment 'far' is served there only; environment 'echo' is served here only" in said

    other = ["--max-episodes", "7", *SCORED]
    said = refused("serve", "--port", "0", FAR, *shared.words, *other, ENVPORT_SECRET="x" * 32)
    assert "limit max_episodes is 10000 there and 7 here; ENVPORT_SECRET is another one" in said
    assert SECRET not in said
    shared.start(*SCORED)


@pytest.mark.slow
def test_a_gateway_is_ended_and_another_one_may_follow(replicas: Replicas):
    served = replicas.start()
    with Client(served.url) as control:
        handle = control.open("far").episode_id
        with closing(Player([served.url], handle)) as one:
            host = one.where()["host"]
    assert served.stop() == 0
    where = replicas.words[2:]
    assert "1 of 10000 episodes" in envport("cluster", "status", *where).stdout
    assert "Ended 2 hosts." in envport("cluster", "stop", *where).stdout
    with pytest.raises(ProcessLookupError):
        os.kill(host, 0)
    assert "No gateway runs in the namespace" in envport("cluster", "status", *where).stdout
    replicas.start(environments=("echo",))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--runtime", "ray"], "--runtime ray needs --ray-address: HOST:PORT, auto, or local to try it out"),
        (["--ray-address", "auto"], "--ray-address and --ray-resource are for --runtime ray"),
        (["--runtime", "ray", "--ray-address", "127.0.0.1:1"], "there is no Ray cluster at '127.0.0.1:1'"),
        *slow([(["--runtime", "ray", "--ray-address", "nonsense"], "there is no Ray cluster at 'nonsense'")]),
    ],
)
def test_a_cluster_that_is_not_there_is_said_at_once(words: list[str], complaint: str):
    assert complaint in refused("serve", "--port", "0", "echo", *words)
