"""What breaks the protocol gets the protocol's status, says what was wrong, and hurts nobody."""

import json
from http.client import HTTPConnection
from typing import Any

import httpx2
import pytest
from environments import SECRET, Picky, Tracked
from harness import ERAS, Era, Raw, RunningGateway, Way, running, seat, texts

from envport import Client
from envport.registry import EnvironmentDefinition


@pytest.fixture(scope="module")
def served():
    with running(EnvironmentDefinition("picky", Picky), EnvironmentDefinition("tracked", Tracked)) as gateway:
        yield gateway


@pytest.fixture
def url(served: RunningGateway) -> str:
    with Client(served.url) as control:
        return control.open("tracked").mcp_url


BAD_ARGUMENTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["'direction'", "missing", '"left", "right"']),
    ({"direction": "up"}, ["'direction'", '"up"', '"left", "right"']),
    ({"direction": 1}, ["'direction'", "1", '"left", "right"']),
    ({"direction": "left", "color": "blue"}, ["'color'", '"blue"', '"red", "green"']),
    ({"direction": "left", "steps": 10}, ["'steps'", "10", "at least 1", "at most 9"]),
    ({"direction": "left", "steps": "3"}, ["'steps'", '"3"', "integer"]),
    ({"direction": "left", "steps": True}, ["'steps'", "true", "integer"]),
    ({"direction": "left", "steps": 2.5}, ["'steps'", "2.5", "integer"]),
    ({"direction": "left", "steps": None}, ["'steps'", "null", "integer"]),
    ({"direction": "left", "weight": 0}, ["'weight'", "above"]),
    ({"direction": "left", "name": "ABC"}, ["'name'", '"ABC"', "^[a-z]+$"]),
    ({"direction": "left", "name": "abcdefghij"}, ["'name'", "at most 8 characters"]),
    ({"direction": "left", "point": {"x": "1"}}, ["'point'", "x", '"1"']),
    ({"direction": "left", "point": {}}, ["'point'", "x"]),
    ({"direction": "left", "tags": ["a", 1]}, ["'tags'", "1"]),
    ({"direction": "left", "tags": "a"}, ["'tags'", '"a"', "array"]),
    ({"direction": "left", "speed": 3}, ["'speed'", "unknown", "direction, color, steps"]),
]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", ["episode", "shared"])
async def test_bad_arguments_name_the_argument_the_problem_and_what_is_allowed(
    served: RunningGateway, way: Way, era: Era
):
    async with seat(served, way, era, "picky") as player:
        for arguments, said in BAD_ARGUMENTS:
            answer = await player.call("pick", arguments)
            assert answer.is_error, arguments
            (text,) = texts(answer)
            for part in said:
                assert part in text, (arguments, text)
        fine = await player.call("pick", {"direction": "left", "point": {"x": 1}})
    assert not fine.is_error
    assert fine.structured_content["touched"] == 1, "what was refused reached the environment"


@pytest.mark.parametrize("era", ERAS)
async def test_several_problems_are_said_at_once(served: RunningGateway, era: Era):
    async with seat(served, "episode", era, "picky") as player:
        (text,) = texts(await player.call("pick", {"steps": 99, "name": "X"}))
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        'it\'s "quoted"',
        "back\\slash",
        "new\nline\r\n\ttab",
        "😀 Größe 日本",
        "\x00\x01",
        "</script>",
        "x" * 100_000,
    ],
)
async def test_text_arrives_as_it_was_written(served: RunningGateway, era: Era, text: str):
    async with seat(served, "episode", era, "picky") as player:
        assert texts(await player.call("say", {"text": text})) == [text]


def test_a_lone_surrogate_reaches_the_environment_and_its_echo_stays_valid_json(served: RunningGateway):
    with Client(served.url) as control, Raw(control.open("picky").mcp_url, "modern") as raw:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "say",
                "arguments": {"text": "a\ud800b"},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }
        answer = raw.send(json.dumps(body).encode(), "tools/call", "say")
        assert answer.json()["result"]["content"][0]["text"] == "a�b"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[]", 400),
        (b"3", 400),
        (b"null", 400),
        (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', 400),
        (b'{"jsonrpc":"2.0","id":1}', 400),
        (b"[" * 100_000, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}', 400),
        (b" " * (5 * 2**20), 413),
    ],
)
def test_malformed_bodies_get_the_protocol_s_status(url: str, era: Era, body: bytes, status: int):
    with Raw(url, era) as raw:
        answer = raw.send(body, "tools/list")
        assert answer.status_code == status
        assert "Traceback" not in answer.text
        assert raw.post("tools/list").status_code == 200, "the server lives on"


