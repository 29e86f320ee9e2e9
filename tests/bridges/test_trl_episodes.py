"""Episodes as a trainer plays them: rows, observations, rewards, ends. The same body in this process and over HTTP."""

from __future__ import annotations

import gc
import inspect
import json
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import running
from mirror import Guess, Held
from patience import patient
from places import Place
from tiny_model import calls, make_tokenizer
from trl.chat_template_utils import add_response_schema

from envport.errors import ConfigurationError, EpisodeFailed, InvalidArguments, ToolError, UnknownTask
from envport.registry import load
from envport_bridges.trl import EnvironmentSpec, combine, episode_reward
from envport_bridges.trl.turns import read_turn


def opened(spec: EnvironmentSpec, row: int = 0) -> Any:
    environment = spec.environment_factory()
    environment.reset(**spec.train_dataset[row])
    return environment


def test_a_reward_function_reads_the_trajectory(place: Place):
    environment = opened(place.spec("guess", indices=[3]))
    assert environment.trajectory == []
    environment.guess(number=1)
    with pytest.raises(InvalidArguments):
        environment.guess(number="three")
    environment.guess(number=3)
    first, refused, last = environment.trajectory
    assert [(one.index, one.tool, one.arguments) for one in (first, refused, last)] == [
        (1, "guess", {"number": 1}),
        (2, "guess", {"number": "three"}),
        (3, "guess", {"number": 3}),
    ]
    assert [one.reward for one in (first, last)] == environment.rewards
    assert (first.terminated, last.terminated, last.observation.text) == (False, True, "Right.")
    assert (first.error, refused.error, last.error) == (None, "invalid_arguments", None)
    assert "number" in refused.observation.text
    environment.reset(**place.spec("guess", indices=[3]).train_dataset[0])
    assert environment.trajectory == []


def test_rows_carry_split_task_seed_and_metadata(place: Place):
    dataset = place.spec("guess", split="train", num_tasks=3).train_dataset
    assert dataset.column_names == ["prompt", "seed", "split", "task_index", "task_id", "number", "prompt_"]
    row = dataset[2]
    assert row["prompt"] == [{"role": "user", "content": "Guess number 2.\n\n"}]
    assert (row["split"], row["task_index"], row["task_id"], row["number"]) == ("train", 2, "n2", 2)


def test_metadata_that_is_called_like_a_column_of_the_bridge_gets_a_prefix(place: Place):
    spec = place.spec("guess", split="test")
    row = spec.train_dataset[0]
    assert row["metadata_seed"] == "a word"
    assert isinstance(row["seed"], int)
    assert opened(spec).metadata == {"number": 3, "seed": "a word", "nested": {"a": [1]}}


def test_more_rows_than_tasks_play_them_again_with_other_seeds(place: Place):
    rows = place.spec("guess", num_tasks=25).train_dataset
    assert rows["task_index"][:] == [n % 10 for n in range(25)]
    assert len(set(rows["seed"][:])) == 25


def test_indices_choose_tasks(place: Place):
    assert place.spec("guess", indices=[7, 3]).train_dataset["number"][:] == [7, 3]
    with pytest.raises(UnknownTask, match="has no task 10; allowed: 0 to 9"):
        _ = place.spec("guess", indices=[10]).train_dataset
    with pytest.raises(UnknownTask, match="no split 'dev'"):
        _ = place.spec("guess", split="dev").train_dataset
    with pytest.raises(ConfigurationError, match="not both"):
        place.spec("guess", num_tasks=1, indices=[1])


def test_an_environment_without_tasks_has_rows_of_seeds(place: Place):
    dataset = place.spec("mirror", num_tasks=4).train_dataset
    assert dataset.column_names == ["prompt", "seed"]
    assert len(set(dataset["seed"][:])) == 4
    assert len(place.spec("mirror").train_dataset) == 256
    assert dataset["seed"][:] != place.spec("mirror", num_tasks=4, seed=1).train_dataset["seed"][:]


