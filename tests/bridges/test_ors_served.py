"""The Open Reward Standard in front of our environments, as the real client plays them, at the root of a gateway."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import httpx2
import pytest
from environments import Gate
from harness import RunningGateway, running
from ors_player import OrsPlayer, Raised, shared_player

from envport import Client, Environment, Step, Task, ToolError, tool
from envport.access import Access, Principal, Scope
from envport.blocks import text_of
from envport.episodes import Limits
from envport.errors import MissingExtra
from envport.registry import EnvironmentDefinition, load
from envport.tools.sampling import ArgumentSampler
from envport_bridges.audit.catalogue import ENTRIES
from envport_bridges.ors import ors_root_surface, ors_surface
from envport_bridges.rollouts import Rollouts

TRAINER, OTHER, PLAYER = (f"{name}-0123456789abcdef" for name in ("trainer", "other", "player"))
SCOPES: dict[str, frozenset[Scope]] = {
    TRAINER: frozenset({"control", "play"}),
    OTHER: frozenset({"control", "play"}),
    PLAYER: frozenset({"play"}),
}
SURFACES: dict[str, Any] = {"environment_surfaces": {"ors": ors_surface}, "root_surface": ors_root_surface}


class Earning(Environment):
    """Gives rewards on the way, and breaks when it is told to."""

    max_steps = 5

    def splits(self) -> dict[str, list[Task]]:
        return {"easy": [Task(id=f"t{n}", prompt=f"Task {n}.", metadata={"answer": "hidden"}) for n in range(3)]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        if seed == 13:
            raise RuntimeError("the secret cause")
        return f"seed {seed}, secrets {sorted(self.secrets)}"

    @tool
    def earn(self, reward: float) -> Step[str]:
        """Earn something."""
        return Step("earned", reward=reward)

    @tool
    def end(self, reward: float | None = None) -> Step[str]:
        """End it."""
        return Step("ended", reward=reward, terminated=True)

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError("not so hard")

    @tool
    def break_it(self) -> Step[str]:
        """Break."""
        raise RuntimeError("the secret cause")


class Lasting(Earning):
    """Its last reward counts."""

    reward = "last"


class Scored(Environment):
    """Its final state is scored."""

    def reset(self, *, seed: int, task: Task | None) -> None:
        self.answer, self.broken = 0, seed == 13

    @tool
    def finish_episode(self, answer: int, *, end: bool = False) -> Step[str]:
        """Note an answer; the name is that of our terminal tool."""
        self.answer = answer
        return Step("noted", reward=0.5, terminated=end)

    def score(self) -> float:
        if self.broken:
            raise RuntimeError("the secret cause")
        return float(self.answer)


def definition(cls: type[Environment]) -> EnvironmentDefinition:
    return EnvironmentDefinition(cls.__name__.lower(), cls)


@pytest.fixture(scope="module")
def player() -> OrsPlayer:
    return shared_player()


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    named = (load(name) for name in ("catch", "echo", "counter", "showcase"))
    with running(*named, *map(definition, (Earning, Lasting, Scored, Gate)), **SURFACES) as serving:
        yield serving


def rewarded(output: dict[str, Any]) -> tuple[float | None, bool]:
    return output["reward"], output["finished"]


def texts(blocks: list[dict[str, Any]]) -> list[str]:
    return [block["text"] for block in blocks]


def test_an_episode_is_played_to_its_end_with_the_reward_of_every_other_way(gateway: RunningGateway, player: OrsPlayer):
    for index in (3, 4):
        with player.session(gateway.url, "catch", split="train", index=index) as seat:
            with Rollouts("catch").open(split="train", task=index, seed=index) as rollout:
                assert seat.text == f"{rollout.prompt}\n\n{rollout.observation.text}"
                outputs = [seat.call("move", direction="right") for _ in range(9)]
                for output in outputs:
                    reply = rollout.call("move", {"direction": "right"})
                    assert texts(output["blocks"]) == [str(reply.content[0]["text"])]
                assert [output["metadata"]["step_reward"] for output in outputs] == list(rollout.rewards)
                assert list(map(rewarded, outputs)) == [(None, False)] * 8 + [(rollout.finish(), True)]
            assert outputs[-1]["metadata"]["outcome"] == "terminated"
            with pytest.raises(Raised) as caught:
                seat.call("move", direction="left")
            assert (caught.value.kind, caught.value.reason) == ("ToolCallError", "episode_finished")


def test_the_reward_comes_once_and_both_the_sum_and_the_last_of_a_client_are_that_of_the_episode(
    gateway: RunningGateway, player: OrsPlayer
):
    for name, total in (("earning", 0.75), ("lasting", 0.5)):
        with player.session(gateway.url, name, split="easy", index=1) as seat:
            outputs = [seat.call("earn", reward=0.25), seat.call("refuse"), seat.call("end", reward=0.5)]
        assert list(map(rewarded, outputs)) == [(None, False), (None, False), (total, True)]
        assert outputs[1]["metadata"] == {"step": 2, "step_reward": None, "is_error": True}
    # A limit ends it as a tool does; an end without any reward is one of 0.
    with player.session(gateway.url, "earning", split="easy", index=1) as seat:
        assert [rewarded(seat.call("earn", reward=0.1)) for _ in range(5)][3:] == [
            (None, False),
            (pytest.approx(0.5), True),
        ]
    with player.session(gateway.url, "earning", split="easy", index=1) as seat:
        assert rewarded(seat.call("end")) == (0.0, True)


def test_the_score_is_in_the_reward_whether_a_tool_ends_the_episode_or_the_agent_stops(
    gateway: RunningGateway, player: OrsPlayer
):
    with player.session(gateway.url, "scored", split="train", index=1) as seat:
        assert rewarded(seat.call("finish_episode", answer=3, end=True)) == (3.5, True)
    with player.session(gateway.url, "scored", split="train", index=1) as seat:
        assert [tool["name"] for tool in seat.opened["tools"]] == ["finish_episode"]
        assert rewarded(seat.call("finish_episode", answer=2)) == (None, False)
        assert rewarded(seat.stop()) == (2.5, True)
        with pytest.raises(Raised, match="episode_finished"):
            seat.stop()
    with player.session(gateway.url, "scored", split="train", index=13) as seat, pytest.raises(Raised) as caught:
        seat.call("finish_episode", answer=3, end=True)
    assert caught.value.kind == "ToolFailed"
    assert "secret" not in caught.value.message


def test_an_end_that_came_between_two_calls_has_the_reward_once(gateway: RunningGateway, player: OrsPlayer):
    with player.session(gateway.url, "earning", split="easy", index=1) as seat, Client(gateway.url) as control:
        seat.call("earn", reward=0.25)
        live = [info for info in control.episodes() if info.environment == "earning" and info.status == "running"]
        control.finish(live[0].episode_id)
        late = seat.call("earn", reward=1.0)
        assert rewarded(late) == (0.25, True)
        assert "The episode is over" in texts(late["blocks"])[0]
        with pytest.raises(Raised, match="episode_finished"):
            seat.call("earn", reward=1.0)


def test_a_lost_episode_has_no_reward_though_its_steps_had(gateway: RunningGateway, player: OrsPlayer):
    with player.session(gateway.url, "earning", split="easy", index=1) as seat:
        assert rewarded(seat.call("earn", reward=0.0)) == (None, False)
        with pytest.raises(Raised) as caught:
            seat.call("break_it")
        assert caught.value.kind == "ToolFailed"
        assert "(fault: environment)" in caught.value.message
        assert "secret" not in caught.value.message
        with pytest.raises(Raised) as after:
            seat.call("earn", reward=1.0)
        assert after.value.kind == "SessionTerminatedError"
    with pytest.raises(Raised) as caught:
        player.ask("open", url=gateway.url, name="earning", task_spec={"seed": 13})
    assert (caught.value.kind, caught.value.status) == ("SessionResponseError", 500)
    assert "secret" not in caught.value.message


def test_calls_that_are_refused_have_the_protocol_s_reasons_and_change_nothing(
    gateway: RunningGateway, player: OrsPlayer
):
    with player.session(gateway.url, "counter", split="train", index=0) as seat:
        assert texts(seat.call("count")["blocks"]) == ["1"]
        with pytest.raises(Raised) as caught:
            seat.call("fly")
        assert (caught.value.reason, "The tools are: count" in caught.value.message) == ("not_found", True)
        with pytest.raises(Raised) as caught:
            seat.call("count", by="many")
        assert caught.value.reason == "input_validation"
        assert texts(seat.call("count")["blocks"]) == ["2"]


def test_tasks_are_listed_without_what_an_agent_may_not_see(gateway: RunningGateway, player: OrsPlayer):
    found = player.ask("look", url=gateway.url, name="earning", split="easy")
    specs = [{"id": f"t{n}", "split": "easy", "task": n, "seed": n} for n in range(3)]
    assert (found["splits"], found["count"]) == (["easy"], 3)
    assert [task["task_spec"] for task in found["tasks"]] == specs
    assert found["second"]["task_spec"] == specs[1]
    assert [task["task_spec"] for task in found["last"]] == specs[1:]
    assert {task["environment_name"] for task in found["tasks"]} == {"earning"}
    assert "hidden" not in json.dumps(found)
    # A task as it was listed opens what its index opens.
    by_index = {"split": "easy", "index": 2}
    for chosen in (by_index, {"task_spec": specs[2]}, {**by_index, "variant": "earning"}):
        with player.session(gateway.url, "earning", **chosen) as seat:
            assert seat.text.startswith("Task 2.\n\nseed 2,")
    with player.session(gateway.url, "earning", task_spec={"task": 2, "seed": 7}) as seat:
        assert seat.text.startswith("Task 2.\n\nseed 7,")
    with pytest.raises(Raised) as caught:
        player.ask("open", url=gateway.url, name="earning", task_spec={**specs[2], "id": "t1"})
    assert (caught.value.status, "list the tasks again" in caught.value.message) == (400, True)


def test_an_environment_without_tasks_has_its_seeds(gateway: RunningGateway, player: OrsPlayer):
    found = player.ask("look", url=gateway.url, name="scored", split="train")
    assert (found["splits"], found["count"], len(found["tasks"])) == (["train"], 1000, 1000)
    assert [task["task_spec"] for task in found["last"]] == [{"seed": 998}, {"seed": 999}]


def test_the_tools_have_the_schemas_that_mcp_lists(gateway: RunningGateway, player: OrsPlayer):
    listing = load("showcase").listing
    asked = [(tool["name"], tool["description"], json.dumps(tool["inputSchema"])) for tool in listing]
    with player.session(gateway.url, "showcase", split="tour", index=0) as seat:
        tools = player.ask("look", url=gateway.url, name="showcase", split="tour")["tools"]
        for told in (tools, seat.opened["tools"]):
            assert [(tool["name"], tool["description"], json.dumps(tool["input_schema"])) for tool in told] == asked


def test_texts_and_images_arrive_and_what_the_protocol_has_no_word_for_is_named(
    gateway: RunningGateway, player: OrsPlayer
):
    with (
        player.session(gateway.url, "showcase", split="tour", index=0) as seat,
        Rollouts("showcase").open(split="tour", task=0, seed=0) as rollout,
    ):
        assert [(message["role"], message["blocks"]) for message in seat.messages()] == [
            ("user", seat.opened["prompt"])
        ]
        assert seat.opened["prompt"][0]["text"].startswith(rollout.prompt)
        image = rollout.call("show_image", {}).content[0]
        told = seat.call("show_image")["blocks"]
        assert told == [{"type": "image", "data": image["data"], "mimeType": image["mimeType"], "detail": None}]
        assert texts(seat.call("show_audio")["blocks"]) == ["[audio: audio/wav]"]
        assert seat.call("show_nothing")["blocks"] == []


def test_an_answer_of_many_chunks_arrives_as_it_is(gateway: RunningGateway, player: OrsPlayer):
    # The client strips white space where a chunk begins.
    said = " " * 9000 + '\u2003\u00a0é\u2028\n\\ "' * 3000 + "🎈" * 5000 + "\x1f"
    with player.session(gateway.url, "echo", split="train", index=0) as seat:
        assert texts(seat.call("echo", message=said)["blocks"]) == [said]


def test_an_optional_argument_that_is_null_is_one_that_is_left_out(gateway: RunningGateway, player: OrsPlayer):
    with player.session(gateway.url, "showcase", split="tour", index=0) as seat:
        assert texts(seat.call("refuse", reason=None)["blocks"]) == ["I would rather not."]
        # Null is a value here, and here something is missing.
        assert texts(seat.call("either", value=None)["blocks"]) == texts(
            [dict(block) for block in Rollouts("showcase").open().call("either", {"value": None}).content]
        )
    with player.session(gateway.url, "earning", split="easy", index=0) as seat, pytest.raises(Raised) as caught:
        seat.call("earn", reward=None)
    assert caught.value.reason == "input_validation"


def test_who_waits_for_a_place_gets_it_when_it_is_free(player: OrsPlayer):
    task = {"split": "train", "index": 0}
    with running(load("counter"), limits=Limits(1, wait_seconds=0), **SURFACES) as gateway:
        first = {"X-Session-ID": "first"}
        assert httpx2.post(f"{gateway.url}/create", headers=first, json=task).status_code == 200
        player.say("open", url=gateway.url, name="counter", **task)
        none = 'envport_admission_refusals_total{limit="total"} 0.0'
        while none in httpx2.get(f"{gateway.url}/metrics").text:
            pass
        assert httpx2.post(f"{gateway.url}/delete", headers=first).status_code == 200
        player.ask("close", session=player.hear()["session"])


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningGateway]:
    tokens = [
        (hashlib.sha256(token.encode()).digest(), Principal(token[:5], scopes)) for token, scopes in SCOPES.items()
    ]
    with running(load("catch"), definition(Earning), access=Access(tokens), **SURFACES) as serving:
        yield serving


def test_the_client_s_key_is_its_token_and_no_environment_gets_it(guarded: RunningGateway, player: OrsPlayer):
    chosen = {"key": TRAINER, "split": "easy", "index": 1, "secrets": {"db": "hush"}}
    with player.session(guarded.url, "earning", **chosen) as seat:
        assert "secrets ['db']" in seat.text
        assert rewarded(seat.call("end", reward=1.0)) == (1.0, True)
    for key in (PLAYER, "wrong-token-0123456789"):
        with pytest.raises(Raised) as caught:
            player.ask("open", url=guarded.url, name="earning", key=key, split="easy", index=1)
        assert (caught.value.kind, caught.value.status) in (
            ("SessionResponseError", 403), ("AuthenticationError", None),
        )  # fmt: skip


def seen(block: Mapping[str, Any]) -> tuple[str, Any]:
    """What an agent sees of a block that has a text or an image."""
    return ("image", block["data"]) if block["type"] == "image" else ("text", text_of(dict(block)))


QUICK = frozenset({"echo", "counter", "catch", "maze", "showcase", "sudoku?size=4&blanks=6"})
CALLS = 12


@pytest.mark.parametrize(
    "reference",
    [pytest.param(entry.reference, marks=[] if entry.reference in QUICK else [pytest.mark.slow]) for entry in ENTRIES],
)
def test_every_environment_of_the_catalogue_gives_what_it_gives_elsewhere(reference: str, player: OrsPlayer):
    try:
        definition = load(reference)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    rng = Random(7)
    with (
        running(definition, **SURFACES) as gateway,
        Rollouts(reference).open(seed=11) as rollout,
        player.session(gateway.url, definition.name, task_spec={"seed": 11}) as seat,
    ):
        told: dict[str, Any] = {"finished": False}
        for _ in range(CALLS):
            chosen = rng.choice(rollout.tools)
            arguments = ArgumentSampler(chosen["inputSchema"]).sample(rng)
            told = seat.call(chosen["name"], **arguments)
            reply = rollout.call(chosen["name"], arguments)
            assert list(map(seen, told["blocks"])) == list(map(seen, reply.content))
            if told["finished"]:
                break
            assert told["reward"] is None
        assert told["finished"] == (rollout.outcome is not None)
        last = told if told["finished"] else seat.stop()
        assert rewarded(last) == (rollout.finish() or 0.0, True)
