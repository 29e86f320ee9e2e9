"""The OpenAPI description says which refusals each route gives, and in which form."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from environments import Elsewhere, Stubborn, Tasked, Tracked
from harness import RunningGateway, running

from envport.access import Access, Principal
from envport.episodes import Limits
from envport.registry import EnvironmentDefinition
from envport.trajectories.recorder import DatabaseTrajectories

TOKEN, PLAYER = "all-0123456789abcdef", "play-0123456789abcdef"
# Where the machine of an episode is lost: no test here has a cluster.
IN_A_CLUSTER = {(method, path, "502") for method, path in (
    ("post", "/episodes/{episode_id}/keepalive"),
    ("get", "/episodes/{episode_id}/trajectory"),
    ("get", "/episodes/{episode_id}/legal-calls"),
)}  # fmt: skip
FORK = "/episodes/{episode_id}/fork"
# While an episode is put back after a restart, and where the calls of a copy give something else.
WITH_A_PAST = {("post", FORK, "502"), ("post", FORK, "503")} | {(method, path, "503") for method, path in (
    ("post", "/episodes/{episode_id}/keepalive"),
    ("post", "/episodes/{episode_id}/finish"),
    ("get", "/episodes/{episode_id}/legal-calls"),
)}  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RunningGateway]:
    principals = {TOKEN: frozenset({"play", "control"}), PLAYER: frozenset({"play"})}
    tokens = [
        (hashlib.sha256(token.encode()).digest(), Principal("me", scopes)) for token, scopes in principals.items()
    ]  # type: ignore[arg-type]
    environments = {"tracked": Tracked, "tasked": Tasked, "stubborn": Stubborn, "elsewhere": Elsewhere}
    specs = [EnvironmentDefinition(name, cls) for name, cls in environments.items()]
    limits = Limits(max_episodes=1, wait_seconds=0)
    with running(*specs, access=Access(tokens), limits=limits, trajectories=DatabaseTrajectories(tmp_path)) as gateway:
        yield gateway


@pytest.fixture
def refusals(served: RunningGateway) -> Iterator[Refusals]:
    with httpx2.Client(base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        yield Refusals(http)


class Refusals:
    """The refusals that were provoked, each compared with what is documented."""

    def __init__(self, http: httpx2.Client):
        self.http = http
        self.paths: dict[str, Any] = self.http.get("/openapi.json").json()["paths"]
        self.seen: set[tuple[str, str, str]] = set()

    def routes(self) -> list[tuple[str, str]]:
        return [(method, path) for path, operations in self.paths.items() for method in operations]

    def provoke(
        self, status: int, method: str, path: str, *, of: str = "ep_unknown", name: str = "nowhere", **request: Any
    ) -> None:
        """Send a request that is refused with this status."""
        address = path.replace("{episode_id}", of).replace("{name}", name)
        answer = self.http.request(method, address, **request)
        assert answer.status_code == status, (method, path, answer.text)
        documented = self.paths[path][method]["responses"]
        assert str(status) in documented, f"{method} {path} does not document {status}"
        self.seen.add((method, path, str(status)))
        content = documented[str(status)]["content"]
        media_type = answer.headers.get("content-type", "text/plain").partition(";")[0]
        assert media_type in content, (method, path, status, media_type)
        if media_type == "application/json" and path != "/readyz":
            assert content[media_type]["schema"] == {"$ref": "#/components/schemas/Problem"}
            error = answer.json()["error"]
            assert set(error) <= {"code", "message", "retry_after", "fault", "reason"}
            assert error["code"]
            assert error["message"]


def test_every_refusal_is_documented_and_every_documented_refusal_is_given(
    served: RunningGateway, refusals: Refusals, tmp_path: Path
):
    for method, path in refusals.routes():
        refusals.provoke(401, method, path, headers={"Authorization": "Bearer wrong"})
        refusals.provoke(403, method, path, headers={"Authorization": f"Bearer {PLAYER}"})
        refusals.provoke(403, method, path, headers={"Origin": "https://elsewhere.test"})
        refusals.provoke(421, method, path, headers={"Host": "elsewhere.test"})
        refusals.provoke(400, method, path, headers=[("Host", "127.0.0.1"), ("Origin", "a"), ("Origin", "b")])
        if "{" in path:
            refusals.provoke(404, method, path)
    episode, reset = "/episodes", "/episodes/{episode_id}/reset"
    refusals.provoke(422, "get", "/environments/{name}/tasks", params={"offset": -1})
    refusals.provoke(502, "get", "/environments/{name}/tasks", name="elsewhere")
    refusals.provoke(422, "get", episode, params={"label": "no value"})
    refusals.provoke(404, "post", episode, json={"environment": "nowhere"})
    refusals.provoke(422, "post", episode, json={"environment": "tracked", "seed": "x"})
    refusals.provoke(413, "post", episode, content=b" " * (5 * 2**20))
    refusals.provoke(413, "post", reset, content=b" " * (5 * 2**20))
    refusals.provoke(413, "post", FORK, content=b" " * (5 * 2**20))
    refusals.provoke(422, "post", FORK, json={"step": "x"})
    refusals.provoke(502, "post", episode, json={"environment": "stubborn"})
    over = refusals.http.post(episode, json={"environment": "tasked"}).json()["episode_id"]
    refusals.provoke(404, "post", reset, of=over, json={"split": "dev"})
    refusals.provoke(422, "post", reset, of=over, json={"seed": -1})
    refusals.provoke(503, "post", episode, json={"environment": "tracked"})
    table = served.gateway.table
    served.run(lambda: table.drain(0))
    refusals.provoke(502, "post", reset, of=over)
    refusals.provoke(503, "get", "/readyz")
    with closing(sqlite3.connect(tmp_path / "episodes.db")) as store:
        store.execute("DROP TABLE episodes")
    for path in (episode, "/episodes/{episode_id}", "/episodes/{episode_id}/trajectory"):
        refusals.provoke(503, "get", path)

    documented = {
        (method, path, status)
        for method, path in refusals.routes()
        for status in refusals.paths[path][method]["responses"]
        if int(status) >= 400
    }
    # An ended episode that is reset may find no room.
    given = refusals.seen | IN_A_CLUSTER | WITH_A_PAST | {("post", reset, "503")}
    missing: dict[str, list[str]] = defaultdict(list)
    for method, path, status in sorted(documented - given):
        missing[f"{method} {path}"].append(status)
    assert missing == {}


def test_no_other_form_of_refusal_is_described(refusals: Refusals):
    schemas = refusals.http.get("/openapi.json").json()["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    assert schemas["Problem"]["properties"]["error"] == {"$ref": "#/components/schemas/ProblemDetail"}
