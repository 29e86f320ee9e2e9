"""The model is shown every tool exactly as MCP lists it, and calls it by that."""

from __future__ import annotations

import inspect
import json
import time
from typing import Any

import pytest
from bubblewrap import needs_bubblewrap
from corpus import CORPUS, Entry
from tiny_model import calls, make_tokenizer
from trl.chat_template_utils import add_response_schema

from envport.classes import installed
from envport.errors import ConfigurationError, InvalidArguments, MissingExtra
from envport.registry import load
from envport_bridges.trl import EnvironmentSpec
from envport_bridges.trl.arguments import ArgumentSchema
from envport_bridges.trl.classes import environment_class
from envport_bridges.trl.contract import KNOWN_TRL, takes_explicit_tools, trl_version
from envport_bridges.trl.rollout_environment import RolloutEnvironment, ScoredEnvironment
from envport_bridges.trl.tools import ListedTool
from envport_bridges.trl.turns import read_turn


class Recorder:
    """A player that keeps what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, tool: ListedTool, arguments: dict[str, Any]) -> str:
        if problems := tool.arguments.problems(arguments):
            raise ValueError(problems)
        self.calls.append((tool.name, arguments))
        return "called"

    async def call_async(self, tool: ListedTool, arguments: dict[str, Any]) -> str:
        return self.call(tool, arguments)


def make(listing: list[dict[str, Any]], **options: Any) -> Any:
    player: Any = Recorder()
    return environment_class("demo", listing, RolloutEnvironment, **options)(player)


def tools_as_trl_finds_them(environment: Any) -> list[Any]:
    """The loop of GRPOTrainer and of AsyncGRPOTrainer's worker, as TRL 1.16 has it."""
    return [
        getattr(environment, name)
        for name, _ in inspect.getmembers(type(environment), predicate=inspect.isfunction)
        if name not in ("reset", "get_reward") and not name.startswith("_")
    ]


def rendered(tools: list[Any], tokenizer: Any) -> list[dict[str, Any]]:
    """The tool definitions as they stand in the prompt."""
    text = tokenizer.apply_chat_template([{"role": "user", "content": "go"}], tools=tools, tokenize=False)
    block = text.split("<tools>\n", 1)[1].rsplit("\n</tools>", 1)[0]
    return [json.loads(line) for line in block.split("\n")]


def same(left: Any, right: Any) -> bool:
    """Equal, and in the same order of keys."""
    return json.dumps(left) == json.dumps(right)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return add_response_schema(make_tokenizer())


def test_the_corpus_is_large_enough():
    assert len(CORPUS) >= 100


@pytest.mark.parametrize("asynchronous", [False, True], ids=["GRPO", "AsyncGRPO"])
@pytest.mark.parametrize("entry", CORPUS.values(), ids=CORPUS.keys())
def test_the_prompt_shows_the_schema_exactly(entry: Entry, asynchronous: bool, tokenizer: Any):
    listed, _ = entry
    (tool,) = tools_as_trl_finds_them(make([listed], asynchronous=asynchronous))
    (shown,) = rendered([tool], tokenizer)
    assert shown["function"]["name"] == listed["name"]
    assert shown["function"]["description"] == listed.get("description", "")
    assert same(shown["function"]["parameters"], listed["inputSchema"])


@pytest.mark.parametrize("entry", CORPUS.values(), ids=CORPUS.keys())
def test_every_tool_can_be_called_by_what_a_model_writes(entry: Entry, tokenizer: Any):
    listed, arguments = entry
    environment = make([listed])
    (tool,) = tools_as_trl_finds_them(environment)
    written = calls((json.dumps(listed["name"])[1:-1], json.dumps(arguments)))
    ids = tokenizer(written, add_special_tokens=False)["input_ids"]
    (call,) = read_turn(tokenizer, ids, prefix=[], tools=[tool])["tool_calls"]
    by_name = {tool.__name__: tool}
    assert by_name[call["function"]["name"]](**call["function"]["arguments"]) == "called"
    assert same(environment._player.calls, [(listed["name"], arguments)])


def test_tools_keep_the_order_of_the_listing():
    names = ["zoom", "act", "browser-click", "from", "10", "Ähre", "b", "a"]
    listing = [{"name": name, "inputSchema": {"type": "object", "properties": {}}} for name in names]
    assert [tool.__name__ for tool in tools_as_trl_finds_them(make(listing))] == names


def test_a_class_has_a_method_for_each_tool():
    listed, _ = CORPUS["enum of strings"]
    environment = make([listed])
    method = type(environment).act
    assert inspect.isfunction(method)
    assert str(inspect.signature(method)) == "(self, /, *, value: Literal['left', 'stay', 'right'])"
    assert inspect.getdoc(method) == "Act.\n\nArgs:\n    value: value"
    assert environment.act(value="left") == method(environment, value="left") == "called"


def test_names_that_collide_get_names_of_their_own():
    names = ["a-b", "a.b", "a_b", "a_b_2", "class", "tool_class", "reset", "_x", "__x__", "größe"]
    listing = [{"name": name, "inputSchema": {"type": "object", "properties": {}}} for name in names]
    environment = make(listing)
    by_identifier = {
        name: getattr(environment, name).__name__
        for name, _ in inspect.getmembers(type(environment), predicate=inspect.isfunction)
        if name != "reset" and not name.startswith("_")
    }
    assert sorted(by_identifier.values()) == sorted(names)
    assert all(name.isascii() and name.isidentifier() for name in by_identifier)
    assert by_identifier["a_b"] == "a_b"
    assert environment.reset.__func__ is RolloutEnvironment.reset


