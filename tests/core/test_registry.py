"""Finding environments, and saying plainly why one cannot be served."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envport import Environment, Task, ToolDefinition
from envport.app import Gateway
from envport.classes import installed
from envport.episodes import resolve
from envport.errors import (
    ConfigurationError,
    EnvironmentNotFound,
    InvalidEnvironment,
    InvalidOption,
    UnknownTask,
)
from envport.registry import EnvironmentDefinition, load
from envport.types import Choice

FILE = '''
from __future__ import annotations
import datetime, enum
from typing import Annotated, Any, Literal
from pydantic import BaseModel, Field
from envport import Environment, Task, tool

class Mode(enum.Enum):
    EASY = "easy"
    HARD = "hard"

class Size(BaseModel):
    width: int

class OpenDoorEnvironment(Environment):
    """Open the door."""

    def __init__(self, mode: Mode = Mode.EASY, tries: Annotated[int, Field(ge=1)] = 3, fast: bool = False,
                 names: list[str] = [], size: Size | None = None, day: datetime.date | None = None,
                 kind: Literal["a", "b"] = "a", **rest: Any):
        self.options = dict(mode=mode, tries=tries, fast=fast, names=names, size=size, day=day, kind=kind)

    def splits(self):
        return {"all": [{"id": 7, "prompt": None, "answer": "x"}, {"question": "q"}, Task(id="own")]}

    def reset(self, *, seed, task):
        return "closed"

    @tool
    def knock(self, mode: Mode) -> str:
        """Knock."""
        return mode.value

class Strict(Environment):
    def __init__(self, key: int):
        if key < 0:
            raise ValueError("key is negative")

    def reset(self, *, seed, task): ...

    @tool
    def act(self) -> str: ...

class Unbegun(Environment):
    @tool
    def act(self) -> str: ...

class Taken(Environment):
    def reset(self, *, seed, task): ...

    @tool
    def start_episode(self) -> str: ...

class Argument(Environment):
    def reset(self, *, seed, task): ...

    @tool
    def act(self, episode_id: str) -> str: ...

NOT_ONE = 3
'''


@pytest.fixture
def door(tmp_path: Path) -> str:
    path = tmp_path / "door.py"
    path.write_text(FILE)
    return str(path)


def test_built_in_environments_are_announced_as_entry_points() -> None:
    assert {"echo", "counter", "catch", "wordle", "sudoku", "maze", "showcase"} <= set(installed())
    spec = load("counter")
    assert spec.name == "counter"
    assert spec.cls.__module__ == "envport_envs.counter"


def test_by_module_and_class() -> None:
    spec = load("envport_envs.counter:CounterEnvironment")
    assert spec.name == "counter"
    assert list(spec.tools) == ["count"]


def test_by_file_and_class(door: str) -> None:
    spec = load(f"{door}:OpenDoorEnvironment")
    assert spec.name == "open_door"
    assert spec.description == "Open the door."
    assert spec.tools["knock"].bind({"mode": "hard"})["mode"].name == "HARD"
    # Loading it again gives the same class.
    assert load(f"{door}:OpenDoorEnvironment").cls is spec.cls


def test_two_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    specs: list[EnvironmentDefinition] = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "same.py"
        path.write_text(FILE.replace("Open the door.", folder))
        specs.append(load(f"{path}:OpenDoorEnvironment"))
    assert [spec.description for spec in specs] == ["one", "two"]
    assert "same" not in sys.modules


def test_served_under_another_name() -> None:
    assert load("mine=counter").name == "mine"
    assert load("mine=counter", name="yours").name == "yours"
    with pytest.raises(ConfigurationError, match="cannot name an environment"):
        load("a/b=counter")


@pytest.mark.parametrize(
    ("query", "option", "value"),
    [
        ("mode=hard", "mode", "hard"),
        ("tries=5", "tries", 5),
        ("fast=true", "fast", True),
        ("fast=0", "fast", False),
        ('names=["a","b"]', "names", ["a", "b"]),
        ('size={"width":2}', "size", 2),
        ("day=2024-02-29", "day", datetime.date(2024, 2, 29)),
        ("kind=b", "kind", "b"),
        ("tries=4&kind=b", "tries", 4),
    ],
)
def test_options_are_read_as_the_types_of_the_constructor(door: str, query: str, option: str, value: Any) -> None:
    environment: Any = load(f"{door}:OpenDoorEnvironment?{query}").prototype
    found = environment.options[option]
    assert {"mode": lambda: found.value, "size": lambda: found.width}.get(option, lambda: found)() == value
    assert load(f"{door}:OpenDoorEnvironment?{query}").make() is not environment


@pytest.mark.parametrize(
    ("reference", "error", "complaint"),
    [
        ("nonsense", EnvironmentNotFound, "there is no environment 'nonsense'; installed: .*counter"),
        ("cach", EnvironmentNotFound, "there is no environment 'cach', did you mean 'catch'\\?; installed: .*counter"),
        ("./own.py", EnvironmentNotFound, "own.py is a file: name the class in it too, as in ./own.py:MyEnvironment"),
        ("no.such.module:Thing", EnvironmentNotFound, "there is no module 'no.such.module'"),
        ("./nowhere.py:Thing", EnvironmentNotFound, "there is no file ./nowhere.py"),
        ("envport_envs.counter:Nothing", EnvironmentNotFound, "no 'Nothing'; environments there: CounterEnvironment"),
        ("envport.types:Task", InvalidEnvironment, "not a subclass of envport.Environment"),
        ("{door}:NOT_ONE", InvalidEnvironment, "not a subclass"),
        ("{door}:Nothing", EnvironmentNotFound, "OpenDoorEnvironment, Strict, Unbegun, Taken, Argument"),
        ("{door}:Unbegun", InvalidEnvironment, r"Unbegun has no reset\(\), which begins an episode: write def reset"),
        ("{door}:Taken", InvalidEnvironment, "'start_episode'"),
        ("{door}:Argument", InvalidEnvironment, "'episode_id'"),
        ("{door}:Strict", InvalidOption, "needs the options key"),
        ("{door}:Strict?key=-1", InvalidOption, "key is negative"),
        ("{door}:Strict?key=x", InvalidOption, "'key' is 'x'; it has to be an integer"),
        ("{door}:OpenDoorEnvironment?tries=0", InvalidOption, "'tries' is '0'; it has to be an integer at least 1"),
        ("{door}:OpenDoorEnvironment?mode=odd", InvalidOption, "'mode' is 'odd'; it has to be one of .*hard"),
        ("{door}:OpenDoorEnvironment?kind=c", InvalidOption, "'kind' is 'c'"),
        ("{door}:OpenDoorEnvironment?tries=1&tries=2", InvalidOption, "'tries' is given twice"),
        (
            "{door}:OpenDoorEnvironment?wrong=1",
            InvalidOption,
            'no option \'wrong\'; its options are: mode \\(one of "easy", "hard"\\), t',
        ),
        ("counter?x=1", InvalidOption, "no option 'x'; its options are: none"),
    ],
)
def test_each_mistake_has_one_clear_line(door: str, reference: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint) as caught:
        load(reference.replace("{door}", door))
    assert "\n" not in str(caught.value)


def test_a_file_that_python_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("class :")
    with pytest.raises(InvalidEnvironment, match=r"broken\.py: invalid syntax"):
        load(f"{path}:Thing")


def test_a_module_that_misses_another_says_which(tmp_path: Path) -> None:
    path = tmp_path / "needy.py"
    path.write_text("import package_that_is_not_there")
    with pytest.raises(ModuleNotFoundError, match="package_that_is_not_there"):
        load(f"{path}:Thing")


def test_tasks_are_read_by_index_from_tasks_and_mappings(door: str) -> None:
    spec = load(f"{door}:OpenDoorEnvironment")
    assert spec.default_split == "all"
    assert spec.num_tasks("all") == 3
    assert spec.task("all", 0) == Task(id="7", metadata={"answer": "x"})
    assert spec.task("all", 1) == Task(id="all/1", metadata={"question": "q"})
    assert spec.task("all", 2) == Task(id="own")
    for index in (-1, 3):
        with pytest.raises(UnknownTask, match="allowed: 0 to 2"):
            spec.task("all", index)
    with pytest.raises(UnknownTask, match="no split 'some'; its splits are: 'all'"):
        spec.task("some", 0)
    with pytest.raises(UnknownTask, match="its splits are: none"):
        load("counter").num_tasks("train")


def test_an_environment_class_is_checked_when_it_is_defined() -> None:
    with pytest.raises(InvalidEnvironment, match="reset has to take seed and task"):

        class NoArguments(Environment):
            def reset(self) -> None: ...  # type: ignore[override]

    with pytest.raises(InvalidEnvironment, match="runtime is 'cloud'; allowed: 'inline', 'thread'"):

        class Cloudy(Environment):
            runtime = "cloud"  # type: ignore[assignment]

    with pytest.raises(InvalidEnvironment, match="reward is 'mean'"):

        class Mean(Environment):
            reward = "mean"  # type: ignore[assignment]

    for most in (0, -1, 1.5, True, "two"):
        with pytest.raises(InvalidEnvironment, match=r"max_episodes is .*; allowed: a whole number from 1, or None"):
            type("Few", (Environment,), {"max_episodes": most, "reset": Environment.reset})


def listed(tool: str, description: str = "", **schema: Any) -> type[Environment]:
    class Listed(Environment):
        def reset(self, *, seed: int, task: Task | None) -> str: ...

        def tool_definitions(self) -> list[ToolDefinition]:
            return [ToolDefinition("fine", {}, "act"), ToolDefinition(tool, schema, "act", description)]

        def act(self, name: str, arguments: Any) -> str: ...

    return Listed


def documented(text: str) -> type[Environment]:
    cls = listed("look")
    cls.__doc__ = text
    return cls


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (listed("a\ud800b"), r"tool 'a\\ud800b' of .*Listed cannot be listed: .*lone surrogate '\\ud800'"),
        (listed("look", "See \udfff."), r"tool 'look' of .*lone surrogate '\\udfff'"),
        (listed("look", description="x", properties={"x": {"default": float("nan")}}), "tool 'look' .* as JSON"),
        (listed("look", properties={"x": {"description": "\ud800"}}), "tool 'look' of .*lone surrogate"),
        (documented("About \ud800."), "'one': its docstring cannot be shown: .*lone surrogate"),
    ],
)
def test_what_cannot_be_shown_to_clients_is_refused_at_the_start(cls: type[Environment], said: str) -> None:
    with pytest.raises(InvalidEnvironment, match=said):
        Gateway([EnvironmentDefinition("one", cls)])


def test_options_that_cannot_be_shown_are_refused_at_the_start() -> None:
    cls = type("Free", (listed("look"),), {"__init__": lambda self, it=None: None})
    for fine in (float("inf"), float("nan"), Path("a"), datetime.date(2026, 1, 1), {"a": [None]}):
        Gateway([EnvironmentDefinition("one", cls, {"it": fine})])
    for bad in ("a\udc80", b"\xff", object()):
        with pytest.raises(InvalidOption, match="environment 'one': option 'it' cannot be shown: "):
            Gateway([EnvironmentDefinition("one", cls, {"it": bad})])


@pytest.mark.parametrize(
    ("splits", "said"),
    [
        (["train"], r"splits\(\) returned a list; it has to return a mapping .*\"train\": tasks"),
        (None, "returned a NoneType; it has to return a mapping"),
        ({"train": 7}, r"split 'train' is a int; it has to have len\(\) and \[index\], such as a list"),
        ({"train": iter([])}, "split 'train' is a list_iterator"),
        ({"train": {"a": 1}}, "split 'train' is a dict"),
        ({"train": "abc"}, "split 'train' is a str"),
        ({1: []}, "1 cannot name a split"),
        ({"": []}, "'' cannot name a split"),
        ({"\ud800": []}, "cannot name a split"),
    ],
)
def test_splits_of_another_shape_are_refused_at_the_start(splits: Any, said: str) -> None:
    cls = type("Split", (listed("look"),), {"splits": lambda self: splits})
    with pytest.raises(InvalidEnvironment, match=said):
        Gateway([EnvironmentDefinition("one", cls)])


def test_an_empty_split_and_a_task_of_another_shape_are_said_in_words() -> None:
    cls = type("Split", (listed("look"),), {"splits": lambda self: {"none": [], "odd": ["a"]}})
    spec = EnvironmentDefinition("one", cls)
    for choice in (Choice(), Choice(task=0), Choice(split="none", seed=3)):
        with pytest.raises(UnknownTask, match="split 'none' of 'one' has no tasks"):
            resolve(spec, choice)
    with pytest.raises(InvalidEnvironment, match="task 0 of split 'odd' is a str; it has to be a Task or a mapping"):
        resolve(spec, Choice(split="odd"))


def test_the_gateway_does_not_import_what_it_serves() -> None:
    code = (
        "import sys, envport.registry; print([m for m in sys.modules if m.startswith(('envport_envs', 'envport_b'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
