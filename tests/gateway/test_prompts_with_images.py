"""A prompt of texts and images reaches every kind of player, at the beginning of the first observation."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import httpx2
import pytest
from harness import ERAS, Era, connect, running

from envport import AsyncClient, Client, Environment, Observation, Task, TaskSource, tool
from envport.errors import InvalidEnvironment, InvalidRequest
from envport.registry import EnvironmentDefinition

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (extra images)")


def picture(color: str) -> Any:
    return Image.new("RGB", (2, 3), color)


def png(color: str) -> bytes:
    buffer = io.BytesIO()
    picture(color).save(buffer, format="PNG")
    return buffer.getvalue()


def block(content: Any) -> dict[str, Any]:
    return content.model_dump(mode="json", by_alias=True, exclude_none=True)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(color: str) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(png(color)).decode(), "mimeType": "image/png"}


class Pictured(Environment):
    """Shows a picture with its task."""

    def splits(self) -> dict[str, TaskSource]:
        return {
            "train": [
                Task(
                    id="object",
                    prompt=[
                        "What is this?",
                        picture("red"),
                        text(
                            "And",
                        ),
                        "this?",
                        png("blue"),
                    ],
                ),
                {"id": "mapping", "prompt": ["Look:", picture("green")]},
                Task(id="words", prompt=["Two", "paragraphs."]),
            ],
            "wrong": [{"prompt": ["What?", 5]}, {"prompt": [{"role": "user", "content": "Hi."}]}, {"prompt": 5}],
            "odd": [{"id": "a\ud800"}],
        }

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "You see a table."

    @tool
    def answer(self, word: str) -> str:
        """Answer."""
        return word


EXPECTED = [text("What is this?"), image("red"), text("And\n\nthis?"), image("blue"), text("You see a table.")]


@pytest.fixture(scope="module")
def served():
    with running(EnvironmentDefinition("pictured", Pictured)) as gateway:
        yield gateway


@pytest.mark.parametrize("era", ERAS)
async def test_an_mcp_client_sees_it(served, era: Era):
    async with AsyncClient(served.url) as control:
        opened = await control.open("pictured", task=0)
        async with connect(opened.mcp_url, era) as client:
            shown = await client.get_prompt("task")
            assert [block(message.content) for message in shown.messages] == EXPECTED
            assert client.instructions == "What is this?\nAnd\n\nthis?\nYou see a table."
        async with connect(f"{served.url}/environments/pictured/mcp", era) as client:
            begun = await client.call_tool("start_episode", {"task": 0})
            first, *others = map(block, begun.content)
    assert first["text"].endswith("What is this?")
    assert others == EXPECTED[1:]


def test_it_is_opened_recorded_and_listed(served):
    with Client(served.url) as control:
        opened = control.open("pictured", task=0)
        assert (opened.prompt, list(opened.observation.content)) == ("", EXPECTED)
        assert control.trajectory(opened.episode_id).first_observation == opened.observation
        again = control.reset(opened.episode_id, task=1)
        assert list(again.observation.content) == [text("Look:"), image("green"), EXPECTED[-1]]
        words = control.reset(opened.episode_id, task=2)
        assert (words.prompt, words.observation) == ("Two\n\nparagraphs.", Observation(content=(EXPECTED[-1],)))
        task = control.tasks("pictured", split="train").tasks[0]
        assert task.prompt == EXPECTED[:-1]
        own = control.open("pictured", task=Task(id="own", prompt=["This:", picture("red")]))
        assert list(own.observation.content) == [text("This:"), image("red"), EXPECTED[-1]]


@pytest.mark.parametrize("where", ["here", "at a gateway"])
def test_a_trained_model_sees_it(served, where: str):
    at = f"{__file__}:Pictured" if where == "here" else f"{served.url}/environments/pictured"
    bridge = pytest.importorskip("envport_bridges.trl", reason="TRL is not installed (extra trl)")
    spec = bridge.EnvironmentSpec(at, split="train", num_tasks=2)
    row = spec.train_dataset[0]
    assert row["prompt"] == [{"role": "user", "content": ""}]
    first = spec.environment_factory().reset(**{key: row[key] for key in row if key != "prompt"})
    assert [part["type"] for part in first] == ["text", "image", "text", "image", "text"]
    assert first[1]["image"].getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (
            0,
            "'wrong/0' of split 'wrong': a prompt cannot hold a value of type int; allowed: text, or a list of texts",
        ),
        (1, "'wrong/1' of split 'wrong': a prompt holds what is no MCP content block: "),
        (2, "'wrong/2' of split 'wrong': a prompt cannot be of type int; allowed: text, or a list"),
    ],
)
def test_an_author_s_mistake_is_named(index: int, message: str):
    with pytest.raises(InvalidEnvironment) as raised:
        EnvironmentDefinition("pictured", Pictured).task("wrong", index)
    assert message in str(raised.value)


LINK = {"type": "resource_link", "name": "a\ud800", "uri": "file:///a", "annotations": {"audience": ["user"]}}


@pytest.mark.parametrize("prompt", ["a\ud800", ["a\ud800", png("red")], [LINK]], ids=["text", "list", "block"])
def test_a_lone_surrogate_in_a_prompt_does_not_break_the_gateway(served, prompt: Any):
    body = json.dumps({"environment": "pictured", "task": {"id": "own", "prompt": _wire(prompt)}})
    with httpx2.Client(base_url=served.url, headers={"Content-Type": "application/json"}) as control:
        live = control.get("/readyz").json()["live"]
        opened = control.post("/episodes", content=body)
        assert opened.status_code == 201
        assert "a\ufffd" in opened.text
        shown = opened.json()["observation"]["content"]
        assert [block.get("annotations") for block in shown if block["type"] == "resource_link"] == (
            [LINK["annotations"]] if prompt == [LINK] else []
        )
        address = f"/episodes/{opened.json()['episode_id']}"
        assert control.get(address).status_code == control.delete(address).status_code == 200
        assert control.get("/readyz").json()["live"] == live


def test_a_lone_surrogate_in_the_id_of_a_task_is_refused(served):
    with httpx2.Client(base_url=served.url, headers={"Content-Type": "application/json"}) as control:
        refused = control.post("/episodes", content=json.dumps({"environment": "pictured", "task": {"id": "a\ud800"}}))
        assert refused.status_code == 422
        assert "task: " in refused.json()["error"]["message"]
        assert "lone surrogate '\\ud800'" in refused.json()["error"]["message"]
        assert control.get("/episodes").status_code == 200
    with pytest.raises(InvalidEnvironment, match=r"task 'a\\ud800' of split 'odd': .*lone surrogate"):
        EnvironmentDefinition("pictured", Pictured).task("odd", 0)


def _wire(prompt: Any) -> Any:
    return (
        [image("red") if isinstance(part, bytes) else part for part in prompt] if isinstance(prompt, list) else prompt
    )


def test_a_caller_s_mistake_is_named(served):
    with Client(served.url) as control, pytest.raises(InvalidRequest, match="a prompt holds what is no MCP content"):
        control.open("pictured", task={"id": "own", "prompt": [{"type": "hologram"}]})
