"""A resources server of NeMo Gym in front of our environments, played by an agent written from its documentation."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

import httpx2
import pytest
from command_line import command
from environments import Gate
from harness import RunningGateway, connect, running
from nemo_gym_agent import NemoGymAgent, scripted
from patience import patient

from envport import AsyncClient, Client, Environment, Step, Task, ToolError, tool
from envport.access import Access, Principal, Scope
from envport.app import Gateway
from envport.blocks import text_of
from envport.cli.serve_options import SurfaceOptions
from envport.episodes import Limits
from envport.errors import ConfigurationError, MissingExtra
from envport.registry import EnvironmentDefinition, load
from envport.surfaces import installed_surfaces
from envport.tools.sampling import ArgumentSampler
from envport_bridges.audit.catalogue import ENTRIES
from envport_bridges.nemo_gym import nemo_gym_root_surface, nemo_gym_surface
from envport_bridges.nemo_gym.rows import RowsWanted, rows_of
from envport_bridges.rollouts import AsyncRollouts, Rollouts

SURFACES = {"nemo_gym": nemo_gym_surface}
TRAINER, OTHER, PLAYER = (f"{name}-0123456789abcdef" for name in ("trainer", "other", "player"))
SCOPES: dict[str, frozenset[Scope]] = {
    TRAINER: frozenset({"control", "play"}),
    OTHER: frozenset({"control", "play"}),
    PLAYER: frozenset({"play"}),
}
COOKIE = "envport-nemo-gym"
MOVES = [("move", {"direction": direction}) for direction in ("left", "right", "stay") * 3]


class Doomed(Environment):
    """Breaks when it is told to; its final state is scored."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self.seed = seed
        if seed == 13:
            raise RuntimeError("the secret cause")
        return "whole"

    @tool
    def break_it(self) -> Step[str]:
        """Break."""
        raise RuntimeError("the secret cause")

    @tool
    def touch(self, hard: bool = False) -> Step[str]:
        """Touch it.

        Args:
            hard: Whether it refuses.
        """
        if hard:
            raise ToolError("not so hard")
        return Step("touched", reward=0.25)

    def score(self) -> float:
        if self.seed == 14:
            raise RuntimeError("the secret cause")
        return 2.0


class Slow(Environment):
    """Begins when a test lets it."""

    entered: ClassVar[threading.Event]
    opened: ClassVar[threading.Event]
    runtime = "thread"

    def reset(self, *, seed: int, task: Task | None) -> None:
        type(self).entered.set()
        assert type(self).opened.wait(patient(30))

    @tool
    def nothing(self) -> None:
        """Do nothing."""


class Judge(Environment):
    """Has a tool whose name is a path of the protocol."""

    def reset(self, *, seed: int, task: Task | None) -> None:
        pass

    @tool
    def verify(self) -> Step[str]:
        """Verify."""
        return Step("verified", reward=3.0)


def _defined(cls: type[Environment]) -> EnvironmentDefinition:
    return EnvironmentDefinition(cls.__name__.lower(), cls)


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    served = (load("catch"), load("counter"), *map(_defined, (Doomed, Judge)))
    with running(*served, environment_surfaces=SURFACES, root_surface=nemo_gym_root_surface) as serving:
        yield serving


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningGateway]:
    tokens = [
        (hashlib.sha256(token.encode()).digest(), Principal(token[:5], scopes)) for token, scopes in SCOPES.items()
    ]
    with running(load("catch"), access=Access(tokens), environment_surfaces=SURFACES) as serving:
        yield serving


def agent(gateway: RunningGateway, environment: str, token: str | None = None) -> NemoGymAgent:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return NemoGymAgent(f"{gateway.url}/environments/{environment}/nemo_gym", headers)


def row(**choice: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "Play."}], "tools": []}
    return {"responses_create_params": params, "verifier_metadata": {"envport": choice, "other": 1}, "mine": [None]}


async def rows(reference: str, **wanted: Any) -> list[dict[str, Any]]:
    return [made async for made in rows_of(await AsyncRollouts.connect(reference), RowsWanted(**wanted))]


def told(answer: httpx2.Response) -> str:
    return answer.json()["error"]["message"]


QUICK = frozenset({"echo", "counter", "catch", "maze", "showcase", "sudoku?size=4&blanks=6"})
CALLS = 12


