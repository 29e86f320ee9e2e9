"""The concurrent trainer gives what the stock one gives, sooner; and steps back where it does not know the loop."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from places import Place
from test_trl_training import DONE, logged
from tiny_model import calls, config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer

from envport_bridges.trl import ConcurrentGRPOTrainer, trainer
from envport_bridges.trl.play import Play
from envport_bridges.trl.trainer import loop_is_known


def lively(text: str, turn: int) -> str:
    """Plays, errs, calls several tools at once, and breaks some environments."""
    kind = len(text) % 5
    if turn >= 4 or "Right." in text:
        return DONE
    if turn == 1 and kind == 0:
        return calls(("ask", '{"question": "?"}'), ("guess", '{"number": "x"}'), ("nothing", "{}"))
    if turn == 2 and kind == 1:
        return calls(("break_down", "{}"))
    if turn == 2 and kind == 2:
        return calls(("guess", '{"number": 0}'), ("guess", '{"number": 1}'), ("facts", "{}"))
    return calls(("guess", json.dumps({"number": turn})))


def run(tmp_path: Path, spec: Any, trainer_class: type[Any], script: Any = lively, **options: Any) -> Any:
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    outputs: list[dict[str, Any]] = []

    class Kept(scripted(trainer_class, script)):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            outputs.append(super()._generate_and_score_completions(inputs))
            return outputs[-1]

    made = Kept(
        model=make_model(tokenizer),
        args=config(tmp_path, max_steps=3, **options),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    made.train()
    return made, outputs


def test_it_gives_what_the_stock_trainer_gives(place: Place, tmp_path: Path):
    spec = place.spec("guess", num_tasks=10)
    stock, expected = run(tmp_path, spec, GRPOTrainer)
    ours, got = run(tmp_path, spec, ConcurrentGRPOTrainer)
    assert ours._side_by_side
    assert len(got) == len(expected) == 3
    for left, right in zip(expected, got, strict=True):
        for key in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages"):
            assert torch.equal(left[key], right[key]), key
    assert list(stock._logs["completion"]) == list(ours._logs["completion"])
    for key in ("tools/call_frequency", "tools/failure_frequency", "reward", "completions/mean_length", "loss"):
        assert logged(stock, key) == logged(ours, key), key
    assert logged(stock, "envport/lost_episodes") == logged(ours, "envport/lost_episodes")
    assert max(logged(stock, "tools/failure_frequency")) > 0


def seconds_until_all_tools_answered(tmp_path: Path, spec: Any, trainer_class: type[Any], rollouts: int) -> float:
    """From the first tool call of a turn to the last result, without the model's and the tokenizer's time."""
    times: list[float] = []

    class Timed(scripted(trainer_class, lambda text, turn: calls(("wait", "{}")) if turn == 0 else DONE)):
        def _tool_call_loop(self, *args: Any, **kwargs: Any) -> Any:
            times.append(time.perf_counter())
            return super()._tool_call_loop(*args, **kwargs)

        def _get_tool_suffix_ids(self, tool_messages: Any) -> Any:
            if hasattr(self, "_resolve"):
                self._resolve(tool_messages)
            assert tool_messages[0]["content"] == "waited"
            times.append(time.perf_counter())
            return [self._tokenizer.eos_token_id]

    tokenizer = make_tokenizer()
    Timed(
        model=make_model(tokenizer),
        args=config(tmp_path, per_device_train_batch_size=rollouts, max_tool_calling_iterations=1),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    ).train()
    return times[rollouts] - times[0]


def test_sixty_four_rollouts_wait_for_the_slowest_not_for_each(place: Place, tmp_path: Path):
    spec = place.spec("slow", num_tasks=64)
    ours = seconds_until_all_tools_answered(tmp_path, spec, ConcurrentGRPOTrainer, 64)
    stock = seconds_until_all_tools_answered(tmp_path, spec, GRPOTrainer, 8)
    # Each call takes 0.1 s. The bench prints how long 64 take; here there is room for a busy machine.
    assert ours < 1.0
    assert stock > 0.8


def test_episodes_are_opened_together_and_the_next_ones_while_the_model_is_updated(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    order: list[str] = []
    submit, start = Play._submit, Play.start
    monkeypatch.setattr(Play, "_submit", lambda self, row: (order.append("open"), submit(self, row))[1])
    monkeypatch.setattr(Play, "start", lambda self, row: (order.append("start"), start(self, row))[1])
    run(tmp_path, place.spec("guess", num_tasks=10), ConcurrentGRPOTrainer)
    # Three steps of five: after the third, a fourth was to be expected.
    assert order == (["open"] * 8 + ["start"] * 8) * 3 + ["open"] * 8


def test_an_unknown_loop_is_left_alone(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(trainer, "_KNOWN_LOOPS", {})
    assert not loop_is_known()
    caplog.set_level(logging.WARNING, "envport_bridges")
    spec = place.spec("guess", num_tasks=10)
    ours, got = run(tmp_path, spec, ConcurrentGRPOTrainer)
    _, expected = run(tmp_path, spec, GRPOTrainer)
    assert not ours._side_by_side
    assert "has a tool loop that is not known" in caplog.text
    assert all(torch.equal(a["completion_ids"], b["completion_ids"]) for a, b in zip(got, expected, strict=True))


def test_a_changed_loop_is_noticed():
    assert loop_is_known(GRPOTrainer)

    class Changed(GRPOTrainer):
        def _tool_call_loop(self, *args: Any) -> Any:
            return super()._tool_call_loop(*args)

    assert not loop_is_known(Changed)
    assert not loop_is_known(object)
