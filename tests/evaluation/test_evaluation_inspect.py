"""Every environment is an Inspect task: what the model is shown, how it is scored, and what is never scored."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from bubblewrap import needs_bubblewrap
from environments import Stubborn, Tracked
from evaluating import CONTROL, address, calls, evaluate, result_of, says, scripted, secured
from harness import RunningGateway, running
from inspect_ai.model import ChatMessageTool, ModelOutput
from inspect_ai.tool import ToolCall
from inspect_ai.util._json import json_schema_dump
from player_environments import Hasty
from slow import slow

from envport import Environment, Task, TaskSource, tool
from envport.client import Client
from envport.episodes import Limits
from envport.errors import EnvironmentNotFound, EnvportError, InvalidAccess, InvalidOption, UnknownTask
from envport.registry import EnvironmentDefinition, load
from envport_bridges.evaluation.inspect_ai import episode
from envport_bridges.evaluation.results import Result

EXAMPLE = Path(__file__).parents[2] / "examples" / "evaluate_catch"
sys.path.insert(0, str(EXAMPLE))

from agent import towards_the_ball  # noqa: E402


@pytest.fixture(scope="module")
def gateway() -> Any:
    specs = [load("catch"), load("counter"), load("showcase"), EnvironmentDefinition("tracked", Tracked, {})]
    specs += [load("scored_environments:Judged"), load("scored_environments:Judged?score=error", "judged-badly")]
    with secured(*specs, EnvironmentDefinition("stubborn", Stubborn, {})) as serving:
        yield serving


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVPORT_TOKEN", CONTROL)


def text_of(messages: list[Any]) -> str:
    return messages[-1].text


def catches(messages: list[Any], tools: list[Any]) -> ModelOutput:
    return calls(("move", {"direction": towards_the_ball(text_of(messages))}))


@pytest.mark.parametrize("name", ["catch", "counter", "showcase"])
def test_the_model_is_shown_exactly_the_listed_tools(gateway: RunningGateway, name: str):
    seen: list[list[dict[str, Any]]] = []

    def look(messages: list[Any], tools: list[Any]) -> ModelOutput:
        seen.append(
            [
                {"name": tool.name, "description": tool.description, "inputSchema": json_schema_dump(tool.parameters)}
                for tool in tools
            ]
        )
        return says("I only look.")

    evaluate(address(gateway, name), model=scripted(look), num_tasks=1)
    with Client(gateway.url) as control:
        listed = control.environment(name).tools
    wanted = [{key: tool.get(key, "") for key in ("name", "description", "inputSchema")} for tool in listed]
    assert seen == [wanted]


def test_a_model_that_plays_well_gets_its_reward(gateway: RunningGateway):
    log = evaluate(address(gateway, "catch"), model=scripted(catches), split="test")
    assert log.status == "success"
    assert log.results is not None
    metrics = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert metrics == {"reward": 1.0, "success": 1.0}
    # An interval of Inspect's would say that all is known, where ours says that nothing is.
    assert {name for score in log.results.scores for name in score.metrics} == {"mean", "stderr"}
    with Client(gateway.url) as control:
        ids = [f"test/{task.id}" for task in control.tasks("catch", split="test").tasks]
        assert sorted(str(sample.id) for sample in log.samples or []) == sorted(ids)
        for sample in log.samples or []:
            assert control.episode(sample.store["envport:episode"]).status == "terminated"
    identity = (log.eval.metadata or {})["envport"]
    with Client(gateway.url) as control:
        assert identity["fingerprint"] == control.environment("catch").fingerprint


def test_prompt_and_first_observation_are_joined_as_in_training(gateway: RunningGateway):
    seen: list[str] = []

    def look(messages: list[Any], tools: list[Any]) -> ModelOutput:
        seen.append(text_of(messages))
        return says("")

    evaluate(address(gateway, "catch"), model=scripted(look), num_tasks=1)
    with Client(gateway.url) as control:
        opened = control.open("catch", split="train", task=0, seed=1)
    assert seen == [f"{opened.prompt}\n\n{opened.observation.text}"]


class Pictured(Environment):
    """Shows a picture with its task."""

    def splits(self) -> dict[str, TaskSource]:
        image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
        return {"train": [{"id": "one", "prompt": ["What is this?", image]}]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "You see a table."

    @tool
    def answer(self, word: str) -> str:
        """Answer."""
        return word


def test_a_prompt_with_an_image_reaches_the_model():
    seen: list[Any] = []

    def look(messages: list[Any], tools: list[Any]) -> ModelOutput:
        seen.append([part.model_dump(include={"type", "text", "image"}) for part in messages[-1].content])
        return says("")

    with secured(EnvironmentDefinition("pictured", Pictured)) as serving:
        evaluate(address(serving, "pictured"), model=scripted(look), num_tasks=1)
    expected = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "image": "data:image/png;base64,iVBORw0KGgo="},
        {"type": "text", "text": "You see a table."},
    ]
    assert seen == [expected]


def refuses_to_act(messages: list[Any], tools: list[Any]) -> ModelOutput:
    return says("I would rather not.")


def calls_what_is_not_there(messages: list[Any], tools: list[Any]) -> ModelOutput:
    return calls(("fly", {}))


def writes_broken_json(messages: list[Any], tools: list[Any]) -> ModelOutput:
    return calls(ToolCall(id="1", function="move", arguments={}, parse_error="Expecting value: line 1 column 1"))


def sends_wrong_arguments(messages: list[Any], tools: list[Any]) -> ModelOutput:
    return calls(("move", {"direction": "up"}))


def stops_early(messages: list[Any], tools: list[Any]) -> ModelOutput:
    return says("Enough.") if len(messages) > 1 else calls(("move", {"direction": "left"}))


@pytest.mark.parametrize(
    ("script", "stopped", "steps", "tool_errors"),
    [
        (refuses_to_act, "the model called no tool (stop)", 0, 0),
        (calls_what_is_not_there, "the player was stopped after 4 calls", 0, 4),
        (writes_broken_json, "the player was stopped after 4 calls", 0, 4),
        (sends_wrong_arguments, "the player was stopped after 4 calls", 0, 4),
        (stops_early, "the model called no tool (stop)", 1, 0),
    ],
)
def test_a_model_that_misbehaves_is_scored_with_a_reason(
    gateway: RunningGateway, script: Any, stopped: str, steps: int, tool_errors: int
):
    result = result_of(address(gateway, "catch"), model=scripted(script), num_tasks=1, max_calls=4)
    (played,) = result.played
    assert (played.stopped, played.steps, played.tool_errors) == (stopped, steps, tool_errors)
    assert (played.reward, played.success) == (0.0, False)
    assert result.lost == ()


def test_a_refusal_is_read_in_the_gateway_s_own_words(gateway: RunningGateway):
    log = evaluate(address(gateway, "catch"), model=scripted(sends_wrong_arguments), num_tasks=1, max_calls=1)
    assert log.samples
    (answer,) = [message for message in log.samples[0].messages if isinstance(message, ChatMessageTool)]
    assert answer.error is not None
    assert answer.error.message == """Argument 'direction' is "up"; it has to be one of "left", "stay", "right"."""


def test_a_model_that_stops_is_scored_by_what_it_leaves_behind(gateway: RunningGateway):
    """Also where a limit stops it; and where the score breaks, it has none."""

    def once(messages: list[Any], tools: list[Any]) -> ModelOutput:
        return says("I am done.") if messages[-1].role == "tool" else calls(("count", {}))

    def always(messages: list[Any], tools: list[Any]) -> ModelOutput:
        return calls(("count", {}))

    for model, limits, reward in ((once, {}, 11.0), (always, {"message_limit": 5}, 22.0)):
        result = result_of(address(gateway, "judged"), model=scripted(model), num_tasks=1, limits=limits)
        assert [one.reward for one in result.played] == [reward]
    broken = result_of(address(gateway, "judged-badly"), model=scripted(once), num_tasks=1)
    assert (len(broken.played), len(broken.lost)) == (0, 1)


def test_a_model_that_exceeds_its_limits_is_scored(gateway: RunningGateway):
    for kind, limits in (("message", {"message_limit": 5}), ("token", {"token_limit": 30})):
        log = evaluate(address(gateway, "catch"), model=scripted(catches), num_tasks=1, limits=limits)
        (played,) = Result.of(log).played
        assert played.stopped == f"its {kind} limit was exceeded"
        assert Result.of(log).stopped_by_limits == {played.stopped: 1}
        assert 0 < played.steps < 9
        assert log.samples
        with Client(gateway.url) as control:
            assert control.episode(log.samples[0].store["envport:episode"]).outcome.reason == "finished"


async def never_answers(messages: list[Any], tools: list[Any]) -> ModelOutput:
    await anyio.sleep_forever()
    raise AssertionError


def test_a_model_that_never_answers_is_stopped_and_scored(gateway: RunningGateway):
    model = scripted(never_answers)  # type: ignore[arg-type]
    (played,) = result_of(address(gateway, "catch"), model=model, num_tasks=1, limits={"time_limit": 1}).played
    assert (played.stopped, played.steps, played.reward) == ("its time limit was exceeded", 0, 0.0)
    assert played.tool_errors == 0


def test_a_player_waits_until_the_gateway_has_a_place():
    with secured(load("catch"), limits=Limits(max_episodes=1, wait_seconds=0)) as gateway:
        result = result_of(address(gateway, "catch"), policy="noop", num_tasks=2)
    assert (len(result.played), result.lost) == (2, ())


def test_a_gateway_that_goes_away_is_no_score():
    with secured(load("catch")) as gone:

        def last_call(messages: list[Any], tools: list[Any]) -> ModelOutput:
            gone.__exit__()
            return calls(("move", {"direction": "left"}))

        result = result_of(address(gone, "catch"), model=scripted(last_call), num_tasks=1)
    assert result.played == ()
    (lost,) = result.lost
    assert "connection" in lost.why or "no answer" in lost.why
    assert lost.fault == "infrastructure"


def test_a_policy_that_calls_what_is_not_there_is_scored(gateway: RunningGateway, tmp_path: Path):
    (tmp_path / "wild.py").write_text("def wild(view):\n    return 'fly', {}\n")
    result = result_of(address(gateway, "catch"), policy="./wild.py:wild", num_tasks=1, max_calls=3)
    (played,) = result.played
    assert (played.steps, played.tool_errors) == (0, 3)
    assert result.stopped_by_limits == {"the player was stopped after 3 calls": 1}


def test_an_environment_that_breaks_is_counted_apart_and_never_scored(gateway: RunningGateway):
    def breaks_the_second(messages: list[Any], tools: list[Any]) -> ModelOutput:
        seed = int(text_of(messages).rpartition(" ")[2]) if len(messages) == 1 else 0
        return calls(("boom", {})) if seed % 2 else calls(("finish", {"reward": 1.0}))

    result = result_of(address(gateway, "tracked"), model=scripted(breaks_the_second), num_tasks=8)
    assert 0 < len(result.lost) < 8
    assert len(result.played) + len(result.lost) == 8
    assert {one.reward for one in result.played} == {1.0}
    assert result.estimate("reward").mean == 1.0
    assert all("fault of the environment" in lost.why or "environment failed" in lost.why for lost in result.lost)
    assert result.faults() == {"player": 0, "environment": len(result.lost), "infrastructure": 0}


def test_an_environment_that_never_begins_is_no_score_at_all(gateway: RunningGateway):
    result = result_of(address(gateway, "stubborn"), policy="noop", num_tasks=3)
    assert (len(result.played), len(result.lost)) == (0, 3)
    assert result.estimate("reward").mean is None


def test_epochs_give_pass_at_k_and_pass_hat_k(gateway: RunningGateway):
    def sometimes(messages: list[Any], tools: list[Any]) -> ModelOutput:
        sometimes.made += 1  # type: ignore[attr-defined]
        return calls(("finish", {"reward": float(sometimes.made % 4 == 0)}))  # type: ignore[attr-defined]

    sometimes.made = 0  # type: ignore[attr-defined]
    result = result_of(address(gateway, "tracked"), model=scripted(sometimes), num_tasks=1, epochs=4)
    assert len(result.played) == 4
    assert (result.pass_at(1), result.pass_at(4), result.pass_hat(1), result.pass_hat(4)) == (0.25, 1.0, 0.25, 0.0)
    assert result.pass_at(2) == pytest.approx(0.5)


def test_tasks_come_again_with_another_seed_and_cluster(gateway: RunningGateway):
    log = evaluate(address(gateway, "catch"), policy="noop", split="test", num_tasks=7)
    samples = {str(sample.id): sample.metadata for sample in log.samples or []}
    assert len(samples) == 7
    again = samples["test/ball-1-paddle-1#2"]
    assert again["task"] == samples["test/ball-1-paddle-1"]["task"]
    assert again["seed"] != samples["test/ball-1-paddle-1"]["seed"]


def test_a_result_names_its_player_without_folders_and_says_how_long_it_took(gateway: RunningGateway, tmp_path: Path):
    (tmp_path / "still.py").write_text("def still(view):\n    return 'move', {'direction': 'stay'}\n")
    by_policy = result_of(address(gateway, "catch"), policy=f"{tmp_path}/still.py:still", num_tasks=1, max_calls=1)
    assert by_policy.player == "policy still.py:still"
    assert by_policy.identity.split == "train"
    assert by_policy.played[0].seconds > 0
    by_model = result_of(address(gateway, "catch"), model=scripted(refuses_to_act), num_tasks=1)
    assert by_model.player == "model mockllm/model"


def test_rewards_are_listed_by_task(gateway: RunningGateway):
    """Each attempt at a task has its own, and a task that comes again is the same task."""
    rewards = result_of(address(gateway, "catch"), model=scripted(catches), split="test", num_tasks=7).rewards_by_task()
    with Client(gateway.url) as control:
        tasks = [f"test/{task.id}" for task in control.tasks("catch", split="test").tasks]
    assert rewards == {task: [1.0] * (2 if task in tasks[:2] else 1) for task in tasks}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"env": "nonsense://x/environments/catch"}, EnvironmentNotFound),
        ({"env": "http://127.0.0.1:1/environments/"}, InvalidOption),
        # Each starts a gateway, and the command shows the first too.
        *slow([({"env": "no-such-environment"}, EnvportError)]),
        ({"env": "catch?rows=1"}, InvalidOption),
        ({"env": "CATCH", "split": "none"}, UnknownTask),
        ({"env": "CATCH", "num_tasks": 0}, InvalidOption),
        ({"env": "CATCH", "policy": "nowhere:nothing"}, InvalidOption),
        ({"env": "CATCH", "policy": "random", "agent": "mcp"}, InvalidOption),
        ({"env": "CATCH", "agent": "no-such-program-here"}, InvalidOption),
        ({"env": "CATCH", "agent": "'"}, InvalidOption),
        ({"env": "CATCH", "max_calls": 0}, InvalidOption),
    ],
)
def test_bad_input_is_refused_before_anything_is_played(
    gateway: RunningGateway, arguments: dict[str, Any], error: type[Exception]
):
    arguments = {**arguments, "env": arguments["env"].replace("CATCH", address(gateway, "catch"))}
    with pytest.raises(error):
        episode(**arguments)


def test_an_agent_is_refused_where_anyone_may_control(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ENVPORT_TOKEN")
    with running(load("catch")) as anyones:
        env = address(anyones, "catch")
        with pytest.raises(InvalidAccess, match="no tokens"):
            episode(env=env, agent="mcp")


@pytest.mark.parametrize(
    ("before", "now", "name"),
    [
        ("envport_bridges.inspect_ai", "envport_bridges.evaluation.inspect_ai", "episode"),
        ("envport_bridges.playing.policies", "envport_bridges.evaluation.players.policies", "View"),
    ],
)
def test_import_paths_from_before_the_move_still_work(before: str, now: str, name: str):
    assert getattr(importlib.import_module(before), name) is getattr(importlib.import_module(now), name)


@needs_bubblewrap
def test_an_episode_that_its_player_broke_is_scored_and_never_a_success():
    def breaks(messages: list[Any], tools: list[Any]) -> ModelOutput:
        return calls(("earn", {}), ("run", {"code": "import time; time.sleep(1000)", "timeout": 1000.0}))

    with secured(EnvironmentDefinition("hasty", Hasty)) as gateway:
        result = result_of(address(gateway, "hasty"), model=scripted(breaks), num_tasks=1)
    (one,) = result.played
    assert (one.reward, one.success, one.outcome, one.fault) == (1.5, False, "deadline", "player")
    assert (one.stopped, result.lost) == ("the episode was over", ())
    assert result.faults() == {"player": 1, "environment": 0, "infrastructure": 0}