@pytest.mark.parametrize(
    "reference",
    [pytest.param(entry.reference, marks=[] if entry.reference in QUICK else [pytest.mark.slow]) for entry in ENTRIES],
)
async def test_every_environment_of_the_catalogue_gives_what_it_gives_elsewhere(reference: str):
    try:
        definition = load(reference)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    [first] = await rows(reference, rows=1, seed=11)
    choice = first["verifier_metadata"]["envport"]
    chosen = {name: choice[name] for name in ("split", "task", "seed") if name in choice}
    rng, calls, shown, results = Random(7), [], [], []
    with Rollouts(reference).open(**chosen) as rollout:
        assert [json.dumps(it["parameters"]) for it in first["responses_create_params"]["tools"]] == [
            json.dumps(it["inputSchema"]) for it in rollout.tools
        ]
        while rollout.outcome is None and len(calls) < CALLS:
            listed = rng.choice(rollout.tools)
            arguments = ArgumentSampler(listed["inputSchema"]).sample(rng)
            reply = rollout.call(listed["name"], arguments)
            calls.append((listed["name"], arguments))
            shown.append(("\n".join(map(text_of, reply.content)), reply.is_error))
            results.append((list(reply.content), reply.is_error))
        told_there, reward = rollout.observation, rollout.finish() or 0.0
    seen = json.dumps(first["responses_create_params"]["input"])
    assert all(json.dumps(block["text"])[1:-1] in seen for block in told_there.content if block["type"] == "text")
    assert seen.count("data:image") == sum(block["type"] == "image" for block in told_there.content)
    with running(definition, environment_surfaces=SURFACES) as gateway:
        by_post = agent(gateway, definition.name)
        verified = by_post.run(first, scripted(calls))
        assert [(answer.text, not answer.is_success) for answer in by_post.answers] == shown
        over_mcp = agent(gateway, definition.name)
        address = over_mcp.seed(first)["mcp"]
        assert address["url_path"] == "/mcp"
        async with connect(f"{over_mcp.url}{address['url_path']}", "modern", address["headers"]) as client:
            for (name, arguments), (content, refused) in zip(calls, results, strict=True):
                result = await client.call_tool(name, arguments)
                blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
                assert (blocks, result.is_error) == (content, refused)
        for answer in (verified, over_mcp.verify(first).raise_for_status().json()):
            assert answer["reward"] == reward
            assert {key: answer[key] for key in first} == first


def test_an_agent_plays_one_episode_and_is_told_its_reward_as_often_as_it_asks(gateway: RunningGateway):
    rollout = agent(gateway, "catch")
    begun = row(split="train", task=3, seed=7)
    verified = rollout.run(begun, scripted(MOVES))
    assert {key: verified[key] for key in begun} == begun
    assert verified["response"]["output"] == rollout.outputs
    assert (verified["outcome"], verified["steps"], verified["tool_errors"]) == ("terminated", 9, 0)
    with Rollouts("catch").open(split="train", task=3, seed=7) as other:
        texts = [other.call(*made).content[0]["text"] for made in MOVES]
        assert [item["output"] for item in rollout.outputs if "output" in item] == texts
        assert verified["reward"] == other.finish() != 0
    # A client that lost the answer asks again.
    assert rollout.verify(begun).json() == verified
    late = rollout.post("/move", {"direction": "left"})
    assert (late.status_code, "over" in late.text) == (409, True)
    assert rollout.verify(begun).json()["reward"] == verified["reward"]
    assert not [info for info in _episodes(gateway) if info.status == "running"]


def test_what_is_wrong_with_a_call_is_told_to_the_model_and_costs_nothing(gateway: RunningGateway):
    rollout = agent(gateway, "doomed")
    begun = row(seed=1)
    calls = [("touch", {"hard": "very"}), ("fly", {}), ("touch", [1]), ("touch", {"hard": True}), ("touch", {})]
    verified = rollout.run(begun, scripted(calls))
    assert [answer.status_code for answer in rollout.answers] == [422, 422, 422, 400, 200]
    wrong, unknown, _, refused, fine = (answer.text for answer in rollout.answers)
    assert ("hard" in wrong, "fly" in unknown, refused, fine) == (True, True, "not so hard", "touched")
    assert all(answer.headers["content-type"].startswith("text/plain") for answer in rollout.answers)
    assert (verified["reward"], verified["outcome"]) == (2.25, "finished")


