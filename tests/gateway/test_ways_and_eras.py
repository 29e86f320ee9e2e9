"""The same calls give the same answers in both eras and in every way to reach an episode."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from harness import ERAS, MODE, WAYS, Era, Raw, RunningGateway, Way, connect, reply, running, seat, texts
from mcp import Client
from mcp.shared.exceptions import MCPError
from slow import slow

from envport import AsyncClient
from envport import Client as ControlClient
from envport.registry import load

KINDS = ["direct", "sdk-only"]


@pytest.fixture(scope="module", params=KINDS)
def gateway(request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    """One that answers most messages itself, and one that leaves them all to the SDK."""
    environments = (load("echo"), load("counter"), load("showcase"), load("catch"))
    with running(*environments, sdk_only=request.param == "sdk-only") as gateway:
        yield gateway


# A process on stdio has nothing of that gateway.
BY_SDK: list[tuple[Way, Era]] = [("episode", "legacy"), ("shared", "modern"), ("header", "legacy")]
OTHERS = [(way, era) for way in WAYS for era in ERAS if way != "stdio" and (way, era) not in BY_SDK]
everywhere = pytest.mark.parametrize(
    ("gateway", "way", "era"),
    [
        *(("direct", way, era) for way in WAYS for era in ERAS),
        *(("sdk-only", *it) for it in BY_SDK),
        *slow(("sdk-only", *it) for it in OTHERS),
    ],
    indirect=["gateway"],
)


@everywhere
async def test_clients_speak_the_era_that_the_test_says(gateway: RunningGateway, way: Way, era: Era):
    async with seat(gateway, way, era, "counter") as player:
        assert player.client.protocol_version == {"modern": "2026-07-28", "legacy": "2025-11-25"}[era]


@everywhere
async def test_an_episode_keeps_its_state(gateway: RunningGateway, way: Way, era: Era):
    async with seat(gateway, way, era, "counter") as player:
        answers = [await player.call("count") for _ in range(3)]
    assert [reply(answer) for answer in answers] == ["1", "2", "3"]
    assert [answer.meta["envport/step"] for answer in answers] == [1, 2, 3]


@everywhere
async def test_what_breaks_the_schema_does_not_reach_the_environment(gateway: RunningGateway, way: Way, era: Era):
    async with seat(gateway, way, era, "counter") as player:
        await player.call("count")
        refused = await player.call("count", {"by": 2})
        after = await player.call("count")
    assert refused.is_error
    assert "'by' is unknown" in reply(refused)
    assert texts(after) == ["2"]


@everywhere
async def test_an_unknown_tool_is_a_protocol_error(gateway: RunningGateway, way: Way, era: Era):
    async with seat(gateway, way, era, "counter") as player:
        with pytest.raises(MCPError) as refused:
            await player.call("no_such_tool")
        assert reply(await player.call("count")) == "1"
    assert refused.value.error.code == -32602
    assert "no_such_tool" in refused.value.error.message


@everywhere
async def test_seeds_decide_the_episode(gateway: RunningGateway, way: Way, era: Era):
    first: list[list[str]] = []
    for _ in range(2):
        async with seat(gateway, way, era, "catch", seed=11) as player:
            first.append(texts(await player.call("move", {"direction": "stay"})))
    assert first[0] == first[1]


@pytest.mark.parametrize("environment", ["counter", "showcase", "catch"])
@pytest.mark.parametrize("place", ["episode", "shared"])
def test_the_listing_is_equal_as_bytes_in_both_eras(gateway: RunningGateway, environment: str, place: str):
    url = f"{gateway.url}/environments/{environment}/mcp"
    if place == "episode":
        with ControlClient(gateway.url) as control:
            url = control.open(environment, seed=1).mcp_url
    bodies: list[bytes] = []
    for era in ERAS:
        with Raw(url, era) as raw:
            answer = raw.post("tools/list")
            assert answer.status_code == 200
            content = answer.content
            if answer.headers["content-type"].startswith("text/event-stream"):
                content = next(line[6:] for line in content.split(b"\r\n") if line.startswith(b"data: "))
            bodies.append(content)
    assert bodies[0] == bodies[1]
    assert json.loads(bodies[0])["result"]["tools"]


def test_the_listing_of_an_episode_is_the_environment_s_own(gateway: RunningGateway):
    with ControlClient(gateway.url) as control, Raw(control.open("showcase").mcp_url, "modern") as raw:
        listed = raw.post("tools/list").json()["result"]["tools"]
        described = control.environment("showcase").tools
    assert json.dumps(listed) == json.dumps(described) == json.dumps(load("showcase").listing)


async def test_the_shared_listing_adds_only_the_handle(gateway: RunningGateway):
    async with connect(f"{gateway.url}/environments/showcase/mcp", "modern") as client:
        tools = (await client.list_tools()).tools
    start, *others = tools
    assert start.name == "start_episode"
    own = load("showcase").listing
    for tool, listed in zip(others, own, strict=True):
        properties = dict(tool.input_schema["properties"])
        assert properties.pop("episode_id")["type"] == "string"
        assert {**tool.input_schema, "properties": properties} == listed["inputSchema"]
        assert "episode_id" not in tool.input_schema.get("required", [])
        assert (tool.name, tool.description or "") == (listed["name"], listed.get("description", ""))


@pytest.mark.parametrize(
    ("way", "era"),
    [("episode", "modern"), ("shared", "legacy"), *slow([("episode", "legacy"), ("shared", "modern")])],
)
async def test_twenty_interleaved_clients_do_not_meet(gateway: RunningGateway, way: Way, era: Era):
    async def play() -> list[str]:
        async with seat(gateway, way, era, "counter") as player:
            return [texts(await player.call("count"))[0] for _ in range(5)]

    games = await asyncio.gather(*(play() for _ in range(20)))
    assert games == [["1", "2", "3", "4", "5"]] * 20


async def test_a_legacy_client_may_open_a_session_for_each_call(gateway: RunningGateway):
    url = f"{gateway.url}/environments/counter/mcp"
    async with Client(url, mode="legacy") as client:
        handle = (await client.call_tool("start_episode", {})).meta["envport/episode_id"]
    answers: list[str] = []
    for _ in range(3):
        async with Client(url, mode="legacy") as client:
            answers += texts(await client.call_tool("count", {"episode_id": handle}))
    assert answers == ["1", "2", "3"]


async def test_a_legacy_session_remembers_its_latest_episode(gateway: RunningGateway):
    async with Client(f"{gateway.url}/environments/counter/mcp", mode="legacy") as client:
        begun = await client.call_tool("count", {})
        assert texts(begun)[0].startswith("episode_id: ep_")
        assert texts(begun)[-1].endswith("The counter is at 0.\n\nThe result of this call:\n\n1")
        assert texts(await client.call_tool("count", {})) == ["2"]
        await client.call_tool("start_episode", {})
        assert texts(await client.call_tool("count", {})) == ["1"]


async def test_a_refused_first_call_begins_nothing(gateway: RunningGateway):
    before = gateway.gateway.table.live
    async with Client(f"{gateway.url}/environments/counter/mcp", mode="legacy") as client:
        refused = await client.call_tool("count", {"by": 1})
    assert refused.is_error
    assert gateway.gateway.table.live == before


async def test_a_modern_client_has_to_name_its_episode(gateway: RunningGateway):
    async with Client(f"{gateway.url}/environments/counter/mcp", mode=MODE["modern"]) as client:
        refused = await client.call_tool("count", {})
    assert refused.is_error
    assert "start_episode" in texts(refused)[0]


@pytest.mark.parametrize("era", ERAS)
async def test_a_handshake_begins_no_episode(gateway: RunningGateway, era: Era):
    before = gateway.gateway.table.live
    async with Client(f"{gateway.url}/environments/counter/mcp", mode=MODE[era]) as client:
        await client.list_tools()
        assert gateway.gateway.table.live == before


@pytest.mark.parametrize("era", ERAS)
async def test_instructions_and_prompt_say_what_to_do(gateway: RunningGateway, era: Era):
    async with AsyncClient(gateway.url) as control:
        episode = await control.open("catch", split="train", task=3, seed=1)
    async with Client(episode.mcp_url, mode=MODE[era]) as client:
        instructions = client.instructions or ""
        (prompt,) = (await client.list_prompts()).prompts
        messages = (await client.get_prompt(prompt.name)).messages
    assert instructions == f"{episode.prompt}\n\n{episode.observation.text}"
    assert "\n\n".join(message.content.text for message in messages) == instructions


@pytest.mark.parametrize("era", ERAS)
async def test_the_shared_endpoint_says_how_to_begin(gateway: RunningGateway, era: Era):
    async with Client(f"{gateway.url}/environments/counter/mcp", mode=MODE[era]) as client:
        assert "start_episode" in (client.instructions or "")
        assert "30 minutes" in (client.instructions or "")


async def test_a_header_and_an_address_that_disagree_are_refused(gateway: RunningGateway):
    async with AsyncClient(gateway.url) as control:
        one, two = await control.open("counter"), await control.open("counter")
    with Raw(one.mcp_url, "modern", {"Envport-Episode": two.episode_id}) as raw:
        assert raw.post("tools/list").status_code == 400
    with Raw(one.mcp_url, "modern", {"Envport-Episode": one.episode_id}) as raw:
        assert raw.post("tools/list").status_code == 200


async def test_the_header_opens_every_mcp_address(gateway: RunningGateway):
    async with AsyncClient(gateway.url) as control:
        episode = await control.open("counter")
    for path in ("/mcp", "/mcp/", "/environments/counter/mcp"):
        async with connect(gateway.url + path, "modern", {"Envport-Episode": episode.episode_id}) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["count"]
    async with connect(
        f"{gateway.url}/environments/echo/mcp", "modern", {"Envport-Episode": episode.episode_id}
    ) as client:
        assert (await client.call_tool("count", {})).is_error
