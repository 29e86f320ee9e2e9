"""A gateway that is away, or too small, never burns a run: it stops, waits or goes on, as it was told."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from places import gateway
from test_trl_rollout import train as train_by_rollout_func
from test_trl_training import DONE, guess_up_to, logged, train
from tiny_model import Script, calls, config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer

from envport.episodes import Limits
from envport.errors import ConfigurationError
from envport_bridges.rollouts import notices
from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec, combine
from envport_bridges.trl.outage import TooManyLost
from envport_bridges.trl.outage_callback import OutageCallback


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Holds the gateway; closing it stops the gateway."""
    with ExitStack() as stack:
        yield stack


def leaving_in_batch(number: int, running: ExitStack) -> Script:
    """Plays well, but the gateway goes during a batch."""
    written = [0]

    def script(text: str, turn: int) -> str:
        written[0] += turn == 0
        # Eight episodes are in a batch.
        if written[0] > 8 * (number - 1):
            running.close()
        return calls(("guess", json.dumps({"number": turn}))) if turn < 2 else DONE

    return script


@pytest.mark.parametrize("kind", ["stock", "concurrent", "rollout_func"])
def test_the_run_stops_with_a_checkpoint(running: ExitStack, tmp_path: Path, kind: str):
    url = running.enter_context(gateway()).url
    spec = EnvironmentSpec(f"{url}/environments/guess", indices=[0, 4], patience=0.0)
    script = leaving_in_batch(2, running)
    run = {
        "stock": train,
        "concurrent": partial(train, trainer_class=ConcurrentGRPOTrainer),
        "rollout_func": train_by_rollout_func,
    }[kind]
    with pytest.raises(TooManyLost, match="100%, 100%, 100% of the episodes of the last 3 batches were lost") as raised:
        run(tmp_path, spec, script, max_steps=9)
    assert f"{tmp_path}/checkpoint-4" in str(raised.value)
    state = json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text())
    lost = [entry["envport/lost_episodes"] for entry in state["log_history"] if "envport/lost_episodes" in entry]
    assert lost == [0.0, 1.0, 1.0, 1.0]


def test_a_stopped_run_goes_on_from_its_checkpoint(running: ExitStack, tmp_path: Path):
    url = running.enter_context(gateway()).url
    spec = EnvironmentSpec(f"{url}/environments/guess", indices=[0, 4], patience=0.0)
    with pytest.raises(TooManyLost):
        train(tmp_path, spec, leaving_in_batch(1, running), max_steps=5)
    with gateway() as serving:
        spec = EnvironmentSpec(f"{serving.url}/environments/guess", indices=[0, 4])
        tokenizer = make_tokenizer()
        trainer = scripted(GRPOTrainer, guess_up_to(2))(
            model=make_model(tokenizer),
            args=config(tmp_path, max_steps=5),
            processing_class=tokenizer,
            train_dataset=spec.train_dataset,
            environment_factory=spec.environment_factory,
            reward_funcs=spec.reward_funcs,
        )
        trainer.train(resume_from_checkpoint=True)
    assert logged(trainer, "envport/lost_episodes") == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_a_run_that_was_told_to_goes_on(running: ExitStack, tmp_path: Path):
    url = running.enter_context(gateway()).url
    spec = EnvironmentSpec(f"{url}/environments/guess", indices=[0, 4], patience=0.0, on_outage="skip")
    trainer = train(tmp_path, spec, leaving_in_batch(1, running), max_steps=5)
    assert logged(trainer, "envport/lost_episodes") == [1.0] * 5


def test_a_run_that_was_told_to_waits(running: ExitStack, tmp_path: Path):
    serving = running.enter_context(gateway())
    port, said = serving.port, list[str]()
    spec = EnvironmentSpec(f"{serving.url}/environments/guess", indices=[0, 4], patience=0.0, on_outage="wait")
    again = ExitStack()

    class Restarting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "wait for the gateway" in record.getMessage():
                said.append(record.getMessage())
                if len(said) == 1:
                    again.enter_context(gateway(port=port))

    def script(text: str, turn: int) -> str:
        # The second batch begins.
        if len(finished) == 8 and turn == 0:
            running.close()
        if turn:
            finished.append(text)
            return DONE
        return calls(("guess", '{"number": 0}'))

    finished: list[str] = []
    handler = Restarting()
    notices.logger.addHandler(handler)
    try:
        with again:
            trainer = train(tmp_path, spec, script, max_steps=3)
    finally:
        notices.logger.removeHandler(handler)
    # What was being played is lost, and no other episode.
    assert logged(trainer, "envport/lost_episodes") == [0.0, 1.0, 0.0]
    assert len(said) == 1
    assert "however long it takes" in said[0]


def test_too_few_places_are_said_at_construction(tmp_path: Path):
    with gateway(limits=Limits(max_episodes=7)) as serving:
        spec = EnvironmentSpec(f"{serving.url}/environments/guess", indices=[0])
        with pytest.raises(ConfigurationError, match=r"plays 8 episodes of 'guess' at once, .* has places for 7"):
            train(tmp_path, spec, guess_up_to(1))
        assert spec.info.limits.places == 7


@pytest.mark.parametrize(
    "limits",
    [{"max_episodes_per_principal": 3}, {"max_episodes_of": {"guess": 3}}, {"max_episodes_per_environment": 3}],
)
def test_whatever_limit_is_the_narrowest_counts(limits: dict[str, Any]):
    with gateway(limits=Limits(**limits)) as serving:
        assert EnvironmentSpec(f"{serving.url}/environments/guess", indices=[0]).info.limits.places == 3


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigurationError, match="on_outage is 'panic'; allowed: 'stop', 'wait', 'skip'"):
        EnvironmentSpec("catch", on_outage="panic")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the same on_outage"):
        combine({"a": EnvironmentSpec("catch"), "b": EnvironmentSpec("maze", on_outage="skip")})


def test_an_asynchronous_trainer_is_stopped_by_what_it_logs(tmp_path: Path):
    (callback,) = EnvironmentSpec("catch").callbacks
    (idle,) = EnvironmentSpec("catch", on_outage="skip").callbacks
    trainer = train(tmp_path, EnvironmentSpec("mirror:Guess", indices=[0]), guess_up_to(1))
    for one, stops in ((callback, True), (idle, False)):
        control = type(trainer.control)()
        for share in (1.0, 0.5, 0.6, 0.9):
            one.on_log(trainer.args, trainer.state, control, logs={"envport/lost_episodes": share})
            assert not control.should_training_stop
        one.on_log(trainer.args, trainer.state, control, logs={"envport/lost_episodes": 0.7})
        assert (control.should_training_stop, control.should_save) == (stops, stops)
    assert isinstance(callback, OutageCallback)
    with pytest.raises(TooManyLost, match="60%, 90%, 70%"):
        callback.on_train_end(trainer.args, trainer.state, trainer.control)
