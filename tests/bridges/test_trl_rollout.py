"""`rollout_func`: the same episodes, without a turn after the end; and what AsyncGRPOTrainer's worker gets."""

from __future__ import annotations

import asyncio
import inspect
import json
import multiprocessing
import pickle
import queue
import threading
from pathlib import Path
from typing import Any

import pytest
from accelerate.state import PartialState
from patience import patient
from places import Place
from test_trl_training import DONE, assert_finite, guess_up_to, logged
from test_trl_training import train as train_stock
from tiny_model import calls, config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop

from envport.errors import ConfigurationError
from envport_bridges.trl import episode_reward


def train(tmp_path: Path, spec: Any, script: Any, trainer_class: type[Any] = GRPOTrainer, **options: Any) -> Any:
    tokenizer = make_tokenizer()
    reward_funcs = options.pop("reward_funcs", spec.reward_funcs)
    trainer = scripted(trainer_class, script)(
        model=make_model(tokenizer),
        args=config(tmp_path, **options),
        processing_class=tokenizer,
        train_dataset=spec.rollout_dataset,
        rollout_func=spec.rollout_func,
        reward_funcs=reward_funcs,
    )
    trainer.train()
    return trainer


def test_a_rollout_function_plays_the_rows(place: Place, tmp_path: Path):
    spec = place.spec("guess", indices=[1, 4])
    trainer = train(tmp_path, spec, guess_up_to(3))
    assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx((0.75 - 0.75) / 2)]
    assert logged(trainer, "tools/call_frequency") == [2.5]
    assert logged(trainer, "envport/lost_episodes") == [0.0]
    assert_finite(trainer)


def test_it_stops_where_the_episode_is_over(place: Place, tmp_path: Path):
    spec = place.spec("guess", indices=[1, 4])
    turns: list[int] = []

    def script(text: str, turn: int) -> str:
        turns.append(turn)
        return calls(("guess", '{"number": 1}')) if turn < 3 else DONE

    trainer = train(tmp_path, spec, script)
    # Task 1 is over after its first turn; task 4 goes on to its fourth.
    assert sorted(turns) == [0] * 8 + [1] * 4 + [2] * 4 + [3] * 4
    assert all("Right." not in text for text in trainer.seen)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_it_calls_tools_as_often_as_the_stock_trainer_does(place: Place, tmp_path: Path, most: int):
    spec = place.spec("guess", indices=[4, 5])
    options = {"max_tool_calling_iterations": most}
    mine = train(tmp_path, spec, guess_up_to(9), **options)
    stock = train_stock(tmp_path, spec, guess_up_to(9), **options)
    assert logged(mine, "tools/call_frequency") == logged(stock, "tools/call_frequency") == [float(most)]
    assert len(mine.seen) == len(stock.seen) == 8 * (most + 1)


def test_only_what_the_model_wrote_is_trained_on(place: Place, tmp_path: Path):
    spec = place.spec("guess", indices=[4, 5])
    kept: list[Any] = []

    class Kept(scripted(GRPOTrainer, guess_up_to(2))):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            kept.append(super()._generate_and_score_completions(inputs))
            return kept[-1]

    tokenizer = make_tokenizer()
    Kept(
        model=make_model(tokenizer),
        args=config(tmp_path),
        processing_class=tokenizer,
        train_dataset=spec.rollout_dataset,
        rollout_func=spec.rollout_func,
        reward_funcs=spec.reward_funcs,
    ).train()
    ids, mask = kept[0]["completion_ids"][0], kept[0]["tool_mask"][0]
    written = [calls(("guess", json.dumps({"number": number}))) for number in range(2)]
    assert tokenizer.decode(ids[mask.bool()]) == "".join([*written, DONE])
    assert tokenizer.decode(ids[~mask.bool()]).count("Wrong.") == 2
    # What would leave no room for an answer ends the rollout before it.
    written_until, shown_until = (int(place) + 1 for place in mask.diff().nonzero()[:2])
    trainer = train(tmp_path, spec, guess_up_to(2), max_completion_length=shown_until)
    assert logged(trainer, "completions/max_length") == [written_until]


def test_reward_functions_read_the_conversation_as_it_was(place: Place, tmp_path: Path):
    spec = place.spec("guess", indices=[1, 4])
    read: dict[str, list[Any]] = {}

    def reader(prompts: list[Any], completions: list[Any], completion_ids: list[Any], **columns: Any) -> list[float]:
        read.update(prompts=list(prompts), completions=list(completions), completion_ids=list(completion_ids))
        return [0.0] * len(prompts)

    trainer = train(tmp_path, spec, guess_up_to(2), reward_funcs=[*spec.reward_funcs, reader])
    mine = dict(read)
    stock = train_stock(tmp_path, spec, guess_up_to(2), reward_funcs=[*spec.reward_funcs, reader])
    assert mine["prompts"] == read["prompts"]
    assert mine["prompts"][0][-1]["content"] == f"Guess number 1.\n\n[seed {spec.rows[0]['seed']}]"
    # Task 4 was not found: both play it alike. Task 1 was found, and the model is not asked again.
    assert mine["completions"][4:] == read["completions"][4:]
    assert mine["completion_ids"][4:] == read["completion_ids"][4:]
    found = mine["completions"][0]
    assert [message["role"] for message in found] == ["assistant", "tool", "assistant", "tool"]
    assert found == read["completions"][0][: len(found)]
    assert found[-1] == {"role": "tool", "name": "guess", "content": "Right."}
    # What TRL writes into its table of completions is the same.
    assert list(trainer._logs["completion"]) == mine["completions"]
    assert list(trainer._logs["prompt"]) == list(stock._logs["prompt"])


