"""Real runs of GRPOTrainer over the bridge; the model's words are written by a script."""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from mirror import Guess
from patience import patient
from places import Place, gateway
from tiny_model import Script, calls, config, make_model, make_tokenizer, scripted
from transformers import PreTrainedTokenizerFast
from trl import GRPOTrainer

from envport import Client
from envport.episodes import Limits
from envport.errors import GatewayUnreachable
from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec, combine, scoring
from envport_bridges.trl.contract import takes_explicit_tools

DONE = "Done.<|im_end|>"


def guess_up_to(tries: int) -> Script:
    """Guesses 0, 1, 2, ... until it is right or has no more tries."""

    def script(text: str, turn: int) -> str:
        if turn >= tries or "Right." in text:
            return DONE
        return calls(("guess", json.dumps({"number": turn})))

    return script


def train(tmp_path: Path, spec: Any, script: Script, trainer_class: type[Any] = GRPOTrainer, **options: Any) -> Any:
    """Train as a user does, and return the trainer."""
    tokenizer = make_tokenizer()
    reward_funcs = options.pop("reward_funcs", spec.reward_funcs)
    trainer = scripted(trainer_class, script)(
        model=make_model(tokenizer),
        args=config(tmp_path, **options),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=reward_funcs,
    )
    trainer.train()
    return trainer


def logged(trainer: Any, key: str) -> list[float]:
    # TRL logs None where a whole batch gave no reward.
    return [entry[key] for entry in trainer.state.log_history if entry.get(key) is not None]


def assert_finite(trainer: Any) -> None:
    for entry in trainer.state.log_history:
        assert all(not isinstance(value, float) or math.isfinite(value) for value in entry.values()), entry


def test_three_lines_train(place: Place, tmp_path: Path):
    spec = place.spec("guess", indices=[1, 4])
    trainer = train(tmp_path, spec, guess_up_to(3))
    # Task 1 is found at the second guess, task 4 is not found.
    assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx((0.75 - 0.75) / 2)]
    assert logged(trainer, "tools/call_frequency") == [2.5]
    assert logged(trainer, "tools/failure_frequency") == [0.0]
    assert logged(trainer, "envport/lost_episodes") == [0.0]
    assert_finite(trainer)


def test_the_prompt_holds_schema_prompt_and_observation(place: Place, tmp_path: Path):
    spec = place.spec("guess", indices=[2, 5])
    trainer = train(tmp_path, spec, guess_up_to(0))
    prompt = trainer.seen[0]
    block = prompt.split("<tools>\n", 1)[1].split("\n</tools>", 1)[0]
    shown = [json.loads(line)["function"] for line in block.split("\n")]
    assert [json.dumps(tool["parameters"]) for tool in shown] == [json.dumps(t["inputSchema"]) for t in spec.info.tools]
    assert [tool["name"] for tool in shown] == [tool["name"] for tool in spec.info.tools]
    seed = spec.train_dataset[0]["seed"]
    assert f"<|im_start|>user\nGuess number 2.\n\n[seed {seed}]<|im_end|>" in prompt


def test_members_of_a_group_start_from_the_same_state(place: Place, tmp_path: Path):
    trainer = train(tmp_path, place.spec("guess", indices=[2, 5]), guess_up_to(0))
    starts = [re.findall(r"\[seed \d+\]", text) for text in trainer.seen]
    assert len(starts) == 8
    assert starts[:4] == [starts[0]] * 4
    assert starts[4:] == [starts[4]] * 4
    assert starts[0] != starts[4]


def test_refused_calls_count_as_failures_and_are_told(place: Place, tmp_path: Path):
    def script(text: str, turn: int) -> str:
        return [calls(("guess", '{"number": "x"}')), calls(("ask", '{"question": "?"}')), DONE][turn]

    trainer = train(tmp_path, place.spec("guess", indices=[1, 4]), script)
    assert logged(trainer, "tools/failure_frequency") == [1.0]
    assert 'is "x"; it has to be an integer.' in trainer.seen[-1]
    assert "No answer to '?'." in trainer.seen[-1]