@pytest.mark.parametrize("era", ERAS)
def test_wrong_content_types_are_refused(url: str, era: Era):
    with Raw(url, era) as raw:
        for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = raw.send(b"{}", "tools/list", **{"Content-Type": content_type})
            assert answer.status_code in (400, 415)


def test_headers_that_contradict_the_body_are_refused(url: str):
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "step",
            "arguments": {},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    with Raw(url, "modern") as raw:
        assert raw.send(call, "tools/call", "step").status_code == 200
        for headers, code in (
            ({"Mcp-Name": "finish"}, -32020),
            ({"Mcp-Method": "tools/list"}, -32020),
            ({"MCP-Protocol-Version": "2031-01-01"}, -32020),
        ):
            answer = raw.send(call, "tools/call", "step", **headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_white_space_around_a_header_s_value_is_not_part_of_it(url: str):
    """RFC 9110, section 5.5; one of uvicorn's parsers leaves it in."""
    address = httpx2.URL(url)
    params = {
        "name": "step",
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }
    connection = HTTPConnection(address.host, address.port)
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28 ",
        "Mcp-Method": "  tools/call",
        "Mcp-Name": "\t step \t",
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    connection.request("POST", address.path, body, headers)
    answer = connection.getresponse()
    assert (answer.status, b"stepped" in answer.read()) == (200, True)
    connection.close()


def test_unknown_methods_and_cursors(url: str):
    with Raw(url, "modern") as raw:
        unknown = raw.post("environment/reset")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32601)
        for method in ("tools/list", "prompts/list"):
            cursor = raw.post(method, {"cursor": "2"})
            assert (cursor.status_code, cursor.json()["error"]["code"]) == (400, -32602)
        prompt = raw.post("prompts/get", {"name": "nope"})
        assert (prompt.status_code, prompt.json()["error"]["code"]) == (400, -32602)


def test_only_post_and_delete_are_there(url: str):
    for method in ("GET", "PUT", "PATCH", "HEAD", "OPTIONS"):
        answer = httpx2.request(method, url, headers={"Accept": "text/event-stream"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST, DELETE")


def test_an_unknown_environment_s_address_lists_the_known_ones(served: RunningGateway):
    for path in ("/environments/nope/mcp", "/mcp"):
        with Raw(served.url + path, "modern") as raw:
            answer = raw.post("tools/list")
        assert answer.status_code == 404
        assert "/environments/picky/mcp" in answer.json()["error"]["message"]


@pytest.mark.parametrize("era", ERAS)
async def test_start_episode_checks_its_arguments(served: RunningGateway, era: Era):
    with Raw(f"{served.url}/environments/picky/mcp", era) as raw:
        for arguments, said in (({"seed": "1"}, "seed"), ({"seed": -1}, "seed"), ({"speed": 1}, "speed")):
            result = raw.post("tools/call", {"name": "start_episode", "arguments": arguments}).json()["result"]
            assert result["isError"]
            assert said in result["content"][0]["text"]
        result = raw.post("tools/call", {"name": "say", "arguments": {"text": "a", "episode_id": 3}}).json()["result"]
        assert result["isError"]
        assert "episode_id" in result["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
def test_nothing_of_a_fault_reaches_the_wire(served: RunningGateway, era: Era):
    with Client(served.url) as control, Raw(control.open("tracked").mcp_url, era) as raw:
        answer = raw.post("tools/call", {"name": "boom", "arguments": {}})
    assert SECRET not in answer.text
    assert "Error" not in answer.json()["result"]["content"][0]["text"]
    assert answer.json()["result"]["isError"]


def test_huge_and_malformed_bodies_on_the_control_plane(served: RunningGateway):
    url = f"{served.url}/episodes"
    assert httpx2.post(url, content=b" " * (5 * 2**20)).status_code == 413
    for content in (b"", b"{", b"[]", b'{"environment": 3}', b"\xff"):
        answer = httpx2.post(url, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422)
        assert answer.json()["error"]["message"]
    assert httpx2.get(f"{served.url}/nope").json()["error"]["code"] == "http"
    assert httpx2.put(f"{served.url}/episodes").status_code == 405
