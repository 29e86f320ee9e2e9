"""Tool calls: content of every kind, one at a time, progress, cancellation, concurrency with the end."""

import asyncio
import base64
import io
import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import httpx2
import mcp_types
import pytest
from environments import Chatty, Gate, Picky, Threaded, Tracked
from harness import ERAS, WAYS, Era, Raw, Way, connect, running, seat, texts
from patience import patient
from pydantic import BaseModel

from envport import AsyncClient, Client, Environment, Step, Task, tool
from envport.registry import EnvironmentDefinition


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")


class Report(BaseModel):
    score: float
    note: str | None = None


@dataclass
class Plain:
    x: int


RETURNED: dict[str, Any] = {
    "text": "Größe 😀",
    "nothing": None,
    "number": 7,
    "image": png(),
    "model": Report(score=0.5),
    "dataclass": Plain(x=1),
    "mapping": {"a": None, "b": [1, {"c": None}]},
    "mixed": ["look:", png(), Report(score=1.0, note="ü")],
    "audio": mcp_types.AudioContent(type="audio", data=base64.b64encode(b"RIFF").decode(), mime_type="audio/wav"),
    "link": mcp_types.ResourceLink(type="resource_link", uri="file:///a.txt", name="a"),
    "embedded": mcp_types.EmbeddedResource(
        type="resource", resource=mcp_types.TextResourceContents(uri="file:///b.txt", text="b")
    ),
}


class Contents(Environment):
    """Returns what it is asked for."""

    def reset(self, *, seed: int, task: Task | None) -> list[Any]:
        return ["first", png()]

    @tool
    def give(self, what: str) -> Step[Any]:
        """Give."""
        return Step(RETURNED[what], reward=0.0)

    @tool
    def typed(self) -> Report:
        """Give a report."""
        return Report(score=0.25)


@pytest.fixture(scope="module")
def served():
    classes = (Contents, Gate, Chatty, Threaded, Tracked, Picky)
    with running(*(EnvironmentDefinition(cls.__name__.lower(), cls) for cls in classes)) as gateway:
        yield gateway


@pytest.mark.parametrize("what", RETURNED)
def test_observations_of_every_kind_are_equal_in_both_eras(served, what: str):
    results: list[dict[str, Any]] = []
    for era in ERAS:
        with Client(served.url) as control, Raw(control.open("contents").mcp_url, era) as raw:
            result = raw.post("tools/call", {"name": "give", "arguments": {"what": what}}).json()["result"]
        meta = {key: value for key, value in result["_meta"].items() if key.startswith("envport/")}
        results.append({key: result.get(key) for key in ("content", "structuredContent", "isError")} | {"meta": meta})
    assert results[0] == results[1]
    assert not results[0]["isError"]


def test_what_was_returned_is_what_arrives(served):
    with Client(served.url) as control, Raw(control.open("contents").mcp_url, "modern") as raw:

        def give(what: str) -> tuple[list[dict[str, Any]], Any]:
            result = raw.post("tools/call", {"name": "give", "arguments": {"what": what}}).json()["result"]
            return result["content"], result.get("structuredContent")

        assert give("text") == ([{"type": "text", "text": "Größe 😀"}], None)
        assert give("nothing") == ([], None)
        assert give("number") == ([{"type": "text", "text": "7"}], None)
        (image,), _ = give("image")
        assert (image["type"], image["mimeType"], base64.b64decode(image["data"])) == ("image", "image/png", png())
        (text,), structured = give("mapping")
        assert structured == RETURNED["mapping"] == json.loads(text["text"])
        blocks, structured = give("mixed")
        assert [block["type"] for block in blocks] == ["text", "image", "text"]
        assert json.loads(blocks[2]["text"]) == {"score": 1.0, "note": "ü"}
        # A client that shows its model the structured content alone would hide the text and the image.
        assert structured is None
        assert give("dataclass")[1] == {"x": 1}
        assert [give(kind)[0][0]["type"] for kind in ("audio", "link", "embedded")] == [
            "audio",
            "resource_link",
            "resource",
        ]


def test_images_of_pillow_are_images():
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (extra images)")
    from envport.tools.content import observe

    (block,) = observe(image.new("RGB", (2, 3))).content
    assert image.open(io.BytesIO(base64.b64decode(block["data"]))).size == (2, 3)