WRONG = [
    (b"{", 422, "has to be JSON"),
    (b"[]", 422, "has to be a JSON object"),
    (b'{"responses_create_params": {}}', 422, "verifier_metadata"),
    (b'{"responses_create_params": {}, "verifier_metadata": {}}', 422, "verifier_metadata.envport"),
    (row(sede=1), 422, "verifier_metadata.envport.sede"),
    (row(seed="abc"), 422, "verifier_metadata.envport.seed"),
    (row(seed=-1), 422, "seed is -1"),
    (row(split="none"), 404, "has no split 'none'"),
    (row(split="train", task=10_000), 404, "has no task 10000"),
    (row(split="train", task=3, task_id="another"), 422, "make the rows again"),
    (row(fingerprint="0" * 64), 422, "make the rows again"),
    (row(environment="counter"), 422, "environment 'counter', and not 'catch'"),
    (row(on_loss="zero"), 422, "'error' or 'mask'"),
    (row(labels={"": "x"}), 422, "cannot name a label"),
    (row() | {"responses_create_params": {"tools": [{"type": "web_search"}]}}, 422, "tools"),
    (row() | {"responses_create_params": {"tools": [{"type": "function", "name": "fly"}]}}, 422, "'fly' is not one"),
]


def test_a_row_that_cannot_begin_an_episode_is_refused_and_begins_none(gateway: RunningGateway):
    before = len(_episodes(gateway))
    url = f"{gateway.url}/environments/catch/nemo_gym/seed_session"
    for body, status, message in WRONG:
        answer = httpx2.post(url, content=body if isinstance(body, bytes) else json.dumps(body))
        assert (answer.status_code, message in told(answer)) == (status, True), (body, answer.text)
        assert "set-cookie" not in answer.headers
    assert httpx2.post(f"{gateway.url}/environments/no/nemo_gym/seed_session", json=row()).status_code == 404
    assert len(_episodes(gateway)) == before


async def test_a_stale_row_is_refused(gateway: RunningGateway):
    [made] = await rows("catch", rows=1)
    made["responses_create_params"]["tools"][0]["parameters"]["properties"]["direction"]["enum"] = ["up"]
    answer = agent(gateway, "catch").post("/seed_session", made)
    assert (answer.status_code, "'move' is not one of this task's tools" in told(answer)) == (422, True)
    [made] = await rows("catch", rows=1)
    agent(gateway, "catch").run(made, scripted([]))


def test_a_session_is_needed_and_is_its_owners_alone(guarded: RunningGateway):
    trainer = agent(guarded, "catch", TRAINER)
    assert told(trainer.post("/verify", row(seed=1))).startswith(f"there is no cookie {COOKIE}")
    assert trainer.post("/move", {"direction": "left"}).status_code == 422
    trainer.seed(row(seed=1))
    cookies = trainer.cookies
    other = agent(guarded, "catch", OTHER)
    for value in (cookies[COOKIE], "ep_unknown.x", "x"):
        other.cookies = {COOKIE: value}
        assert other.post("/move", {"direction": "left"}).status_code == 404
        other.cookies = {COOKIE: value}
        assert other.verify(row(seed=1)).status_code in (404, 422)
    elsewhere = NemoGymAgent(f"{guarded.url}/environments/other/nemo_gym", trainer.headers, dict(cookies))
    assert elsewhere.post("/move", {"direction": "left"}).status_code == 404
    assert trainer.verify(row(seed=1)).json()["steps"] == 0


@pytest.mark.parametrize(("token", "status"), [(PLAYER, 403), ("episode", 403), ("wrong-token-0123456789", 401)])
def test_it_is_for_trainers_alone(guarded: RunningGateway, token: str, status: int):
    trainer = agent(guarded, "catch", TRAINER)
    address = trainer.seed(row(seed=1))["mcp"]
    given = address["headers"]["Authorization"].partition(" ")[2] if token == "episode" else token
    intruder = agent(guarded, "catch", given)
    for path in ("/seed_session", "/verify", "/move", "/aggregate_metrics"):
        intruder.cookies = dict(trainer.cookies)
        assert intruder.post(path, row(seed=1)).status_code == status
    trainer.verify(row(seed=1)).raise_for_status()


