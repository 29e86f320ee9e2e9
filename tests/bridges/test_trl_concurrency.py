"""The concurrent trainer gives what the stock one gives, sooner, up to the end of each episode; and steps back where it
does not know the loop."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from mirror import Together
from places import Place
from test_trl_training import DONE, logged
from tiny_model import calls, config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer

from envport_bridges.trl import ConcurrentGRPOTrainer, internals
from envport_bridges.trl.play import Play


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


def endless(text: str, turn: int) -> str:
    """Plays as `lively` does, but for as long as it is asked."""
    written = lively(text, turn)
    return calls(("guess", '{"number": 4}')) if written == DONE else written


def run(
    tmp_path: Path, spec: Any, trainer_class: type[Any], script: Any = lively, by_rollout: bool = False, **options: Any
) -> Any:
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
        reward_funcs=spec.reward_funcs,
        **(
            {"rollout_func": spec.rollout_func, "train_dataset": spec.rollout_dataset}
            if by_rollout
            else {"environment_factory": spec.environment_factory, "train_dataset": spec.train_dataset}
        ),
    )
    made.train()
    return made, outputs


def rows(outputs: list[dict[str, Any]], key: str) -> list[list[int]]:
    """The completions of all batches, or what was noted of each of their tokens."""
    return [
        values[mask.bool()].tolist()
        for output in outputs
        for values, mask in zip(output[key], output["completion_mask"], strict=True)
    ]


def test_up_to_the_end_of_an_episode_it_gives_what_the_stock_trainer_gives(place: Place, tmp_path: Path):
    spec = place.spec("guess", num_tasks=10)
    stock, expected = run(tmp_path, spec, GRPOTrainer)
    ours, got = run(tmp_path, spec, ConcurrentGRPOTrainer)
    assert ours._side_by_side
    assert len(got) == len(expected) == 3
    for left, right in zip(expected, got, strict=True):
        for key in ("prompt_ids", "prompt_mask", "advantages"):
            assert torch.equal(left[key], right[key]), key
    cut = 0
    for key in ("completion_ids", "tool_mask"):
        for left, right in zip(rows(expected, key), rows(got, key), strict=True):
            assert left[: len(right)] == right
            cut += left != right
    for left, right in zip(stock._logs["completion"], ours._logs["completion"], strict=True):
        assert left[: len(right)] == right
    assert 0 < cut < 2 * 24, "some episodes ended, and some did not"
    for key in ("tools/call_frequency", "tools/failure_frequency", "reward", "loss", "envport/lost_episodes"):
        assert logged(stock, key) == logged(ours, key), key
    assert max(logged(stock, "tools/failure_frequency")) > 0


def test_it_stops_where_the_episode_is_over(place: Place, tmp_path: Path):
    """A model that never stops calling is asked for nothing after the end, as with `rollout_func`."""
    spec = place.spec("guess", num_tasks=10)
    ours, got = run(tmp_path, spec, ConcurrentGRPOTrainer, endless)
    plain, expected = run(tmp_path, spec, GRPOTrainer, endless, by_rollout=True)
    assert not any("Right." in text for text in ours.seen)
    assert sorted(ours.seen) == sorted(plain.seen)
    for key in ("completion_ids", "tool_mask"):
        assert rows(got, key) == rows(expected, key)
    # What the environment said last is kept for reward functions, though the model never read it.
    assert list(ours._logs["completion"]) == list(plain._logs["completion"])
    assert any("Right." in messages[-1]["content"] for messages in ours._logs["completion"])
    assert logged(ours, "completions/clipped_ratio") == logged(plain, "completions/clipped_ratio")


def most_at_once(tmp_path: Path, spec: Any, trainer_class: type[Any], rollouts: int, wanted: int) -> int:
    """How many of a turn's calls are under way at a time; they wait until as many are as are wanted."""
    Together.expect(wanted)
    script = scripted(trainer_class, lambda text, turn: calls(("wait", "{}")) if turn == 0 else DONE)
    tokenizer = make_tokenizer()
    trained = script(
        model=make_model(tokenizer),
        args=config(tmp_path, per_device_train_batch_size=rollouts, max_tool_calling_iterations=1),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    trained.train()
    assert logged(trained, "tools/failure_frequency") == [0.0]
    return Together.most


def test_the_calls_of_sixty_four_rollouts_are_under_way_at_once(place: Place, tmp_path: Path):
    """The bench prints how long that takes."""
    spec = place.spec("together", num_tasks=64)
    assert most_at_once(tmp_path, spec, ConcurrentGRPOTrainer, 64, wanted=64) == 64
    assert most_at_once(tmp_path, spec, GRPOTrainer, 8, wanted=1) == 1


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


def test_while_episodes_are_played_threads_get_python_s_lock_soon(place: Place, tmp_path: Path):
    before, while_played = sys.getswitchinterval(), set[float]()

    class Watched(ConcurrentGRPOTrainer):
        def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> Any:
            while_played.add(sys.getswitchinterval())
            return super()._get_tool_suffix_ids(tool_messages)

    run(tmp_path, place.spec("guess", num_tasks=10), Watched)
    assert while_played
    assert max(while_played) <= before / 10
    assert sys.getswitchinterval() == before


def test_an_unknown_loop_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(internals, "_KNOWN_LOOPS", {})
    caplog.set_level(logging.WARNING, "envport_bridges")
    spec = Place().spec("guess", num_tasks=10)
    ours, got = run(tmp_path, spec, ConcurrentGRPOTrainer)
    _, expected = run(tmp_path, spec, GRPOTrainer)
    assert not ours._side_by_side
    assert "one after another, not concurrently: the tool loop of TRL" in caplog.text
    assert all(torch.equal(a["completion_ids"], b["completion_ids"]) for a, b in zip(got, expected, strict=True))


def test_a_changed_loop_is_noticed():
    assert internals.loop_is_known(GRPOTrainer.__mro__)

    class Changed(GRPOTrainer):
        def _tool_call_loop(self, *args: Any) -> Any:
            return super()._tool_call_loop(*args)

    assert not internals.loop_is_known(Changed.__mro__)
    assert not internals.loop_is_known([object])