def test_a_row_has_the_instructions_where_the_task_has_no_prompt():
    (row,) = EnvironmentSpec("mirror:Instructed", num_tasks=1).train_dataset
    assert row["prompt"] == [{"role": "user", "content": "Say something.\n\n"}]


def test_reset_opens_the_episode_of_the_row(place: Place):
    spec = place.spec("guess", num_tasks=10)
    environment = spec.environment_factory()
    row = spec.train_dataset[4]
    assert environment.reset(**row) == f"[seed {row['seed']}]"
    assert environment.metadata["number"] == 4
    assert environment.guess(number=4) == "Right."
    assert (environment.reward, environment.finished) == (1.0, True)


def test_rows_of_a_group_play_the_same_episode(place: Place):
    spec = place.spec("guess", num_tasks=2)
    first, second = spec.environment_factory(), spec.environment_factory()
    row = spec.train_dataset[1]
    assert first.reset(**row) == second.reset(**row)
    assert first.episode_id != second.episode_id


def test_what_reward_functions_see(place: Place):
    environment = opened(place.spec("guess", num_tasks=10), 2)
    assert (environment.rewards, environment.reward, environment.score) == ([], None, 0.0)
    assert environment.last_output.startswith("[seed")
    environment.guess(number=0)
    environment.facts()
    environment.guess(number=2)
    assert environment.rewards == [-0.25, None, 1.0]
    assert (environment.reward, environment.score, environment.steps) == (0.75, 0.75, 3)
    assert environment.last_output == "Right."
    assert (environment.outcome.status, environment.outcome.reason) == ("terminated", "terminated")
    assert episode_reward(environments=[environment]) == [0.75]


def test_the_last_reward_counts_where_the_environment_says_so(place: Place):
    environment = opened(place.spec("last", num_tasks=1))
    for _ in range(3):
        environment.go()
    assert (environment.rewards, environment.reward) == ([1.0, 2.0, 3.0], 3.0)
    assert (environment.outcome.status, environment.outcome.reason) == ("truncated", "step_limit")


def test_after_the_end_a_call_is_answered_as_over_mcp(place: Place):
    environment = opened(place.spec("guess", num_tasks=10), 1)
    environment.guess(number=1)
    said = environment.guess(number=1)
    assert said.startswith("The episode is over and takes no more calls. It terminated after 1 step.")
    assert said == place.mcp_text(environment, "guess", {"number": 1})
    assert environment.guess(number="not even valid") == said
    assert environment.reward == 1.0


def test_arguments_that_break_the_schema_are_refused_before_they_are_sent(place: Place):
    environment = opened(place.spec("guess", num_tasks=10))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"number": "seven"}, "Argument 'number' is \"seven\"; it has to be an integer."),
        ({}, "Argument 'number' is missing; it has to be an integer."),
        ({"number": 1, "force": True}, "Argument 'force' is unknown; this tool's arguments are: number."),
    ]
    for arguments, words in refused:
        with pytest.raises(InvalidArguments) as told:
            environment.guess(**arguments)
        assert str(told.value) == words == place.mcp_text(environment, "guess", arguments)
    with pytest.raises(InvalidArguments, match="Argument 'number' cannot be written as JSON"):
        environment.guess(number=float("nan"))
    assert (environment.steps, environment.errors) == (0, 4)


def test_what_only_the_gateway_refuses_is_told_too(place: Place):
    environment = opened(place.spec("guess", num_tasks=10))
    with pytest.raises(InvalidArguments, match=r"'number'.*an integer"):
        environment.guess(number=1.0)
    assert (environment.steps, environment.errors, environment.finished) == (0, 1, False)


def test_an_error_of_the_environment_is_told_and_the_episode_goes_on(place: Place):
    environment = opened(place.spec("guess", num_tasks=10))
    with pytest.raises(ToolError, match="No answer to 'why'"):
        environment.ask(question="why")
    assert (environment.errors, environment.finished) == (1, False)
    assert environment.guess(number=0) == "Right."


def test_structured_data_is_shown_as_mcp_clients_show_it(place: Place):
    assert opened(place.spec("guess", num_tasks=1)).facts() == '{"even": true, "ü": "ß"}'