async def test_what_an_agent_is_given_plays_its_episode_over_mcp_and_nothing_else(guarded: RunningGateway):
    trainer = agent(guarded, "catch", TRAINER)
    begun, other = row(seed=1), agent(guarded, "catch", TRAINER)
    address, foreign = trainer.seed(begun)["mcp"], other.seed(begun)["episode_id"]
    url, headers = f"{trainer.url}{address['url_path']}", address["headers"]
    assert (address["server_name"], address["transport"]) == ("catch", "http")
    for era in ("modern", "legacy"):
        async with connect(url, era, headers) as client:
            listed = (await client.list_tools()).tools
            assert [json.dumps(it.input_schema) for it in listed] == [
                json.dumps(it["inputSchema"]) for it in load("catch").listing
            ]
            result = await client.call_tool("move", {"direction": "left"})
            assert not [key for key in result.meta or {} if "reward" in key]
    stranger = httpx2.post(url, headers=headers | {"Envport-Episode": foreign}, json={})
    assert stranger.status_code == 403
    handle = headers["Envport-Episode"]
    for path in (f"/episodes/{handle}", f"/episodes/{handle}/finish", "/episodes"):
        assert httpx2.post(f"{guarded.url}{path}", headers=headers, json={}).status_code == 403
    # Without the header that names an episode, it is no MCP address.
    assert httpx2.post(url, headers=trainer.headers, json={}).status_code == 422
    assert trainer.verify(begun).json()["steps"] == 2
    other.verify(begun).raise_for_status()


def test_a_model_that_names_a_path_of_the_server_reaches_no_reward_and_no_reset(gateway: RunningGateway):
    begun = row(environment="catch", split="train", task=3, seed=7)
    for base in (gateway.url, f"{gateway.url}/environments/catch/nemo_gym"):
        rollout = NemoGymAgent(base)
        handle = rollout.seed(begun)["episode_id"]
        guesses = [
            ("verify", row() | {"response": {}}),
            ("verify", row(environment="catch", seed=7) | {"response": {}}),
            ("seed_session", row(environment="catch", seed=7)),
            *(
                [
                    ("episodes", {"environment": "catch"}),
                    (f"episodes/{handle}/finish", {}),
                    (f"episodes/{handle}/reset", {}),
                    ("environments/catch/openenv/reset", {}),
                    ("mcp", {}),
                    ("metrics", {}),
                    ("../environments/catch/nemo_gym/verify", row() | {"response": {}}),
                ]
                if base == gateway.url
                else []
            ),
        ]
        rollout.play(begun, scripted([MOVES[0], *guesses, *MOVES[1:]]))
        first, *refused = rollout.answers[: len(guesses) + 1]
        assert first.status_code == 200
        for answer in refused:
            assert answer.status_code == 422, answer.text
            assert "reward" not in answer.text
        verified = rollout.verify(begun).json()
        assert (verified["episode_id"], verified["steps"], abs(verified["reward"])) == (handle, 9, 1)


def test_a_tool_with_the_name_of_a_path_is_played_over_mcp_alone(gateway: RunningGateway):
    listed = load("counter").listing[0]["inputSchema"] | {"properties": {}, "required": []}
    with_tools = row() | {
        "responses_create_params": {"tools": [{"type": "function", "name": "verify", "parameters": listed}]}
    }
    answer = agent(gateway, "judge").post("/seed_session", with_tools)
    assert (answer.status_code, "--without-tools" in told(answer)) == (422, True)
    rollout = agent(gateway, "judge")
    address = rollout.seed(row(seed=1))["mcp"]

    async def play() -> None:
        async with connect(f"{rollout.url}/mcp", "modern", address["headers"]) as client:
            assert not (await client.call_tool("verify", {})).is_error

    asyncio.run(play())
    assert rollout.verify(row(seed=1)).json()["reward"] == 3.0


@pytest.mark.parametrize(("seed", "calls"), [(1, [("touch", {}), ("break_it", {}), ("touch", {})]), (14, [])])
def test_a_lost_episode_has_no_reward(gateway: RunningGateway, seed: int, calls: list[tuple[str, Any]]):
    begun = row(seed=seed)
    rollout = agent(gateway, "doomed")
    rollout.seed(begun)
    rollout.play(begun, scripted(calls))
    for _ in range(2):
        answer = rollout.verify(begun)
        error = answer.json()["error"]
        assert (answer.status_code, error["fault"]) == (502, "environment")
        assert "reward" not in answer.text
        assert "secret" not in "".join([answer.text, *(it.text for it in rollout.answers)])
    # Who asks for it gets an answer that NeMo Gym writes to its failures, and NeMo RL does not train on.
    begun = row(seed=seed, on_loss="mask")
    rollout = agent(gateway, "doomed")
    masked = rollout.run(begun, scripted(calls))
    assert masked["mask_sample"] is True
    assert masked["_ng_failure_class"] == "envport_environment"
    assert masked["failure_reason"].startswith("The episode was lost")
    assert {key: masked[key] for key in begun} == begun