@pytest.mark.parametrize("base", [RolloutEnvironment, ScoredEnvironment])
def test_nothing_of_the_bridge_becomes_a_tool(base: type[Any]):
    player: Any = Recorder()
    assert tools_as_trl_finds_them(environment_class("demo", [], base)(player)) == []


def test_a_listing_with_two_tools_of_one_name_is_refused():
    listed, _ = CORPUS["string"]
    with pytest.raises(ConfigurationError, match="several tools named 'act'"):
        make([listed, listed])


@pytest.mark.parametrize(
    "options", [{}, {"asynchronous": True}, {"explicit": False}], ids=["GRPO", "AsyncGRPO", "hints"]
)
async def test_an_argument_without_a_name_is_refused_in_words(options: dict[str, Any]):
    environment = make([CORPUS["string"][0]], **options)

    async def call() -> None:
        await environment.act("a")

    with pytest.raises(TypeError, match="tool 'act' takes its arguments by name: write value='a', not 'a' alone"):
        await call()
    assert environment._player.calls == []


def test_an_async_tool_is_a_coroutine_function():
    (tool,) = tools_as_trl_finds_them(make([CORPUS["string"][0]], asynchronous=True))
    assert inspect.iscoroutinefunction(tool)
    (plain,) = tools_as_trl_finds_them(make([CORPUS["string"][0]]))
    assert not inspect.iscoroutinefunction(plain)


async def test_an_async_tool_is_awaited():
    (tool,) = tools_as_trl_finds_them(make([CORPUS["string"][0]], asynchronous=True))
    assert await tool(value="a") == "called"


@pytest.mark.parametrize("label", CORPUS.keys())
def test_the_annotated_form_can_be_rendered_and_called(label: str, tokenizer: Any):
    listed, arguments = CORPUS[label]
    environment = make([listed], explicit=False)
    (tool,) = tools_as_trl_finds_them(environment)
    (shown,) = rendered([tool], tokenizer)
    definition = type(environment)._tools[tool.__name__]
    assert shown["function"]["name"] == definition.identifier
    safe = {definition.parameters.safe.get(name, name): value for name, value in arguments.items()}
    assert tool(**safe) == "called"
    assert same(environment._player.calls, [(listed["name"], arguments)])


def test_the_annotated_form_says_what_it_loses():
    schema = {
        "type": "object",
        "properties": {
            "row": {"type": "integer", "minimum": 1},
            "point": {"type": "object", "properties": {"x": {}}, "required": ["x"]},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "a"}},
        },
        "additionalProperties": False,
    }
    environment = make([{"name": "act", "inputSchema": schema}], explicit=False)
    lost = type(environment)._tools["act"].annotated.lost
    assert set(lost) == {
        "additionalProperties", "row.minimum", "point.properties", "point.required", "tags.pattern",
    }  # fmt: skip


def test_schemas_are_known_to_be_exact_with_the_installed_trl():
    assert trl_version() in KNOWN_TRL
    assert takes_explicit_tools()


def test_ten_times_as_many_tools_take_about_ten_times_as_long():
    """The bench prints how long a thousand take."""
    entries = list(CORPUS.values())
    listing = [
        {**entries[n % len(entries)][0], "name": f"{entries[n % len(entries)][0]['name']}-{n}"} for n in range(1000)
    ]

    def seconds(count: int) -> float:
        began = time.process_time()
        tools = tools_as_trl_finds_them(make(listing[:count]))
        taken = time.process_time() - began
        assert [tool.__name__ for tool in tools] == [tool["name"] for tool in listing[:count]]
        return taken

    few, many = (min(seconds(count) for _ in range(3)) for count in (100, 1000))
    # Each with each would be a hundred times.
    assert many < 40 * few


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[needs_bubblewrap] if name == "workspace" else []) for name in installed()]
)
def test_every_built_in_environment_is_shown_exactly(name: str, tokenizer: Any):
    try:
        spec = EnvironmentSpec(name, num_tasks=1)
        environment = spec.environment_factory()
    except MissingExtra as missing:
        pytest.skip(str(missing))
    shown = rendered(tools_as_trl_finds_them(environment), tokenizer)
    assert [tool["function"]["name"] for tool in shown] == [tool["name"] for tool in spec.info.tools]
    for tool, listed in zip(shown, spec.info.tools, strict=True):
        assert same(tool["function"]["parameters"], listed["inputSchema"])
    environment.reset(**spec.train_dataset[0])
    assert environment.outcome is None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("choose", {"size": "klein"}),
        ("choose", {}),
        ("plan", {"trip": {"stops": [{"place": 1}]}, "urgent": "ja", "more": 1}),
        ("either", {"value": [1, "ü"]}),
        ("either", {"value": {}}),
        ("count_nodes", {"tree": {"value": 1, "children": [{"value": "x"}]}}),
    ],
)
def test_arguments_are_refused_in_the_gateway_s_words(name: str, arguments: dict[str, Any]):
    tool = load("showcase").tools[name]
    with pytest.raises(InvalidArguments) as refused:
        tool.bind(arguments)
    assert ArgumentSchema(tool.input_schema).problems(arguments) == str(refused.value)
