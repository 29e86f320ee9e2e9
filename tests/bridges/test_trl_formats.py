"""Every chat format that TRL knows: tools are shown exactly, and calls arrive as the model wrote them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from corpus import CHOICES, COMBINED, CORPUS, PARAMETER_NAMES, READ_AS_TEXT, TOOL_NAMES, TYPES
from mirror import Reader
from places import Place
from slow import slow
from test_trl_training import DONE, logged
from tiny_model import TEMPLATES, calls, config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer
from trl.chat_template_utils import add_response_schema

from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec
from envport_bridges.trl.arguments import ArgumentSchema
from envport_bridges.trl.formats import CallFormat, CallWriter
from envport_bridges.trl.matrix import PATHS, compare, tool_templates
from envport_bridges.trl.readings import read_arguments

NAMES = ("tool name 'browser-click'", "tool name 'a b'", "parameter name 'a-b'", "parameter name 'from'")
SHORT = {**TYPES, **CHOICES, **COMBINED, **READ_AS_TEXT} | {
    label: entry for label, entry in {**TOOL_NAMES, **PARAMETER_NAMES}.items() if label in NAMES
}
OF_EACH_KIND = {"gemma4_v5", "glm4moe", "gptoss", "lfm2_v2", "llama3_1", "nemotron_3_nano", "qwen3", "qwen3_5_think"}
TEXTUAL = ["qwen3_5_nothink", "nemotron_3_nano", "glm4moe", "lfm2_v2"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    made = make_tokenizer()
    made.bos_token = "<s>"
    return made


def test_the_installed_trl_has_the_templates_that_are_known():
    names = set(tool_templates())
    assert {*TEXTUAL, "qwen2_5", "qwen3", "qwen3_5_think", "qwen3_6", "qwen3_8", "gemma4_v5", "gptoss"} <= names
    assert "llama3_1" in names
    assert not {"deepseek_r1_distill", "phi3"} & names


@pytest.mark.parametrize("template", [*sorted(OF_EACH_KIND), *slow(sorted({*tool_templates()} - OF_EACH_KIND))])
def test_tools_are_shown_exactly_and_calls_come_back_equal(template: str, tokenizer: Any):
    cells = list(compare(tokenizer, [template], SHORT))
    assert [cell.path for cell in cells] == list(PATHS)
    for cell in cells:
        assert cell.wrong == []
        assert cell.exact == len(SHORT)
        assert cell.equal + len(cell.said) == len(SHORT)
        assert len(cell.said) <= 16


@pytest.mark.slow
def test_so_are_all_tools_of_the_corpus(tokenizer: Any):
    for cell in compare(tokenizer, tool_templates(), CORPUS):
        assert cell.wrong == []


@pytest.mark.parametrize("template", ["qwen3", "llama3_1", *slow(["qwen2_5", "qwen3_vl", "llama3_2"])])
def test_json_formats_carry_everything(template: str, tokenizer: Any):
    for cell in compare(tokenizer, [template], SHORT):
        assert (cell.equal, cell.said) == (len(SHORT), [])


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("qwen3", CallFormat(exact=True)),
        ("gptoss", CallFormat(exact=True)),
        ("qwen3_5_think", CallFormat(exact=False, nulls=frozenset({"null", "None"}))),
        ("glm4moe", CallFormat(exact=False, nulls=frozenset({"null", "None"}))),
        ("lfm2_v2", CallFormat(exact=False, nulls=frozenset({"None"}))),
    ],
)
def test_how_a_format_writes_values_is_found_out(template: str, expected: CallFormat):
    assert CallFormat.of(CallWriter(make_tokenizer(template))) == expected


def test_the_tokenizer_is_left_for_the_trainer_to_complete():
    untouched = make_tokenizer("qwen3_5_think")
    CallFormat.of(CallWriter(untouched))
    assert getattr(untouched, "response_template", None) is None


NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
SMALL = {"type": "integer", "maximum": 5}
EITHER = {"type": ["string", "integer"]}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        pytest.param({"type": "string"}, "7", "7", id="text stays text"),
        pytest.param(EITHER, "7", "7", id="text stays text where a number fits too"),
        pytest.param({"type": "string"}, "null", "null", id="null stays text where null is not taken"),
        pytest.param(NULLABLE, "null", None, id="null is null where null is taken"),
        pytest.param(NULLABLE, "None", None, id="None is null where null is taken"),
        pytest.param(NULLABLE, "nothing", "nothing", id="other text is not null"),
        pytest.param({"type": "integer"}, "7", 7, id="a number"),
        pytest.param({"type": "number"}, "1e3", 1000.0, id="a number with an exponent"),
        pytest.param({"type": "integer"}, "1_000", "1_000", id="not a number of JSON"),
        pytest.param({"type": "number"}, "NaN", "NaN", id="NaN is not JSON"),
        pytest.param({"type": "boolean"}, "True", True, id="a Python literal"),
        pytest.param({"type": "boolean"}, "1", "1", id="1 is not true"),
        pytest.param({"type": "array"}, "['a', None]", ["a", None], id="a Python list"),
        pytest.param({"type": "array"}, "(1, 2)", "(1, 2)", id="a Python tuple is none"),
        pytest.param({"type": "object"}, "{1, 2}", "{1, 2}", id="a Python set is no object"),
        pytest.param(SMALL, "7", 7, id="a number that is too large is a number"),
        pytest.param({"anyOf": [SMALL, {"type": "null"}]}, "7", 7, id="and in a union"),
        pytest.param({"type": "string", "minLength": 3}, "7", "7", id="text that is too short is text"),
        pytest.param({"enum": ["1", 2]}, "2", 2, id="an untyped enum, a number"),
        pytest.param({"enum": ["1", 2]}, "1", "1", id="an untyped enum, text"),
        pytest.param({"enum": ["1", 2]}, "3", "3", id="neither"),
        pytest.param({"const": {"a": 1}}, '{"a": 1}', {"a": 1}, id="a constant"),
        pytest.param({"not": {"type": "string"}}, "7", 7, id="anything but text"),
        pytest.param({"$ref": "#/$defs/missing"}, "7", "7", id="a schema that cannot be applied"),
    ],
)
def test_text_is_read_by_the_schema(schema: dict[str, Any], text: str, value: Any):
    whole = ArgumentSchema({"type": "object", "properties": {"x": schema, "other": {"pattern": "\\p{L}"}}})
    read = read_arguments({"x": text, "other": 3}, whole, {"null", "None"})
    assert json.dumps(read) == json.dumps({"x": value, "other": 3})


def test_text_is_read_again_when_another_argument_has_said_which_kind_it_is():
    kinds = {"if": {"properties": {"kind": {"const": 1}}}, "then": {"properties": {"x": {"type": "integer"}}}}
    schema = ArgumentSchema({"type": "object", "properties": {"x": {}, "kind": {"type": "integer"}}, **kinds})
    assert read_arguments({"x": "7", "kind": "1"}, schema, {"null"}) == {"x": 7, "kind": 1}
    assert read_arguments({"x": "7", "kind": "2"}, schema, {"null"}) == {"x": "7", "kind": 2}


def made(trainer_class: type[Any], spec: Any, template: str, tmp_path: Path) -> Any:
    """A trainer whose model has a chat template."""
    tokenizer = make_tokenizer(template)
    return trainer_class(
        model=make_model(tokenizer),
        args=config(tmp_path),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )


def reader_call(template: str) -> str:
    """What a model writes in a format to call the tool `place` of `Reader` with everything right."""
    model = make_tokenizer(template)
    add_response_schema(model)
    return CallWriter(model).write("place", Reader.RIGHT)[1]


MODES = ("stock", "concurrent", "rollout_func")
# Where it plays is nothing to the format, and the way of training little: each format once, each way twice or more.
RUNS = [
    (template, MODES[number % len(MODES)], "in process")
    for number, template in enumerate((*TEXTUAL, "qwen3_8", "qwen3_instruct_2507"))
] + [(TEXTUAL[0], MODES[1], "gateway")]
OTHER_RUNS = [(template, mode, "in process") for template, own, _ in RUNS[:-1] for mode in MODES if mode != own]


@pytest.mark.parametrize(
    ("template", "mode", "place"),
    [*RUNS, *(pytest.param(*run, marks=pytest.mark.slow) for run in OTHER_RUNS)],
    indirect=["place"],
)
def test_a_model_of_any_family_is_rewarded_for_a_right_call(template: str, mode: str, place: Place, tmp_path: Path):
    """A pydantic model, an untyped enum and an optional value, through a real run."""
    spec = place.spec("reader", num_tasks=2)
    written = reader_call(template)
    script = scripted(
        ConcurrentGRPOTrainer if mode == "concurrent" else GRPOTrainer,
        lambda text, turn: DONE if written in text else written,
    )
    playing = (
        {"rollout_func": spec.rollout_func, "train_dataset": spec.rollout_dataset}
        if mode == "rollout_func"
        else {"environment_factory": spec.environment_factory, "train_dataset": spec.train_dataset}
    )
    model = make_tokenizer(template)
    trainer = script(
        model=make_model(model),
        args=config(tmp_path),
        processing_class=model,
        reward_funcs=spec.reward_funcs,
        **playing,
    )
    trainer.train()
    assert logged(trainer, "tools/failure_frequency") == [0.0]
    assert logged(trainer, "rewards/episode_reward/mean") == [1.0]
    # Whatever the format, the model was shown the tool.
    assert all("place" in text and "Where to go" in text for text in trainer.seen[:8])


def test_what_a_format_cannot_carry_is_said_at_construction(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    spec = place.spec("mirror", num_tasks=2)
    made(GRPOTrainer, spec, "lfm2_v2", tmp_path)
    (said,) = [record.getMessage() for record in caplog.records if "chat format cannot carry" in record.getMessage()]
    assert "any call of the tool 'show-text'" in said
    assert "any call of the tool 'show'" not in said
    # An argument of any type: what LFM2 writes for it comes back as text.
    assert "True as argument 'value' of 'show'" in said
    assert "values with a single quote in a text" in said


def test_a_format_that_carries_everything_says_nothing(place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    spec = place.spec("mirror", num_tasks=2)
    made(ConcurrentGRPOTrainer, spec, "qwen3_instruct_2507", tmp_path)
    assert "cannot carry" not in caplog.text


@pytest.mark.parametrize(("cast", "expected"), [(None, False), (False, False), (True, True)])
def test_text_for_a_number_is_refused_where_the_format_has_numbers(
    place: Place, tmp_path: Path, cast: bool | None, expected: bool
):
    spec = place.spec("guess", indices=[1, 4], cast_strings=cast)
    writer = scripted(GRPOTrainer, lambda text, turn: DONE if turn else calls(("guess", '{"number": "1"}')))
    trainer = made(writer, spec, "qwen3_instruct_2507", tmp_path)
    trainer.train()
    assert logged(trainer, "tools/failure_frequency") == [0.0 if expected else 1.0]


def test_an_environment_made_by_hand_takes_arguments_as_they_are(place: Place):
    environment: Any = place.spec("guess", indices=[1]).environment_factory()
    environment.reset(**place.spec("guess", indices=[1]).rows[0])
    with pytest.raises(Exception, match="Argument 'number' is \"1\"; it has to be an integer"):
        environment.guess(number="1")


def test_a_schema_that_leads_back_to_itself_is_not_followed_for_ever(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    entry = {label: CORPUS[label] for label in ("deep", "recursive")}
    tokenizer = make_tokenizer("qwen3_5_nothink")
    tokenizer.bos_token = "<s>"
    assert all(not cell.wrong for cell in compare(tokenizer, ["qwen3_5_nothink"], entry))


def test_the_templates_folder_is_trl_s():
    assert {path.stem for path in TEMPLATES.glob("*.jinja")} >= set(tool_templates())


def test_every_built_in_environment_can_be_called_in_every_format(tokenizer: Any):
    spec = EnvironmentSpec("catch", num_tasks=1)
    corpus = {tool["name"]: (tool, {"direction": "left"}) for tool in spec.info.tools}
    for cell in compare(tokenizer, tool_templates(), corpus):
        assert (cell.exact, cell.equal) == (1, 1), cell
