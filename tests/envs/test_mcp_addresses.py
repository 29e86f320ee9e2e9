"""MCP servers by `mcp:URL`: a session there for each episode, and what is lost on the way is a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import RunningGateway
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import TextContent
from opening import open_episode
from slow import slow
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from envport.episodes import Episodes
from envport.errors import ConfigurationError, EpisodeFailed, InvalidArguments, InvalidOption
from envport.registry import load

KEY = "not-for-everybody"


class Sessions:
    """A server that counts the calls of each session, and what it was sent."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.deleted = 0
        self.seeds: set[str] = set()
        self.status: int | None = None
        self.cut = False
        self.url = ""
        self.server = MCPServer("sessions", instructions="Count.")
        self.server.tool()(self.counted)
        self.server.tool()(self.kept)

    async def counted(self, ctx: Context) -> list[TextContent]:
        """Count the calls of this session."""
        session = (ctx.headers or {}).get("mcp-session-id", "none")
        self.counts[session] += 1
        await ctx.report_progress(1, 1, session)
        return [TextContent(type="text", text=str(self.counts[session]))]

    async def kept(self, note: str) -> list[TextContent]:
        """Answer with the note."""
        return [TextContent(type="text", text=note)]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            self.seeds.add(request.query_params.get("seed", ""))
            self.deleted += request.method == "DELETE"
            if request.headers.get("authorization") != f"Bearer {KEY}":
                return await PlainTextResponse("who are you?", 401)(scope, receive, send)
            if self.status is not None and request.method == "POST":
                return await PlainTextResponse("no", self.status)(scope, receive, send)
            if self.cut and request.method == "POST":
                headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                return await send({"type": "http.response.body", "body": b'{"jsonrpc":', "more_body": False})
        return await self.app(scope, receive, send)

    @property
    def app(self) -> Any:
        if "_app" not in vars(self):
            self._app = self.server.streamable_http_app()
        return self._app


@pytest.fixture
def upstream() -> Iterator[Sessions]:
    sessions = Sessions()
    with RunningGateway(sessions) as running:  # pyright: ignore[reportArgumentType]
        sessions.url = f"{running.url}/mcp"
        yield sessions


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ITS_KEY", KEY)


@asynccontextmanager
async def table(url: str, **options: Any) -> AsyncIterator[Episodes]:
    headers = {"headers": {"Authorization": "Bearer {ITS_KEY}"}, "variables": ["ITS_KEY"]}
    definition = load(f'mcp:"{url}"', "it", options={**headers, **options})
    assert KEY not in repr(definition)
    episodes = Episodes({"it": definition})
    async with episodes.run():
        yield episodes


async def test_an_episode_has_a_session_that_ends_with_it(upstream: Sessions, tmp_path: Path) -> None:
    (tmp_path / "points.py").write_text(
        "async def points(folder, calls, call):\n"
        "    assert folder is None and len(calls) == 2 and not calls[0].is_error\n"
        '    return float((await call("counted", {})).text)\n'
    )
    (tmp_path / "tasks.toml").write_text('[[tasks]]\nscore = { function = "points.py:points" }\n')
    async with table(upstream.url + "?seed={seed}", tasks=str(tmp_path / "tasks.toml")) as episodes:
        deleted = upstream.deleted
        one, other = [await open_episode(episodes, "it", task=0, seed=seed) for seed in (11, 12)]
        assert [(await one.call("counted", {})).observation.text for _ in range(2)] == ["1", "2"]
        assert (await other.call("counted", {})).observation.text == "1"
        told: list[Any] = []
        await other.call("counted", {}, progress=lambda *report: told.append(report[:2]))
        assert told == [(1.0, 1.0)]
        with pytest.raises(InvalidArguments):
            await one.call("kept", {"note": 1})
        assert (await episodes.finish(one.handle, "me")).reward == 3.0
    assert upstream.deleted == deleted + 2
    assert {"11", "12"} <= upstream.seeds


async def test_the_newest_revision_has_no_sessions(upstream: Sessions) -> None:
    async with table(upstream.url, era="newest") as episodes:
        episode = await open_episode(episodes, "it")
        assert (await episode.call("counted", {})).observation.text == "1"
        assert upstream.counts.keys() == {"none"}


@pytest.mark.parametrize("status", [404, *slow([401, 500, 503])])
async def test_a_session_that_is_lost_is_a_fault_and_never_a_new_one(status: int, upstream: Sessions) -> None:
    async with table(upstream.url) as episodes:
        episode = await open_episode(episodes, "it")
        await episode.call("counted", {})
        upstream.status = status
        with pytest.raises(EpisodeFailed):
            await episode.call("counted", {})
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.fault) == ("upstream", "infrastructure")


async def test_an_answer_that_is_cut_off_is_a_fault(upstream: Sessions) -> None:
    async with table(upstream.url) as episodes:
        episode = await open_episode(episodes, "it")
        upstream.cut = True
        with pytest.raises(EpisodeFailed):
            await episode.call("counted", {})
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.fault) == ("upstream", "infrastructure")


def test_what_cannot_be_reached_is_said(upstream: Sessions) -> None:
    with pytest.raises(ConfigurationError, match="HTTP status 401"):
        load(f'mcp:"{upstream.url}"', "it")
    with pytest.raises(InvalidOption, match=r"there is no value for \{ITS_KEY\}"):
        load(f'mcp:"{upstream.url}"', "it", options={"headers": {"Authorization": "{ITS_KEY}"}})
    with pytest.raises(ConfigurationError, match="a server at an address has no working folder"):
        load(f'mcp:"{upstream.url}"', "it", options={"tasks": _file_with_files()})


def _file_with_files() -> str:
    return str(Path(__file__).parent.parent / "support" / "tasks_with_files.toml")