def test_images_come_as_blocks_for_a_vision_model(place: Place):
    shown = opened(place.spec("guess", num_tasks=1)).picture()
    assert shown[0] == {"type": "text", "text": "caption"}
    assert (shown[1]["type"], shown[1]["image"].size) == ("image", (1, 1))
    unreadable = opened(place.spec("guess", num_tasks=1)).attachments()
    assert unreadable == [{"type": "text", "text": "[unreadable image: image/png]"}]


@pytest.mark.parametrize(
    ("name", "tool", "owner"), [("guess", "break_down", "environment"), ("adapter", "lose_upstream", "infrastructure")]
)
def test_a_fault_is_no_reward(place: Place, name: str, tool: str, owner: str, caplog: pytest.LogCaptureFixture):
    environment = opened(place.spec(name, num_tasks=1))
    environment.guess(number=5)
    with pytest.raises(EpisodeFailed, match=f"fault of the {owner}") as raised:
        getattr(environment, tool)()
    assert "secret" not in str(raised.value)
    assert (environment.reward, environment.score) == (None, None)
    assert environment.outcome.fault == owner
    assert episode_reward(environments=[environment]) == [None]
    with pytest.raises(EpisodeFailed, match="over and takes no more calls"):
        environment.guess(number=0)
    assert f"broke off in tool '{tool}'" in caplog.text


def test_a_call_that_was_running_when_the_gateway_was_stopped_is_no_reward():
    with running(load("mirror:Held")) as gateway, ThreadPoolExecutor() as threads:
        environment = opened(EnvironmentSpec(f"{gateway.url}/environments/held", num_tasks=1))
        call = threads.submit(environment.hold)
        assert Held.called.wait(patient(30))
        gateway.run(lambda: gateway.gateway.table.drain(0))
        Held.let_go.set()
        assert call.result() == "held"
        assert (environment.outcome.reason, environment.outcome.fault) == ("shutdown", "infrastructure")
        assert environment.score is None


def test_a_row_that_cannot_be_played_is_lost_and_raises_nothing(place: Place, caplog: pytest.LogCaptureFixture):
    environment = place.spec("guess", num_tasks=1).environment_factory()
    assert environment.reset(split="train", task_index=99, seed=1) == "The environment could not be started."
    assert environment.score is None
    assert environment.reset(split="train", task_index="one", seed=1) == "The environment could not be started."
    assert "'task_index' holds 'one'" in caplog.text
    assert environment.reset(split="train", task_index=1, seed=1) == "[seed 1]"


def test_rows_without_a_seed_still_agree_within_their_group(place: Place, caplog: pytest.LogCaptureFixture):
    factory = place.spec("guess", num_tasks=1).environment_factory
    row = {"prompt": [{"role": "user", "content": "hi"}]}
    first, second = factory(), factory()
    assert first.reset(**row) == second.reset(**row)
    assert "has no seed" in caplog.text


def test_a_task_of_ones_own(place: Place):
    environment = place.spec("guess", num_tasks=1).environment_factory()
    environment.reset(seed=1, task={"id": "mine", "metadata": {"number": 77}})
    assert environment.guess(number=77) == "Right."


def test_a_call_without_a_reset_is_refused(place: Place):
    with pytest.raises(EpisodeFailed, match="not reset"):
        place.spec("guess", num_tasks=1).environment_factory().guess(number=1)


def test_episodes_are_released_at_reset_at_collection_and_at_exit(place: Place):
    spec = place.spec("guess", num_tasks=10)
    # Trainers of earlier tests may let go of theirs at any time, so that fewer are alive than before.
    gc.collect()
    before = Guess.alive
    environment = spec.environment_factory()
    for row in spec.train_dataset:
        environment.reset(**row)
    place.settle(lambda: Guess.alive <= before + 1)
    del environment
    gc.collect()
    place.settle(lambda: Guess.alive <= before)
    keep = [opened(spec, n) for n in range(5)]
    place.settle(lambda: Guess.alive <= before + 5)
    place.disconnect(spec)
    place.settle(lambda: Guess.alive <= before)
    assert len(keep) == 5


