"""`GET /`: what a gateway tells a person, or a program, that knows nothing but its address."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx2
import pytest
from harness import RunningGateway, running

from envport import Environment, Task, tool
from envport.access import Access, HostPolicy
from envport.registry import EnvironmentDefinition

# What browsers send.
PAGE = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
TOKEN = "a-token-of-this-test-0123"
PLAYER = "a-player-of-this-test-0123"
TOKENS = f"""
[[tokens]]
name = "all"
scopes = ["control", "play"]
token = "{TOKEN}"

[[tokens]]
name = "agents"
scopes = ["play"]
token = "{PLAYER}"
"""


class Sharp(Environment):
    """Find <script>alert("x")</script> & others.

    There is a second part.
    """

    def __init__(self, key: str = "the option is nobody's business"):
        self.key = key

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def act(self) -> str:
        """Act."""
        return "done"


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(EnvironmentDefinition("sharp", Sharp), EnvironmentDefinition("other", Sharp)) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    file = tmp_path_factory.mktemp("welcome") / "tokens.toml"
    file.write_text(TOKENS)
    with running(EnvironmentDefinition("sharp", Sharp), access=Access.load({}, file)) as gateway:
        yield gateway


class Elements(HTMLParser):
    """The elements of a page, and the addresses in it."""

    def __init__(self, page: str):
        super().__init__()
        self.seen: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links.extend(value or "" for key, value in attrs if key in ("href", "src"))


def get(gateway: RunningGateway, accept: str | None = None, token: str | None = None, **headers: str) -> Any:
    if accept is not None:
        headers["Accept"] = accept
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return httpx2.get(f"{gateway.url}/", headers=headers)


def test_a_program_reads_what_is_served_and_where(gateway: RunningGateway):
    for accept in (None, "*/*", "application/json", "text/html;q=0, application/json"):
        answer = get(gateway, accept)
        assert answer.status_code == 200
        said = answer.json()
        assert [it["name"] for it in said["environments"]] == ["sharp", "other"]
        first = said["environments"][0]
        assert first["mcp_url"] == f"{gateway.url}/environments/sharp/mcp"
        assert shlex.split(first["attach"])[:5] == ["claude", "mcp", "add", "--transport", "http"]
        assert shlex.split(first["attach"])[5:] == ["sharp", first["mcp_url"]]
        for key in ("docs", "openapi", "environments"):
            assert httpx2.get(said["links"][key]).status_code == 200


def test_a_browser_gets_a_page_with_the_same(gateway: RunningGateway):
    answer = get(gateway, PAGE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    shown = unescape(answer.text)
    for it in get(gateway).json()["environments"]:
        assert it["mcp_url"] in shown
        assert it["attach"] in shown
    assert 'Find <script>alert("x")</script> & others.' in shown
    assert "There is a second part." in shown
    page = Elements(answer.text)
    assert page.links == [f"{gateway.url}/docs", f"{gateway.url}/environments"]


def test_the_page_runs_and_loads_nothing(gateway: RunningGateway):
    answer = get(gateway, PAGE)
    assert not {"script", "img", "link", "iframe", "form"} & set(Elements(answer.text).seen)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_head_and_other_methods(gateway: RunningGateway):
    assert httpx2.head(gateway.url).status_code == 200
    assert httpx2.post(gateway.url).status_code == 405


def test_no_option_is_shown(gateway: RunningGateway):
    for accept in (None, PAGE):
        assert "nobody's business" not in unescape(get(gateway, accept).text)


def test_without_its_token_a_gateway_says_only_where_the_token_goes(guarded: RunningGateway):
    answer = get(guarded, PAGE)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer TOKEN" in answer.text
    assert "ENVPORT_TOKEN" in answer.text
    said = get(guarded)
    assert said.status_code == 401
    assert said.json()["error"]["message"] == "this gateway needs a token: Authorization: Bearer TOKEN"
    for it in (answer, said, get(guarded, PAGE, token=PLAYER), get(guarded, token=PLAYER), get(guarded, PAGE, "wrong")):
        assert it.status_code in (401, 403)
        assert "sharp" not in it.text.lower()


def test_with_a_token_it_says_how_a_client_is_given_one(guarded: RunningGateway):
    (it,) = get(guarded, token=TOKEN).json()["environments"]
    assert shlex.split(it["attach"])[-2:] == ["--header", "Authorization: Bearer ${ENVPORT_TOKEN}"]
    page = get(guarded, PAGE, TOKEN)
    assert page.status_code == 200
    assert it["attach"] in unescape(page.text)
    assert TOKEN not in page.text


def test_nobody_chooses_what_the_page_says_by_the_name_that_is_asked_for(gateway: RunningGateway):
    assert get(gateway, PAGE, Host="elsewhere.example").status_code == 421
    hosts = HostPolicy(frozenset({"*"}))
    with running(EnvironmentDefinition("sharp", Sharp), hosts=hosts) as anywhere:
        answer = get(anywhere, PAGE, Host='"><script>$(reboot)')
        assert "<script>" not in answer.text
        # A cache must not keep for others what one asked for.
        assert answer.headers["cache-control"] == "no-store"
    with running(EnvironmentDefinition("sharp", Sharp), public_url="https://play.example/x/") as public:
        (it,) = get(public).json()["environments"]
        assert it["mcp_url"] == "https://play.example/x/environments/sharp/mcp"
