"""A surface at the root of a gateway, which takes none of the gateway's own paths."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest
from command_line import Served, refused
from harness import running
from packages.tiny_surface import tiny
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from envport.app import Gateway
from envport.episodes import EpisodeTable
from envport.errors import ConfigurationError
from envport.registry import load
from envport.surfaces import SurfaceApp


def greedy(table: EpisodeTable, /) -> Starlette:
    async def mine(request: Request) -> PlainTextResponse:
        return PlainTextResponse("mine")

    return Starlette(routes=[Route("/{path:path}", mine)])


OURS = ["/", "/environments", "/environments/counter", "/environments/counter/ors/tools", "/episodes", "/episodes/x"]
OURS += ["/mcp", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/rollouts", "/tiny/episodes/x"]


def test_it_serves_what_nothing_else_does():
    with running(load("counter"), surfaces={"tiny": tiny}, root_surface=greedy) as gateway:
        for path in OURS:
            assert httpx2.get(f"{gateway.url}{path}").text != "mine", path
        for path in ("/counter/tools", "/tools", "/favicon.ico"):
            assert httpx2.get(f"{gateway.url}{path}").text == "mine", path


@pytest.mark.parametrize("name", ["episodes", "docs", "openapi.json", "tiny"])
def test_an_environment_that_nobody_would_find_there_is_not_served(name: str):
    taken = replace(load("counter"), name=name)
    with pytest.raises(ConfigurationError, match=f"serve it under another name, as NAME={name}"):
        Gateway([taken], surfaces={"tiny": tiny}, root_surface=greedy)
    Gateway([taken], surfaces={"tiny": tiny})


def test_the_command_serves_the_open_reward_standard_there():
    with Served("counter", "catch", "--ors") as served:
        assert httpx2.get(f"{served.url}/list_environments").json() == ["counter", "catch"]
        assert httpx2.get(f"{served.url}/environments/catch/ors/list_environments").json() == ["catch"]
    assert "cannot be served at the root" in refused("serve", "docs=counter", "--ors")
    with Served("counter") as served:
        assert httpx2.get(f"{served.url}/list_environments").status_code == 404


async def test_a_session_at_the_root_reaches_no_path_of_the_page():
    """Its client may let a model choose the path."""
    gateway = Gateway(
        [load("counter")], root_surface=lambda table: SurfaceApp(greedy(table), session_cookie="s"), page=True
    )
    transport = httpx2.ASGITransport(app=gateway)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for path in ("/", "/ui/login", "/_nicegui_ws/socket.io/"):
            answer = await client.get(path, headers={"Accept": "text/html", "Cookie": "s=1"})
            assert answer.text == "mine", path
        # Without the cookie, it is the page's, which knows no login by GET.
        assert (await client.get("/ui/login")).headers["location"] == "/"