def test_an_environment_that_fails_at_once_is_an_error_of_seed_session(gateway: RunningGateway):
    answer = agent(gateway, "doomed").post("/seed_session", row(seed=13))
    assert (answer.status_code, answer.json()["error"]["fault"]) == (502, "environment")
    assert "secret" not in answer.text
    assert "set-cookie" not in answer.headers


def test_at_capacity_it_says_when_to_try_again_and_a_client_that_vanishes_gives_its_place_back():
    limits = Limits(1, wait_seconds=0, idle_seconds=0.5)
    with running(load("counter"), limits=limits, environment_surfaces=SURFACES) as gateway:
        gone = agent(gateway, "counter")
        handle = gone.seed(row(seed=1))["episode_id"]
        full = agent(gateway, "counter").post("/seed_session", row(seed=2))
        assert (full.status_code, full.json()["error"]["code"]) == (503, "at_capacity")
        assert int(full.headers["retry-after"]) >= 1
        with Client(gateway.url) as control:
            while control.episode(handle).status != "expired":
                pass
        assert 'reason="expired"' in httpx2.get(f"{gateway.url}/metrics").text
        # What it has played by then counts: it said nothing for a long time.
        verified = gone.verify(row(seed=1)).json()
        assert (verified["outcome"], verified["reward"]) == ("expired", 0.0)
        agent(gateway, "counter").run(row(seed=2), scripted([("count", {})]))


def test_a_client_that_leaves_while_its_episode_is_opened_leaves_none_behind():
    Slow.entered, Slow.opened = threading.Event(), threading.Event()
    with running(_defined(Slow), environment_surfaces=SURFACES) as gateway:
        body = json.dumps(row(seed=1))
        path = "/environments/slow/nemo_gym/seed_session"
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}"
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            client.sendall(f"{head}\r\n\r\n{body}".encode())
            assert Slow.entered.wait(patient(20))
        Slow.opened.set()
        until = time.monotonic() + patient(20)
        while gateway.gateway.table.live:
            assert time.monotonic() < until


async def test_verify_waits_for_the_call_that_is_running():
    Gate.rearm()
    with running(_defined(Gate), environment_surfaces=SURFACES) as gateway:
        rollout = agent(gateway, "gate")
        rollout.seed(row(seed=1))
        second = NemoGymAgent(rollout.url, cookies=dict(rollout.cookies))
        async with asyncio.timeout(patient(20)), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(asyncio.to_thread(rollout.post, "/wait", {}))
            await asyncio.to_thread(Gate.entered.acquire)
            verified = tasks.create_task(asyncio.to_thread(second.verify, row(seed=1)))
            async with AsyncClient(gateway.url) as control:
                while (await control.episodes())[0].status == "running" and not verified.done():
                    await asyncio.sleep(0)
                    if not waiting.done():
                        Gate.opened.set()
        assert verified.result().json()["steps"] == 1


def test_at_the_root_a_row_names_its_environment(gateway: RunningGateway):
    rollout = NemoGymAgent(gateway.url)
    nameless = rollout.post("/seed_session", row(seed=1))
    assert (nameless.status_code, "has to name one: 'catch', 'counter'" in told(nameless)) == (422, True)
    begun = row(environment="counter", seed=1)
    address = rollout.seed(begun)["mcp"]

    async def play() -> str:
        async with connect(f"{gateway.url}{address['url_path']}", "modern", address["headers"]) as client:
            return (await client.call_tool("count", {})).content[0].text

    assert asyncio.run(play()) == "1"
    rollout.play(begun, scripted([("count", {})]))
    assert rollout.answers[0].text == "2"
    # With observability, NeMo Gym puts the name of the rollout in front of each path.
    body = begun | {"response": {"output": []}}
    assert rollout.post("/ng-rollout/3-1-a2/verify", body).json()["steps"] == 2
    with running(load("counter"), root_surface=nemo_gym_root_surface) as alone:
        assert NemoGymAgent(alone.url).run(row(seed=1), scripted([("count", {})]))["steps"] == 1
        assert httpx2.get(f"{alone.url}/reverify_mode").json() == "unsupported"
    assert httpx2.get(f"{gateway.url}/environments/counter/nemo_gym/").json() == {"status": "ok"}