@pytest.mark.parametrize("era", ERAS)
async def test_structured_results_say_their_schema_and_keep_it(served, era: Era):
    async with seat(served, "episode", era, "contents") as player:
        typed = next(tool for tool in (await player.client.list_tools()).tools if tool.name == "typed")
        assert typed.output_schema is not None
        assert set(typed.output_schema["properties"]) == {"score", "note"}
        # The client of the SDK checks the result against the schema.
        assert (await player.call("typed")).structured_content == {"score": 0.25, "note": None}


@pytest.mark.parametrize("era", ERAS)
async def test_images_are_part_of_what_a_player_sees_first(served, era: Era):
    async with seat(served, "shared", era, "contents") as player:
        assert [block.type for block in player.opening] == ["text", "image"]
        assert player.opening[0].text.endswith("\n\nReturns what it is asked for.\n\nfirst")
    async with seat(served, "episode", era, "contents") as player:
        messages = (await player.client.get_prompt("task")).messages
        assert [message.content.type for message in messages] == ["text", "text", "image"]


@pytest.mark.parametrize("era", ERAS)
async def test_one_call_at_a_time_in_the_order_in_which_they_came(served, era: Era):
    Gate.rearm()
    async with seat(served, "episode", era, "gate") as player:
        calls = [asyncio.create_task(player.call("wait")) for _ in range(3)]
        assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
        Gate.opened.set()
        answers = await asyncio.gather(*calls)
    assert [texts(answer) for answer in answers] == [["through"]] * 3
    assert sorted(answer.meta["envport/step"] for answer in answers) == [1, 2, 3]
    assert Gate.most_inside == 1


async def test_other_episodes_go_on_while_one_waits(served):
    Gate.rearm()
    async with seat(served, "episode", "modern", "gate") as slow, seat(served, "episode", "modern", "tracked") as quick:
        waiting = asyncio.create_task(slow.call("wait"))
        assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
        assert texts(await quick.call("step")) == ["stepped"]
        Gate.opened.set()
        assert texts(await waiting) == ["through"]


async def test_closing_during_a_call_lets_it_finish_and_refuses_the_next(served):
    Gate.rearm()
    async with AsyncClient(served.url) as control:
        opened = await control.open("gate")
        async with connect(opened.mcp_url, "modern") as client:
            running_call = asyncio.create_task(client.call_tool("wait", {}))
            assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
            assert (await control.close_episode(opened.episode_id)).status == "closed"
            Gate.opened.set()
            assert texts(await running_call) == ["through"]
            assert (await client.call_tool("wait", {})).is_error
        assert (await control.trajectory(opened.episode_id)).steps[-1].observation.text == "through"


async def test_a_call_whose_client_goes_away_is_finished_and_recorded(served):
    Gate.rearm()
    async with AsyncClient(served.url) as control:
        opened = await control.open("gate")

        with Raw(opened.mcp_url, "modern") as raw:
            request = raw.request("tools/call", {"name": "wait", "arguments": {}})
        async with httpx2.AsyncClient(timeout=patient(30)) as http:
            gone = asyncio.create_task(http.send(request))
            assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
        Gate.opened.set()
        async with connect(opened.mcp_url, "modern") as client:
            # Waits for its turn, so that the first call is on record when it is answered.
            after = await client.call_tool("wait", {})
        assert after.meta["envport/step"] == 2


@pytest.mark.parametrize(("way", "era"), [(way, era) for way in WAYS for era in ERAS])
@pytest.mark.parametrize(("environment", "name"), [("chatty", "work"), ("threaded", "toil")])
async def test_progress_reaches_who_asked_for_it(served, way: Way, era: Era, environment: str, name: str):
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    reference = f"environments:{environment.capitalize()}"
    async with seat(served, way, era, environment, reference=reference) as player:
        loud = await player.call(name, {"steps": 3}, progress_callback=hear)
        silent = await player.call(name, {"steps": 3})
    assert not loud.is_error
    assert not silent.is_error
    assert [progress for progress, _, _ in heard] == [1, 2, 3]
    if environment == "chatty":
        assert heard[-1] == (3, 3, "step 3 of 3")


async def test_an_error_of_a_tool_that_reports_progress_is_a_tool_error(served):
    async with seat(served, "episode", "modern", "chatty") as player:

        async def hear(*_: Any) -> None:
            return None

        refused = await player.call("work", {"steps": "3"}, progress_callback=hear)
    assert refused.is_error
    assert "'steps'" in texts(refused)[0]


def test_a_progress_parameter_is_not_an_argument(served):
    with Client(served.url) as control:
        work = control.environment("chatty").tools[0]
    assert list(work["inputSchema"]["properties"]) == ["steps"]