def test_the_factory_travels_to_another_process(place: Place):
    spec = place.spec("guess", num_tasks=10)
    factory = pickle.loads(pickle.dumps(spec.environment_factory))
    environment = factory()
    environment.reset(**spec.train_dataset[6])
    assert environment.guess(number=6) == "Right."
    assert pickle.loads(pickle.dumps(episode_reward)) is episode_reward


def test_helpers_are_no_functions_of_the_class(place: Place):
    environment = opened(place.spec("guess", num_tasks=1))
    functions = {name for name, _ in inspect.getmembers(type(environment), inspect.isfunction)}
    tools = {tool["name"] for tool in place.spec("guess").info.tools}
    assert {name for name in functions if not name.startswith("_")} == {"reset", *tools}


def test_several_environments_at_once(place: Place):
    both = combine({"guess": place.spec("guess", num_tasks=4), "mirror": place.spec("mirror", num_tasks=3)})
    dataset = both.train_dataset
    assert sorted(dataset["environment"][:]) == ["guess"] * 4 + ["mirror"] * 3
    for row in dataset:
        name = row.pop("environment")
        environment = both.environment_factory[name]()
        assert str(row["seed"]) in environment.reset(**row)
    assert both.reward_funcs == [episode_reward]


def test_columns_whose_values_do_not_agree_become_json(place: Place):
    from envport_bridges.trl.rows import plain_columns

    rows = plain_columns([{"a": 1, "b": "x"}, {"a": "one", "b": None}, {"b": "y"}])
    assert rows == [{"a": "1", "b": "x"}, {"a": '"one"', "b": None}, {"a": None, "b": "y"}]


HARD_TEXTS = [
    "",
    " ",
    "'",
    '"',
    "\\",
    "\\n",
    "\n\r\t\b\f",
    "😀👩‍👩‍👧",
    "\u0000",
    "\ud800",
    "a\udfffb",
    "\u2028\u2029\ufeff",
    "</tool_call>",
    "<|im_end|>",
    "{{ x }}",
    "null",
    "7",
    "x" * 100_000,
    "é" * 50_000,
]


@pytest.mark.parametrize("text", HARD_TEXTS, ids=[repr(text[:20]) for text in HARD_TEXTS])
def test_hard_texts_arrive_as_they_were_written(place: Place, text: str):
    environment = opened(place.spec("mirror", num_tasks=1))
    (tool,) = (getattr(environment, name) for name in type(environment)._tools if name == "show_text")
    assert json.loads(tool(text=text)) == {"text": text}


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 3 else 7)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, -1, rng.getrandbits(70), rng.random(), 1e-300, -2.5e10])
    if kind < 7:
        alphabet = "ab'\"\\/\n\t\x00\x1f{}[]:,<>|é\u202e😀\ud83d\udc00 $%"
        return "".join(rng.choice(alphabet) for _ in range(rng.randrange(12)))
    if kind == 7:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {random_value_text(rng): random_value(rng, depth + 1) for _ in range(rng.randrange(4))}


def random_value_text(rng: random.Random) -> str:
    return "".join(rng.choice("abé'\"\\ \n😀") for _ in range(rng.randrange(6)))


def test_ten_thousand_values_arrive_as_they_were_written(place: Place):
    """From the text that the model writes, through TRL's parser, to the environment."""
    rng = random.Random(0)
    tokenizer = add_response_schema(make_tokenizer())
    environment = opened(place.spec("mirror", num_tasks=1, cast_strings=False))
    show = environment.show
    for _ in range(place.many):
        # One call in ten thousand would be slow; a hundred values in one call are as good.
        # Two halves of a surrogate pair side by side are one character in JSON, whoever reads it.
        value = json.loads(json.dumps([random_value(rng) for _ in range(100)]))
        ids = tokenizer(calls(("show", json.dumps({"value": value}))), add_special_tokens=False)["input_ids"]
        (call,) = read_turn(tokenizer, ids, prefix=[], tools=[show])["tool_calls"]
        assert json.loads(show(**call["function"]["arguments"])) == {"value": value}
