"""Sessions of the handshake era: nobody keeps the others out by opening many."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx2
import pytest
from environments import Gate, Tracked
from harness import Raw, RunningGateway, running

from envport import Client
from envport.access import Access, Principal
from envport.clock import ManualClock
from envport.episodes import Limits
from envport.registry import EnvironmentDefinition

GREEDY, OTHER, THIRD = (f"{name}-0123456789abcdef" for name in ("greedy", "other", "third"))

Opened = Callable[..., Raw]


@pytest.fixture
def guarded() -> Iterator[RunningGateway]:
    tokens = [
        (hashlib.sha256(token.encode()).digest(), Principal(token[:5], frozenset({"play", "control"})))
        for token in (GREEDY, OTHER, THIRD)
    ]
    specs = [EnvironmentDefinition("tracked", Tracked), EnvironmentDefinition("gate", Gate)]
    limits = Limits(max_sessions=5, max_sessions_per_principal=3)
    with running(*specs, access=Access(tokens), limits=limits) as gateway:
        yield gateway


@pytest.fixture
def opened(guarded: RunningGateway) -> Iterator[Opened]:
    with ExitStack() as stack:

        def open_session(token: str, environment: str = "tracked") -> Raw:
            url = f"{guarded.url}/environments/{environment}/mcp"
            raw = stack.enter_context(Raw(url, "legacy", {"Authorization": f"Bearer {token}"}))
            assert raw.session is not None
            return raw

        yield open_session


def lives(raw: Raw) -> bool:
    return raw.post("tools/list").status_code == 200


def counted(gateway: RunningGateway, token: str) -> str:
    text = httpx2.get(f"{gateway.url}/metrics", headers={"Authorization": f"Bearer {token}"}).text
    return next(line for line in text.splitlines() if line.startswith("envport_mcp_sessions "))


def test_at_its_limit_a_principal_loses_its_own_session_that_was_unused_for_longest(
    guarded: RunningGateway, opened: Opened
):
    other = opened(OTHER)
    mine = [opened(GREEDY), opened(GREEDY, "gate"), opened(GREEDY)]
    assert lives(mine[0])
    mine.append(opened(GREEDY))
    assert [lives(raw) for raw in mine] == [True, False, True, True]
    assert mine[1].post("tools/list").status_code == 404
    assert lives(other)
    assert counted(guarded, OTHER) == "envport_mcp_sessions 4.0"


def test_when_all_are_taken_who_has_the_most_makes_room(guarded: RunningGateway, opened: Opened):
    greedy = [opened(GREEDY) for _ in range(3)]
    others = [opened(OTHER), opened(OTHER)]
    with Client(guarded.url, token=THIRD) as control:
        url = control.open("tracked").mcp_url
    with Raw(url, "legacy", {"Authorization": f"Bearer {THIRD}"}) as third:
        assert lives(third)
        assert [lives(raw) for raw in (*greedy, *others)] == [False, True, True, True, True]
        assert counted(guarded, OTHER) == "envport_mcp_sessions 5.0"


def test_ended_and_refused_sessions_are_not_counted(guarded: RunningGateway, opened: Opened):
    mine = [opened(GREEDY) for _ in range(3)]
    ended = mine[0].http.delete(mine[0].url, headers={"Mcp-Session-Id": mine[0].session or ""})
    assert ended.status_code == 200
    refused = mine[1].http.post(mine[1].url, content=b"{}", headers={"Content-Type": "application/json"})
    assert refused.status_code >= 400
    assert counted(guarded, GREEDY) == "envport_mcp_sessions 2.0"
    opened(GREEDY)
    assert lives(mine[1])


def test_another_principal_s_session_is_not_used_up_by_naming_it(guarded: RunningGateway, opened: Opened):
    mine, other = opened(GREEDY), opened(OTHER)
    headers = {"Authorization": f"Bearer {GREEDY}", "Mcp-Session-Id": other.session or ""}
    assert httpx2.delete(other.url, headers=headers).status_code == 404
    assert lives(other)
    assert lives(mine)
    assert counted(guarded, GREEDY) == "envport_mcp_sessions 2.0"


def test_a_session_that_has_ended_because_nobody_used_it_is_not_counted():
    tracked, clock = EnvironmentDefinition("tracked", Tracked), ManualClock()
    with (
        running(tracked, limits=Limits(idle_seconds=60), clock=clock) as gateway,
        Raw(f"{gateway.url}/environments/tracked/mcp", "legacy") as raw,
    ):
        assert raw.session is not None
        for seconds, left in ((50, 1), (50, 0)):
            gateway.run(lambda seconds=seconds: clock.advance(seconds))
            assert f"envport_mcp_sessions {left}.0" in httpx2.get(f"{gateway.url}/metrics").text.splitlines()
        assert raw.post("tools/list").status_code == 404
