"""What a player reads who keeps the first content block only, or the structured content only, as real clients do."""

import json
from typing import Any

import pytest
from command_line import command
from environments import Short
from harness import ERAS, MODE, Era, Raw, connect, running, seat, texts
from mcp import Client, StdioServerParameters
from pydantic import BaseModel, ConfigDict

from envport import Client as Control
from envport import Environment, Step, Task, ToolDefinition, ToolError, tool
from envport.registry import EnvironmentDefinition
from envport.types import Observation


class Found(BaseModel):
    place: str


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    place: str


class Rooms(Environment):
    """Walk through rooms."""

    max_steps = 2

    def reset(self, *, seed: int, task: Task | None) -> list[str]:
        return ["You are in the hall.", "It is dark."]

    def tool_definitions(self) -> list[ToolDefinition]:
        one_key = {"type": "object", "maxProperties": 1}
        return [ToolDefinition("smell", {}, "_smell", output_schema=one_key)]

    @tool
    def go(self) -> str:
        """Go on."""
        return "You are in the kitchen."

    @tool
    def look(self) -> dict[str, Any]:
        """Look around."""
        return {"doors": 2}

    @tool
    def find(self) -> Found:
        """Find something."""
        return Found(place="shelf")

    @tool
    def find_only(self) -> Closed:
        """Find something, and nothing else."""
        return Closed(place="shelf")

    @tool
    def push(self) -> str:
        """Push the door."""
        raise ToolError("It is locked.")

    @tool
    def stop(self) -> Step[str]:
        """Give up."""
        return Step("You sit down.", truncated=True)

    def _smell(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"of": "tea"}


SPEC = EnvironmentDefinition("rooms", Rooms)
FIRST = "You are in the hall.\n\nIt is dark."
OVER = "The episode is over. It was truncated at its limit of 2 steps."


@pytest.fixture(scope="module")
def served():
    with running(SPEC, EnvironmentDefinition("short", Short)) as gateway:
        yield gateway


@pytest.mark.parametrize("era", ERAS)
async def test_a_started_episode_is_told_in_one_block(served, era: Era):
    async with seat(served, "shared", era, "rooms") as player:
        (block,) = player.opening
        assert player.episode_id is not None
        assert block.text.startswith(f"episode_id: {player.episode_id}\n")
        assert block.text.endswith(f"\n\nWalk through rooms.\n\n{FIRST}")


def implicitly(served) -> Raw:
    return Raw(f"{served.url}/environments/rooms/mcp", "legacy")


def called(raw: Raw, name: str) -> dict[str, Any]:
    return raw.post("tools/call", {"name": name, "arguments": {}}).json()["result"]


def test_an_episode_that_a_call_started_is_told_in_one_block_with_the_reply(served):
    with implicitly(served) as raw:
        (block,) = called(raw, "go")["content"]
        assert block["text"].startswith("episode_id: ")
        assert block["text"].endswith(f"{FIRST}\n\nThe result of this call:\n\nYou are in the kitchen.")
    with implicitly(served) as raw:
        (block,) = called(raw, "push")["content"]
        assert block["text"].endswith(f"{FIRST}\n\nThe result of this call:\n\nIt is locked.")


@pytest.mark.parametrize("name", ["look", "find"])
def test_structured_content_hides_no_first_observation(served, name: str):
    reply = {"look": {"doors": 2}, "find": {"place": "shelf"}}[name]
    with implicitly(served) as raw:
        result = called(raw, name)
        (block,) = result["content"]
        structured = result["structuredContent"]
        assert structured.pop("envport/first_observation") == block["text"].partition("\n\nThe result of this call")[0]
        assert FIRST in block["text"]
        assert structured == reply == json.loads(block["text"].rpartition("\n")[2])
        assert "structuredContent" in (second := called(raw, name))
        assert "envport/first_observation" not in second["structuredContent"]


@pytest.mark.parametrize(("name", "reply"), [("find_only", {"place": "shelf"}), ("smell", {"of": "tea"})])
async def test_a_result_keeps_a_schema_that_allows_no_more_keys(served, name: str, reply: dict[str, Any]):
    async with connect(f"{served.url}/environments/rooms/mcp", "legacy") as client:
        # The client checks the result against the schema.
        result = await client.call_tool(name, {})
    assert result.structured_content == reply
    assert FIRST in texts(result)[0]


@pytest.mark.parametrize("era", ERAS)
async def test_a_fixed_episode_begins_in_the_first_block(era: Era):
    program, *words = command("stdio", "catch?rows=3", "--seed=7")
    process = StdioServerParameters(command=program, args=words)
    async with Client(process, mode=MODE[era]) as client:
        first, second = [await client.call_tool("move", {"direction": "stay"}) for _ in range(2)]
    (block,) = first.content
    before, _, reply = block.text.partition("\n\nThe result of this call:\n\n")
    assert before
    assert reply
    assert before != reply
    assert "The result of this call" not in texts(second)[0]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("name", "content", "structured"), [
    ("go", f"You are in the kitchen.\n\n{OVER}", None),
    ("push", f"It is locked.\n\n{OVER}", None),
    ("look", {"doors": 2, "envport/over": OVER}, {"doors": 2, "envport/over": OVER}),
    ("find", {"place": "shelf", "envport/over": OVER}, {"place": "shelf", "envport/over": OVER}),
])  # fmt: skip
async def test_the_step_limit_is_told(served, era: Era, name: str, content: Any, structured: Any):
    async with seat(served, "episode", era, "rooms") as player:
        before = await player.call(name)
        assert OVER not in str(before.content)
        result = await player.call(name)
        assert result.meta["envport/outcome"] == "step_limit"
    (block,) = result.content
    assert (block.text if structured is None else json.loads(block.text)) == content
    assert result.structured_content == structured
    # What is recorded is what the player was shown.
    with Control(served.url) as control:
        recorded = control.trajectory(player.episode_id).steps[-1].observation
    shown = Observation(content=({"type": "text", "text": block.text},), structured_content=structured)
    assert recorded == shown


@pytest.mark.parametrize("name", ["find_only", "smell"])
async def test_the_step_limit_is_told_beside_data_that_allows_no_more_keys(served, name: str):
    async with seat(served, "episode", "modern", "rooms") as player:
        await player.call(name)
        result = await player.call(name)
    assert texts(result)[1:] == [OVER]
    assert json.loads(texts(result)[0]) == result.structured_content


async def test_an_end_that_the_environment_made_is_told_in_its_own_words(served):
    async with seat(served, "episode", "modern", "rooms") as player:
        assert texts(await player.call("stop")) == ["You sit down."]
