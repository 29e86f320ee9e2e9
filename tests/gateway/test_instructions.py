"""The docstring is for people, and `instructions` are for players, wherever either is shown."""

from typing import Any

import pytest
from harness import ERAS, Era, connect, running, texts

from envport import AsyncClient, Client, Environment, Task, TaskSource, tool
from envport.checker import examine
from envport.errors import InvalidEnvironment
from envport.registry import EnvironmentDefinition, load

FOR_PEOPLE = "A port of the board game, with its usual options."
FOR_PLAYERS = "You are in a maze.\n  Find the way out."


class Maze(Environment):
    """A port of the board game, with its usual options.

    Attributes:
        size: Of the maze.
    """

    instructions = """
        You are in a maze.
          Find the way out.
    """

    def splits(self) -> dict[str, TaskSource]:
        return {"train": [Task(id="plain"), Task(id="own", prompt="Find the cheese.")]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "dark"

    @tool
    def go(self) -> str:
        """Go on."""
        return "darker"


class Sized(Maze):
    """Has instructions that depend on its options."""

    def __init__(self, size: int = 3):
        self.instructions = f"The maze is {size} wide."


class Untold(Environment):
    """Says nothing else."""

    reset = Maze.reset
    go = Maze.go


@pytest.fixture(scope="module")
def served():
    options: dict[str, Any] = {"size": 7}
    with running(
        EnvironmentDefinition("maze", Maze),
        EnvironmentDefinition("sized", Sized, options),
        EnvironmentDefinition("untold", Untold),
    ) as gateway:
        yield gateway


@pytest.mark.parametrize("era", ERAS)
async def test_players_read_the_instructions_and_not_the_docstring(served, era: Era):
    async with AsyncClient(served.url) as control:
        plain, own = [await control.open("maze", task=index) for index in (0, 1)]
    assert (plain.prompt, own.prompt) == (FOR_PLAYERS, "Find the cheese.")
    async with connect(plain.mcp_url, era) as client:
        assert client.instructions == f"{FOR_PLAYERS}\n\ndark"
        assert (await client.get_prompt("task")).messages[0].content.text == FOR_PLAYERS
    async with connect(f"{served.url}/environments/maze/mcp", era) as client:
        assert (client.instructions or "").startswith(f"{FOR_PLAYERS}\n\nCall start_episode")
        (begun,) = texts(await client.call_tool("start_episode", {"task": 0}))
    assert begun.endswith(f"\n\n{FOR_PLAYERS}\n\ndark")
    assert "board game" not in begun


def test_people_and_trainers_read_both(served):
    with Client(served.url) as control:
        info = control.environment("maze")
        assert (info.description, info.instructions) == (FOR_PEOPLE, FOR_PLAYERS)
        assert control.environment("sized").instructions == "The maze is 7 wide."
        untold = control.environment("untold")
        assert untold.instructions == untold.description == "Says nothing else."


class Called(Maze):
    """Has a tool of that name."""

    @tool
    def instructions(self) -> str:  # type: ignore[override]
        """Instruct."""
        return ""


def test_what_is_no_text_is_refused_with_the_remedy():
    with pytest.raises(
        InvalidEnvironment, match=r"instructions is a \w+; it has to be text.*@tool\(name='instructions'\)"
    ):
        load(f"{__file__}:Called")


async def test_the_checker_says_who_misses_the_docstring():
    class Bare(Environment):
        instructions = "Go."
        reset = Maze.reset
        go = Maze.go

    (finding,) = (await examine(Bare, seeds=(0,), steps=1, another_process=False)).findings
    assert finding.message == "the class has no docstring; people see it in lists"