def test_errors_and_odd_calls_are_told_in_a_rollout_function_too(place: Place, tmp_path: Path):
    def script(text: str, turn: int) -> str:
        odd = calls(("fly", "{}"), ("guess", '["x"]'), ("guess", '{"number": "x"}'), ("break_down", "{}"))
        return odd if turn == 0 and "number 4" in text else DONE

    trainer = train(tmp_path, place.spec("guess", indices=[1, 4]), script)
    assert logged(trainer, "tools/failure_frequency") == [1.0]
    assert logged(trainer, "envport/lost_episodes") == [0.5]


def test_a_long_observation_ends_the_rollout(place: Place, tmp_path: Path):
    trainer = train(tmp_path, place.spec("guess", indices=[1, 4]), guess_up_to(6), max_completion_length=60)
    assert max(logged(trainer, "completions/max_length")) <= 60


class Worker(_AsyncRolloutLoop):
    """The worker of AsyncGRPOTrainer, in this process, with a script instead of a vLLM server."""

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        text = self.tokenizer.decode(prompt_ids)
        self.seen = [*getattr(self, "seen", []), text]
        written = self.script(text, text.count("<|im_start|>assistant") - 1)
        ids = self.tokenizer(written, add_special_tokens=False)["input_ids"]
        await asyncio.sleep(0)
        return ids, [0.0] * len(ids)


def async_samples(spec: Any, factory: Any, script: Any, count: int, reward_funcs: Any = (), **options: Any) -> Any:
    """Run the worker until it has made that many samples."""
    # Its process begins with this; the worker logs.
    PartialState()
    context = multiprocessing.get_context("spawn")
    tokenizer = make_tokenizer()
    samples: queue.Queue[Any] = queue.Queue()
    factory = pickle.loads(pickle.dumps(factory))
    worker = Worker(
        model_name="script",
        dataset=spec.train_dataset,
        reward_funcs=list(reward_funcs),
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        rollout_buffer=samples,
        model_version_value=context.Value("i", 0),
        heartbeat_value=context.Value("d", 0.0),
        failed_event=threading.Event(),
        exception_info_queue=queue.Queue(),
        metrics_queue=queue.Queue(),
        environment_factory=factory,
        num_generations=4,
        max_inflight_tasks=8,
        max_tool_calling_iterations=6,
        chat_template_kwargs={"sanitize_control_tokens": True},
        **options,
    )
    worker.script = script
    failure: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    made = []
    try:
        while len(made) < count and not failure:
            try:
                made.append(samples.get(timeout=0.2))
            except queue.Empty:
                assert thread.is_alive() or failure
    finally:
        if thread.is_alive():
            worker._loop.call_soon_threadsafe(worker._stop_event.set)
        thread.join(patient(30))
    if failure:
        raise failure[0]
    return worker, made


def test_the_async_worker_plays_with_exact_schemas(place: Place):
    spec = place.spec("guess", indices=[1, 4])
    worker, samples = async_samples(spec, spec.async_environment_factory, guess_up_to(3), 8)
    assert {sample.metrics["rewards/Guess"] for sample in samples} <= {0.75, -0.75}
    assert sum(sample.metrics["tools/call_frequency"] for sample in samples) > 0
    block = worker.seen[0].split("<tools>\n", 1)[1].split("\n</tools>", 1)[0]
    shown = [json.dumps(json.loads(line)["function"]["parameters"]) for line in block.split("\n")]
    assert shown == [json.dumps(tool["inputSchema"]) for tool in spec.info.tools]


def test_the_async_workers_tools_are_awaited_not_put_into_threads(place: Place):
    spec = place.spec("guess", indices=[3])
    environment = spec.async_environment_factory()
    environment.reset(**spec.rows[0])
    assert inspect.iscoroutinefunction(environment.guess)
    assert environment.get_reward() == 0.0
    assert asyncio.run(environment.guess(number=3)) == "Right."
    assert environment.get_reward() == 1.0


def test_episodes_are_open_before_the_async_worker_asks(place: Place):
    spec = place.spec("guess", num_tasks=6, patience=61)  # a connection of its own
    factory = spec.opened_ahead(num_generations=4, episodes=5)
    instances = [factory() for _ in range(4)]
    for row in spec.train_dataset:
        for instance in instances:
            assert instance.reset(**row) == f"[seed {row['seed']}]"
    ahead = factory._ahead
    # Every reset but the very first found its episode open.
    assert ahead.foreseen == 6 * 4 - 1
    place.settle(lambda: len(ahead._connection._held) == 4 + 5)


def test_an_order_that_was_not_foreseen_is_played_all_the_same(place: Place):
    spec = place.spec("guess", num_tasks=6)
    instance = spec.opened_ahead(num_generations=2, episodes=3)()
    for position in (3, 0, 5, 5, 1):
        row = spec.train_dataset[position]
        assert instance.reset(**row) == f"[seed {row['seed']}]"


def test_the_async_worker_with_episodes_opened_ahead(place: Place):
    spec = place.spec("guess", indices=[1, 4])
    _, samples = async_samples(spec, spec.opened_ahead(4, 6), guess_up_to(3), 8)
    assert {sample.metrics["rewards/Guess"] for sample in samples} <= {0.75, -0.75}


def test_reward_functions_in_the_async_trainer_say_what_to_use(place: Place):
    with pytest.raises(ConfigurationError, match="async_environment_factory"):
        episode_reward(prompts=[], completions=[])