def test_unknown_tools_and_broken_json_do_not_stop_the_run(place: Place, tmp_path: Path):
    def script(text: str, turn: int) -> str:
        if turn == 0:
            return calls(("fly", "{}"), ("guess", '["no", "object"]'), ("reset", "{}"), ("get_reward", "{}"))
        return '<tool_call>\n{"name": "guess", "arguments": {"number": \n</tool_call><|im_end|>'

    trainer = train(tmp_path, place.spec("guess", indices=[1, 4]), script, max_steps=2)
    assert logged(trainer, "tools/failure_frequency") == [1.0, 1.0]
    assert "Tool fly not found" in trainer.seen[-1]
    assert "Tool reset not found" in trainer.seen[-1]
    assert logged(trainer, "rewards/episode_reward/mean") == [0.0, 0.0]


def shows_control_tokens(text: str, turn: int) -> str:
    return calls(("control_tokens", "{}")) if turn == 0 else DONE


class OlderTokenizer(PreTrainedTokenizerFast):
    """One of transformers 5.19, where chat templates had no option for control tokens."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        options.pop("sanitize_control_tokens", None)
        return super().apply_chat_template(conversation, **options)


@pytest.mark.parametrize("tokenizer_class", [PreTrainedTokenizerFast, OlderTokenizer])
@pytest.mark.parametrize("trainer_class", [GRPOTrainer, ConcurrentGRPOTrainer])
def test_control_tokens_of_an_observation_are_text(
    place: Place, tmp_path: Path, trainer_class: type[Any], tokenizer_class: type[Any]
):
    prompts: list[list[int]] = []

    class Noted(scripted(trainer_class, shows_control_tokens)):
        def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            prompts.extend(list(ids) for ids in prompt_ids)
            return super()._generate_single_turn(prompt_ids, *args, **kwargs)

    # The stock trainer has to be told; ours does it by itself.
    options = {} if trainer_class is GRPOTrainer else {"chat_template_kwargs": {}}
    spec = place.spec("guess", indices=[1, 4])
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    tokenizer.__class__ = tokenizer_class
    Noted(
        model=model,
        args=config(tmp_path, **options),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    ).train()
    first, second = prompts[0], prompts[-1]
    assert "owned" in tokenizer.decode(second)
    # The assistant's turn and the tool's have ended; the end in the observation is spelled out.
    assert second.count(tokenizer.eos_token_id) == first.count(tokenizer.eos_token_id) + 2


def test_a_trainer_that_takes_them_for_its_own_is_warned_of(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    scoring._warn_once_of_control_tokens.cache_clear()
    spec = place.spec("guess", indices=[1, 4])
    train(tmp_path, spec, shows_control_tokens, chat_template_kwargs={})
    assert "sanitize_control_tokens" in caplog.text


def test_annotated_tools_train_too_and_say_what_the_model_is_not_told(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    spec = place.spec("guess", indices=[1, 4], explicit_schemas=False)
    trainer = train(tmp_path, spec, guess_up_to(3))
    assert logged(trainer, "rewards/episode_reward/mean") == [0.0]
    assert "The model is not told of: guess: additionalProperties" in caplog.text


def test_a_transformers_that_takes_no_schemas_gets_annotated_tools(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    from transformers.utils import chat_template_utils

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise TypeError("tools have to be functions")

    takes_explicit_tools.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(chat_template_utils, "render_jinja_template", refuse)
        assert not takes_explicit_tools()
    spec = place.spec("guess", indices=[1, 4])
    try:
        assert inspect.ismethod(spec.environment_factory().guess)
    finally:
        takes_explicit_tools.cache_clear()
    assert "cannot be shown exact tool schemas: tools have to be functions" in caplog.text


def test_shaping_functions_see_the_episode(place: Place, tmp_path: Path):
    seen: list[Any] = []

    def shaping(environments: list[Any], number: list[int], **columns: Any) -> list[float]:
        seen.extend((e.finished, e.rewards, e.metadata["number"], n) for e, n in zip(environments, number, strict=True))
        return [1.0 if e.finished else -0.5 for e in environments]

    spec = place.spec("guess", indices=[1, 4])
    trainer = train(tmp_path, spec, guess_up_to(2), reward_funcs=[*spec.reward_funcs, shaping])
    assert seen[0] == (True, [-0.25, 1.0], 1, 1)
    assert seen[4] == (False, [-0.25, -0.25], 4, 4)
    assert logged(trainer, "rewards/shaping/mean") == [0.25]


def test_environments_may_own_their_reward(place: Place, tmp_path: Path):
    spec = place.spec("guess", indices=[0, 4], get_reward=True)
    assert spec.reward_funcs == []
    trainer = train(tmp_path, spec, guess_up_to(1))
    assert logged(trainer, "rewards/Guess/mean") == [pytest.approx((1.0 - 0.25) / 2)]


def test_several_environments_in_one_run(place: Place, tmp_path: Path):
    both = combine({"guess": place.spec("guess", indices=[0]), "last": place.spec("last", num_tasks=1)})

    def script(text: str, turn: int) -> str:
        if turn:
            return DONE
        guessing = '"name": "guess"' in text.split("\n</tools>")[0]
        return calls(("guess", '{"number": 0}')) if guessing else calls(("go", "{}"))

    trainer = train(tmp_path, both, script)
    assert logged(trainer, "rewards/episode_reward/mean") == [1.0]
    assert logged(trainer, "tools/failure_frequency") == [0.0]


def test_instances_are_reused_and_episodes_released(place: Place, tmp_path: Path):
    before = Guess.alive
    spec = place.spec("guess", num_tasks=10)
    trainer = train(tmp_path, spec, guess_up_to(1), max_steps=5)
    assert len(trainer._environment_pool[None]) == 8
    assert Guess.alive <= before + 8


class TestFaults:
    """Each through a real run. The run goes on, and what was lost is left out."""

    def test_a_gateway_that_is_down_at_construction(self):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        spec = EnvironmentSpec(f"http://127.0.0.1:{port}/environments/guess", patience=0.2)
        with pytest.raises(GatewayUnreachable, match=f"no answer from http://127.0.0.1:{port}"):
            _ = spec.train_dataset

    def test_a_gateway_that_is_not_one(self):
        with gateway() as serving, pytest.raises(Exception, match="does not name an environment"):
            _ = EnvironmentSpec(f"{serving.url}/", patience=0.2).train_dataset

    def test_a_gateway_that_restarts_during_the_run(self, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        port = 0
        first = gateway()
        serving = first.__enter__()
        port = serving.port
        spec = EnvironmentSpec(f"{serving.url}/environments/guess", indices=[0, 4], patience=patient(20))
        restarted: list[Any] = []

        def script(text: str, turn: int) -> str:
            if turn == 1 and not restarted:
                first.__exit__(None, None, None)
                restarted.append(gateway(port=port))
                restarted[0].__enter__()
            return calls(("guess", json.dumps({"number": 5 + turn}))) if turn < 3 else DONE

        try:
            trainer = train(tmp_path, spec, script, max_steps=2)
        finally:
            restarted[0].__exit__(None, None, None)
        # The first step's episodes were lost with the gateway; the second one's are whole.
        assert logged(trainer, "envport/lost_episodes") == [1.0, 0.0]
        assert logged(trainer, "rewards/episode_reward/mean") == [-0.75]
        assert "broke off in tool 'guess'" in caplog.text
        assert_finite(trainer)

    def test_a_gateway_that_goes_away_and_stays_away(self, tmp_path: Path):
        serving = gateway()
        url = f"{serving.__enter__().url}/environments/guess"
        spec = EnvironmentSpec(url, indices=[0, 4], patience=0.3, on_outage="skip")
        stopped: list[bool] = []

        def script(text: str, turn: int) -> str:
            if not stopped:
                serving.__exit__(None, None, None)
                stopped.append(True)
            return calls(("guess", '{"number": 5}')) if turn < 1 else DONE

        trainer = train(tmp_path, spec, script, max_steps=3)
        assert logged(trainer, "envport/lost_episodes") == [1.0, 1.0, 1.0]
        assert logged(trainer, "rewards/episode_reward/mean") == []
        assert_finite(trainer)

    def test_a_gateway_at_capacity(self, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        limits = Limits(max_episodes=8, wait_seconds=0.05)
        with gateway(limits=limits) as serving, Client(serving.url) as other:
            for _ in range(2):
                other.open("guess", task=0)
            spec = EnvironmentSpec(f"{serving.url}/environments/guess", indices=[0, 4], patience=0.3)
            trainer = train(tmp_path, spec, guess_up_to(0), max_steps=1)
        assert logged(trainer, "envport/lost_episodes") == [0.25]
        assert "all 8 episodes are in use" in caplog.text
        assert_finite(trainer)

    def test_episodes_of_the_last_step_make_room_for_those_of_the_next(self, tmp_path: Path):
        with gateway(limits=Limits(max_episodes=8, wait_seconds=patient(5.0))) as serving:
            spec = EnvironmentSpec(f"{serving.url}/environments/guess", num_tasks=10, patience=patient(5.0))
            trainer = train(tmp_path, spec, guess_up_to(0), max_steps=3)
        assert logged(trainer, "envport/lost_episodes") == [0.0, 0.0, 0.0]

    def test_a_tool_listing_that_changes(self, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        first = gateway()
        serving = first.__enter__()
        spec = EnvironmentSpec(f"{serving.url}/environments/guess", indices=[0, 4], patience=patient(20))
        changed: list[Any] = []

        def script(text: str, turn: int) -> str:
            if not changed:
                first.__exit__(None, None, None)
                changed.append(gateway(port=serving.port, guess="mirror:LastCounts"))
                changed[0].__enter__()
            return calls(("guess", '{"number": 5}')) if turn < 1 else DONE

        try:
            trainer = train(tmp_path, spec, script, max_steps=2)
        finally:
            changed[0].__exit__(None, None, None)
        assert "THE TOOL LISTING OF" in caplog.text
        assert caplog.text.count("HAS CHANGED") == 1
        assert logged(trainer, "tools/failure_frequency") == [1.0, 1.0]

    def test_a_row_without_a_task(self, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        spec = place.spec("guess", indices=[0, 4])
        rows = [{"prompt": [{"role": "user", "content": f"Row {n}."}]} for n in range(4)]

        class OwnRows:
            train_dataset = Dataset.from_list(rows)
            environment_factory = spec.environment_factory
            reward_funcs = spec.reward_funcs

        trainer = train(tmp_path, OwnRows, guess_up_to(1))
        assert "has no seed" in caplog.text
        assert logged(trainer, "envport/lost_episodes") == [0.0]

    def test_a_fault_in_one_episode_leaves_the_others_alone(self, place: Place, tmp_path: Path):
        advantages: list[float] = []

        def script(text: str, turn: int) -> str:
            if turn:
                return DONE
            script.turns += 1  # type: ignore[attr-defined]
            return calls(("break_down", "{}")) if script.turns == 1 else calls(("guess", '{"number": 0}'))

        script.turns = 0  # type: ignore[attr-defined]
        trainer = train(tmp_path, place.spec("guess", indices=[0, 4]), script, logging_steps=1)
        advantages = list(trainer._logs["advantages"])
        assert logged(trainer, "envport/lost_episodes") == [0.125]
        assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx((3 * 1.0 - 4 * 0.25) / 7)]
        assert advantages[0] == 0.0
        assert_finite(trainer)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "envport_bridges")
