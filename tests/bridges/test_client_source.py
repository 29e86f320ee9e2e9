"""`envport client` writes a client that plays as every other one does, whatever the tools are called and say."""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import envport_here
from corpus import CORPUS
from patience import patient

from envport import Environment, Task, ToolDefinition
from envport.errors import ConfigurationError, EpisodeOver, InvalidArguments
from envport_bridges.client_source import client_source
from envport_bridges.rollouts import Rollouts

REFUSED = {"unresolvable $ref", "remote $ref", "file $ref", "broken pattern", "unknown type", "properties of null"}
"""What an environment cannot have."""
ENTRIES = [
    (f"{tool['name']} {number}", tool, arguments)
    for number, (label, (tool, arguments)) in enumerate(CORPUS.items())
    if label not in REFUSED
]


class Listed(Environment):
    '''Has every tool of the corpus. \\ """'''

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"seed {seed}"

    def tool_definitions(self) -> list[ToolDefinition]:
        return [
            ToolDefinition(name, tool["inputSchema"], "show", str(tool.get("description", "")))
            for name, tool, _ in ENTRIES
        ]

    def show(self, name: str, arguments: dict[str, Any]) -> str:
        return json.dumps([name, arguments])


def imported(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (name,) = module.__all__
    return getattr(module, name)


def written(environment: str, folder: Path) -> Path:
    done = envport_here("client", environment, "--output", str(folder / "client_of_it.py"))
    assert done.returncode == 0, done.stderr
    return folder / "client_of_it.py"


def test_it_plays_as_every_other_client(tmp_path: Path):
    Catch = imported(written("catch", tmp_path))
    with Rollouts("catch").open(seed=3) as rollout, Catch() as env:
        first = env.reset(seed=3)
        assert (env.prompt, first.text) == (rollout.prompt, rollout.observation.text)
        while rollout.outcome is None:
            reply, other = env.move("left"), rollout.call("move", {"direction": "left"})
            assert (reply.content, reply.reward, reply.done) == (
                other.content,
                other.reward,
                rollout.outcome is not None,
            )
        assert (env.reward, env.outcome) == (rollout.reward, rollout.outcome)
        with pytest.raises(EpisodeOver):
            env.move("left")
        assert "Ball in column" in env.reset(seed=4).text
        assert env.outcome is None
        assert env.finish() is None or env.reward is not None


def test_an_argument_that_is_left_out_is_the_environment_s(tmp_path: Path):
    Showcase = imported(written("showcase", tmp_path))
    with Showcase() as env:
        env.reset(seed=0)
        assert '"level": 2' in env.choose("small").text
        assert '"level": 3' in env.choose("small", level=3).text
        with pytest.raises(InvalidArguments):
            env.choose("tiny")
        assert env.call_tool("add_note", {"text": "by name"}).is_error is False


def test_no_tool_is_too_strange(tmp_path: Path):
    """Names that are no identifiers, descriptions that would end a docstring, schemas that hold themselves."""
    info = Rollouts("test_client_source:Listed").environment
    file = tmp_path / "listed.py"
    file.write_text(client_source(info, "test_client_source:Listed"), "utf-8")
    Client = imported(file)
    methods = [name for name in vars(Client) if callable(vars(Client)[name])]
    assert len(methods) == len(ENTRIES)
    with Client() as env:
        env.reset(seed=0)
        for method, (name, _, arguments) in zip(methods, ENTRIES, strict=True):
            schema = next(tool["inputSchema"] for tool in info.tools if tool["name"] == name)
            keys = list(schema.get("properties", {}))
            if not set(arguments) <= set(keys):
                continue  # What a schema takes beside its properties has no parameter.
            keys.sort(key=lambda key: key not in schema.get("required", ()))
            parameters = dict(zip(keys, list(inspect.signature(getattr(env, method)).parameters), strict=True))
            reply = getattr(env, method)(**{parameters[key]: value for key, value in arguments.items()})
            assert json.loads(reply.text) == [name, arguments]


def test_the_type_checker_knows_the_tools(tmp_path: Path):
    made = [written("showcase", tmp_path), tmp_path / "listed.py"]
    info = Rollouts("test_client_source:Listed").environment
    made[1].write_text(client_source(info, "test_client_source:Listed"), "utf-8")
    (tmp_path / "use.py").write_text(
        "from client_of_it import Showcase\n"
        "env = Showcase()\n"
        "env.plan({'start': 'home', 'stops': [{'place': 'sea'}]})\n"
        "env.plan({'start': 1, 'stops': []})\n"
        "env.choose('tiny')\n"
        "env.choose('small', level=2)\n"
        "env.no_such_tool()\n"
    )
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportPrivateUsage": false}')
    checked = subprocess.run(
        [
            Path(sys.executable).with_name("pyright"),
            "--outputjson",
            "--pythonpath",
            sys.executable,
            "--project",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    found = json.loads(checked.stdout)["generalDiagnostics"]
    where = {(Path(it["file"]).name, it["range"]["start"]["line"] + 1) for it in found if it["severity"] == "error"}
    assert where == {("use.py", 4), ("use.py", 5), ("use.py", 7)}, found


def test_a_client_for_other_tools_is_refused(tmp_path: Path):
    Catch = imported(written("catch", tmp_path))
    with pytest.raises(ConfigurationError, match="Catch was made for other tools than 'echo' has: make it anew"):
        Catch("echo")


def test_bad_input_is_refused(tmp_path: Path):
    for words, why in (
        (("nothing-here",), "there is no environment"),
        (("catch", "--output", str(tmp_path / "client.txt")), "its name has to end in .py"),
        (("http://127.0.0.1:9/environments/catch",), "no answer"),
    ):
        done = envport_here("client", *words)
        assert done.returncode in (1, 2)
        assert why in done.stderr
    assert not list(tmp_path.iterdir())