def test_one_protocol_has_the_root():
    assert SurfaceOptions(nemo_gym=True).root_surface == "nemo_gym"
    with pytest.raises(ConfigurationError, match="--ors and --nemo-gym both want the root"):
        _ = SurfaceOptions(ors=True, nemo_gym=True).root_surface
    assert installed_surfaces("envport.environment_surfaces")["nemo_gym"] is nemo_gym_surface
    assert installed_surfaces("envport.root_surfaces")["nemo_gym"] is nemo_gym_root_surface
    assert Gateway([load("counter")], root_surface=nemo_gym_root_surface)


def test_a_run_has_the_statistics_that_nemo_gym_asks_for(gateway: RunningGateway):
    answers = [
        {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {"usage": {"output_tokens": 4}}},
        {"_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.0, "solved": True},
        {"_ng_task_index": 1, "_ng_rollout_index": 0, "reward": 0.5, "outcome": "terminated"},
        {"_ng_task_index": 1, "_ng_rollout_index": 1, "reward": 0.0, "mask_sample": True},
    ]
    url = f"{gateway.url}/environments/catch/nemo_gym/aggregate_metrics"
    run = httpx2.post(url, json={"verify_responses": answers}).json()
    agent_metrics = run["agent_metrics"]
    assert {name: agent_metrics[f"{name}/reward"] for name in ("mean", "max", "min", "median", "std")} == {
        "mean": 0.5, "max": 1.0, "min": 0.0, "median": 0.5, "std": 0.5,
    }  # fmt: skip
    assert (agent_metrics["mean/output_tokens"], agent_metrics["mean/solved"]) == (4.0, 1.0)
    assert run["key_metrics"] == {key: it for key, it in agent_metrics.items() if key.startswith("mean/")}
    assert [(it["_ng_task_index"], it["num_rollouts"], it["mean/reward"]) for it in run["group_level_metrics"]] == [
        (0, 2, 0.5), (1, 1, 0.5),
    ]  # fmt: skip
    nothing = httpx2.post(url, json={"verify_responses": []}).json()
    assert nothing == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}


def test_a_trajectory_may_be_as_large_as_in_training(gateway: RunningGateway):
    rollout, begun = agent(gateway, "counter"), row(seed=1)
    rollout.seed(begun)
    rollout.outputs = [{"type": "message", "prompt_token_ids": list(range(900_000))}]
    verified = rollout.verify(begun)
    assert len(verified.content) > 5 * 2**20
    assert verified.json()["response"]["output"] == rollout.outputs


async def test_the_command_prints_the_rows_of_a_split(gateway: RunningGateway):
    for where in ("catch", f"{gateway.url}/environments/catch"):
        words = command("nemo-gym-rows", where, "--split", "train", "--rows", "18", "--seed", "5", "--mask-lost")
        printed = await asyncio.to_thread(subprocess.check_output, words, timeout=patient(60))
        made = list(map(json.loads, printed.splitlines()))
        assert made == await rows("catch", split="train", rows=18, seed=5, on_loss="mask")
        choices = [it["verifier_metadata"]["envport"] for it in made]
        assert [(it["task"], it["seed"]) for it in choices] == [(place, 5 + place) for place in range(18)]
        assert choices[3]["task_id"] == load("catch").task("train", 3).id
    assert len(await rows("catch")) == load("catch").num_tasks("train")
    without = (await rows("counter", rows=2, tools=False))[1]
    assert without["responses_create_params"]["tools"] == []
    with pytest.raises(ConfigurationError, match="'counter' has no tasks: say how many rows"):
        await rows("counter")
    with pytest.raises(ConfigurationError, match="no split 'no'; its splits are: 'train'"):
        await rows("catch", split="no")


def _episodes(gateway: RunningGateway) -> list[Any]:
    with Client(gateway.url) as control:
        return control.episodes(limit=1000)
