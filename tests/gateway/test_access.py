"""Tokens, scopes, owners, hosts and origins, on every surface."""

import hashlib
import time
from pathlib import Path

import httpx2
import pytest
from environments import Tracked
from harness import ERAS, Era, Raw, RunningGateway, connect, running, texts
from patience import patient

from envport import AsyncClient, Client
from envport.access import Access, HostPolicy, is_loopback
from envport.errors import InvalidAccess, PermissionDenied, Unauthenticated, UnknownEpisode
from envport.registry import EnvironmentDefinition

ALICE, BOB, PLAYER, WATCHER, SCRAPER = (
    f"{name}-token-0123456789" for name in ("alice", "bob", "player", "watcher", "scraper")
)

TOKENS = f"""
[[tokens]]
name = "alice"
scopes = ["control", "play"]
token = "{ALICE}"

[[tokens]]
name = "bob"
scopes = ["control", "play"]
sha256 = "{hashlib.sha256(BOB.encode()).hexdigest()}"

[[tokens]]
name = "alice"
scopes = ["play"]
token = "{PLAYER}"

[[tokens]]
name = "watcher"
scopes = ["control"]
token = "{WATCHER}"

[[tokens]]
name = "scraper"
scopes = ["metrics"]
token = "{SCRAPER}"
"""

CONTROL_ROUTES = [
    ("GET", "/environments"),
    ("GET", "/environments/tracked"),
    ("GET", "/environments/tracked/tasks"),
    ("POST", "/episodes"),
    ("GET", "/episodes"),
    ("GET", "/episodes/{id}"),
    ("POST", "/episodes/{id}/finish"),
    ("POST", "/episodes/{id}/fork"),
    ("POST", "/episodes/{id}/reset"),
    ("POST", "/episodes/{id}/keepalive"),
    ("GET", "/episodes/{id}/legal-calls"),
    ("DELETE", "/episodes/{id}"),
    ("GET", "/episodes/{id}/trajectory"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/metrics"),
    ("GET", "/no/such/route"),
]
MCP_ROUTES = ["/mcp", "/environments/tracked/mcp", "/episodes/{id}/mcp"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory):
    file = tmp_path_factory.mktemp("access") / "tokens.toml"
    file.write_text(TOKENS)
    with running(EnvironmentDefinition("tracked", Tracked), access=Access.load({}, file)) as gateway:
        yield gateway


def bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def test_every_route_of_the_control_plane_is_in_this_test(guarded: RunningGateway):
    paths = httpx2.get(f"{guarded.url}/openapi.json", headers=bearer(ALICE)).json()["paths"]
    routes = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    covered = {(m, p.replace("{id}", "{episode_id}").replace("/tracked", "/{name}")) for m, p in CONTROL_ROUTES}
    assert routes - covered == {("GET", "/healthz"), ("GET", "/readyz")}


@pytest.mark.parametrize(("method", "path"), CONTROL_ROUTES)
def test_the_control_plane_wants_a_control_token(guarded: RunningGateway, method: str, path: str):
    with Client(guarded.url, token=ALICE) as control:
        opened = control.open("tracked", mint_token=True)
    url = guarded.url + path.format(id=opened.episode_id)
    for headers in ({}, bearer("wrong-token-0123456789"), {"Authorization": "Basic abc"}, {"Authorization": "Bearer"}):
        answer = httpx2.request(method, url, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    for narrow in (PLAYER, opened.token):
        answer = httpx2.request(method, url, headers=bearer(narrow))
        assert answer.status_code == 403
        assert "control" in answer.json()["error"]["message"]


def test_a_metrics_token_reads_the_metrics_and_nothing_else(guarded: RunningGateway):
    with Client(guarded.url, token=ALICE) as control:
        episode_id = control.open("tracked").episode_id
    for method, path in CONTROL_ROUTES:
        answer = httpx2.request(method, guarded.url + path.format(id=episode_id), headers=bearer(SCRAPER))
        assert answer.status_code == (200 if path == "/metrics" else 403), path
    for path in MCP_ROUTES:
        with Raw(guarded.url + path.format(id=episode_id), "modern", bearer(SCRAPER)) as raw:
            assert raw.post("tools/list").status_code == 403
    assert httpx2.get(f"{guarded.url}/metrics", headers=bearer(WATCHER)).status_code == 200


@pytest.mark.parametrize("path", MCP_ROUTES)
@pytest.mark.parametrize("era", ERAS)
def test_the_agent_plane_wants_a_play_token(guarded: RunningGateway, path: str, era: Era):
    with Client(guarded.url, token=ALICE) as control:
        url = guarded.url + path.format(id=control.open("tracked").episode_id)
    for headers, status in (({}, 401), (bearer("wrong-token-0123456789"), 401), (bearer(WATCHER), 403)):
        with Raw(url, era, headers) as raw:
            assert raw.post("tools/list").status_code == status
    with Raw(url, era, bearer(PLAYER)) as raw:
        assert raw.post("tools/list").status_code == 200


def test_probes_need_no_token_and_a_play_token_opens_not_even_them(guarded: RunningGateway):
    for path in ("/healthz", "/readyz"):
        assert httpx2.get(guarded.url + path).status_code == 200
        assert httpx2.get(guarded.url + path, headers=bearer(PLAYER)).status_code == 403


@pytest.mark.parametrize("era", ERAS)
async def test_a_minted_token_plays_its_episode_and_nothing_else(guarded: RunningGateway, era: Era):
    async with AsyncClient(guarded.url, token=ALICE) as control:
        opened, other = await control.open("tracked", mint_token=True), await control.open("tracked")
    assert opened.token
    async with connect(opened.mcp_url, era, bearer(opened.token)) as client:
        assert not (await client.call_tool("step", {})).is_error
    for url in (other.mcp_url, f"{guarded.url}/environments/tracked/mcp", f"{guarded.url}/episodes/ep_no/mcp"):
        with Raw(url, era, bearer(opened.token)) as raw:
            assert raw.post("tools/list").status_code == 403
    with Raw(f"{guarded.url}/mcp", era, bearer(opened.token) | {"Envport-Episode": opened.episode_id}) as raw:
        assert raw.post("tools/list").status_code == 200
    tampered = opened.token[:-2] + ("AA" if not opened.token.endswith("AA") else "BB")
    with Raw(opened.mcp_url, era, bearer(tampered)) as raw:
        assert raw.post("tools/list").status_code == 401


async def test_a_url_carries_the_token_of_its_episode_and_no_other(guarded: RunningGateway):
    """For clients that are told a URL and nothing else."""
    async with AsyncClient(guarded.url, token=ALICE) as control:
        opened = await control.open("tracked", mint_token=True)
    async with connect(opened.mcp_url.replace("://", f"://episode:{opened.token}@"), "modern") as client:
        assert not (await client.call_tool("step", {})).is_error
    for token in (ALICE, PLAYER, f"{opened.token}x", ""):
        answer = httpx2.post(opened.mcp_url, auth=("episode", token), json={})
        assert answer.status_code == 401
        assert "token of a single episode" in answer.text
    assert httpx2.get(f"{guarded.url}/episodes", auth=("episode", opened.token)).status_code == 403


@pytest.mark.parametrize("era", ERAS)
async def test_a_foreign_episode_looks_unknown(guarded: RunningGateway, era: Era):
    async with AsyncClient(guarded.url, token=ALICE) as alice, AsyncClient(guarded.url, token=BOB) as bob:
        opened = await alice.open("tracked")
        for look in (bob.episode, bob.close_episode, bob.reset, bob.keep_alive, bob.trajectory):
            with pytest.raises(UnknownEpisode) as refused:
                await look(opened.episode_id)
            with pytest.raises(UnknownEpisode) as unknown:
                await look("ep_unknown")
            assert str(refused.value) == str(unknown.value)
        answers = []
        for handle in (opened.episode_id, "ep_unknown"):
            async with connect(f"{guarded.url}/episodes/{handle}/mcp", era, bearer(BOB)) as client:
                tools, answer = await client.list_tools(), await client.call_tool("step", {})
                answers.append((tools.model_dump(), answer.model_dump(), client.instructions))
            async with connect(f"{guarded.url}/environments/tracked/mcp", era, bearer(BOB)) as client:
                answer = await client.call_tool("step", {"episode_id": handle})
                assert answer.is_error
                assert "not yours" in texts(answer)[0]
        assert answers[0] == answers[1]
        assert (await alice.episode(opened.episode_id)).steps == 0


def test_a_session_belongs_to_who_opened_it(guarded: RunningGateway):
    with Raw(f"{guarded.url}/environments/tracked/mcp", "legacy", bearer(ALICE)) as raw:
        assert raw.post("tools/list").status_code == 200
        raw.http.headers["Authorization"] = f"Bearer {BOB}"
        assert raw.post("tools/list").status_code == 404


def test_the_client_raises_what_the_gateway_raised(guarded: RunningGateway):
    with Client(guarded.url, token="wrong-token-0123456789") as client, pytest.raises(Unauthenticated):
        client.environments()
    with Client(guarded.url, token=PLAYER) as client, pytest.raises(PermissionDenied, match="control"):
        client.environments()


@pytest.mark.parametrize("path", ["/environments", "/healthz", "/environments/tracked/mcp", "/episodes/x/mcp", "/mcp"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_foreign_hosts_and_origins_are_refused_everywhere(guarded: RunningGateway, path: str, method: str):
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:8000", "localhost.evil"):
        answer = httpx2.request(method, guarded.url + path, headers={"Host": host} | bearer(ALICE))
        assert answer.status_code == 421
    for origin in ("http://evil.example", "https://localhost.evil", "null", "file://", "http://127.0.0.1@evil.example"):
        answer = httpx2.request(method, guarded.url + path, headers={"Origin": origin} | bearer(ALICE))
        assert answer.status_code == 403
    answer = httpx2.request(method, guarded.url + path, headers={"Origin": "http://localhost:3000"} | bearer(ALICE))
    assert answer.status_code not in (403, 421)


def test_pages_of_an_allowed_origin_may_read_the_answers():
    hosts = HostPolicy.for_binding("127.0.0.1", origins=["https://app.example"])
    with running(EnvironmentDefinition("tracked", Tracked), hosts=hosts) as gateway:
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        asked = httpx2.options(f"{gateway.url}/episodes", headers={"Origin": "https://app.example", **ask})
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        answer = httpx2.get(f"{gateway.url}/environments", headers={"Origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        foreign = httpx2.get(f"{gateway.url}/environments", headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
        assert "access-control-allow-origin" not in foreign.headers


def test_without_tokens_a_loopback_gateway_is_open_but_a_wrong_token_is_not():
    with running(EnvironmentDefinition("tracked", Tracked)) as gateway:
        assert httpx2.get(f"{gateway.url}/environments").status_code == 200
        assert httpx2.get(f"{gateway.url}/environments", headers=bearer("wrong-token-0123456789")).status_code == 401
        with Client(gateway.url) as control:
            opened = control.open("tracked", mint_token=True)
        assert httpx2.get(f"{gateway.url}/environments", headers=bearer(opened.token)).status_code == 403


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tokens = 3", "tables"),
        ("tokens = []", "tables"),
        ("", "tables"),
        ("[[tokens]]\nname='a'\nscopes=['play']\ntoken='0123456789abcdef'\n[hosts]", "tables and nothing else"),
        ("[[tokens]]\nname='a'\nscopes=['play']\ntoken='short'", "at least 16"),
        ("[[tokens]]\nscopes=['play']\ntoken='0123456789abcdef'", "name"),
        ("[[tokens]]\nname='a'\nscopes=['admin']\ntoken='0123456789abcdef'", "'control', 'play', 'read', 'metrics'"),
        ("[[tokens]]\nname='a'\nscopes=['play']", "either token"),
        ("[[tokens]]\nname='a'\nscopes=['play']\nsha256='zz'", "SHA-256"),
        ("[[tokens]]\nname='a'\nscopes=['play']\ntoken='0123456789abcdef'\nexpires=1", "'expires'"),
        ("[[tokens", "not TOML, at end of document"),
        (
            "[[tokens]]\nname='a'\nscopes=['play']\n0123456789abcdef='token'",
            r"unknown key \(not shown\); allowed: name,",
        ),
        ("[[tokens]]\n[tokens.0123456789abcdef]\n[tokens.0123456789abcdef]", "not TOML, at line 3, column"),
        ("[0123456789abcdef]", "nothing else"),
    ],
)
def test_a_bad_token_file_is_said_clearly_and_shows_no_token(tmp_path: Path, text: str, said: str):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(InvalidAccess, match=said) as refused:
        Access.load({}, file)
    assert "0123456789abcdef" not in str(refused.value)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o602])
def test_a_token_file_that_everybody_can_read_or_change_is_warned_of(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    file.chmod(mode)
    assert Access.load({}, file).required
    warned = [record.getMessage() for record in caplog.records]
    assert warned == (
        [f"every user of this machine can read or change the token file {file}. Let only its owner do so: chmod 600"]
        if mode & 0o006
        else []
    )


def test_a_token_file_that_changes_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("envport.access._LOOK_SECONDS", 0.01)
    caplog.set_level("INFO", "envport.access")
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    file.chmod(0o600)
    environment = EnvironmentDefinition("tracked", Tracked)
    with running(environment, access=Access.load({"ENVPORT_TOKEN": WATCHER}, file)) as gateway:

        def status(token: str) -> int:
            return httpx2.get(f"{gateway.url}/environments", headers=bearer(token)).status_code

        def until(token: str, wanted: int) -> None:
            begin = time.monotonic()
            while status(token) != wanted:
                assert time.monotonic() < begin + patient(10)

        with Client(gateway.url, token=BOB) as control:
            opened = control.open("tracked", mint_token=True)
        with Raw(opened.mcp_url, "modern", bearer(str(opened.token))) as raw:
            assert raw.post("tools/list").status_code == 200
            entry = f"""[[tokens]]\nname = "carol"\nscopes = ["control"]\ntoken = "carol-{ALICE}"\n"""
            changed = tmp_path / "changed.toml"
            changed.write_text(entry)
            changed.rename(file)
            until(BOB, 401)
            assert (status(f"carol-{ALICE}"), status(ALICE), status(WATCHER)) == (200, 401, 200)
            assert raw.post("tools/list").status_code == 401, "the token of an episode outlived its principal's"
        file.write_text(f"{entry}\n{BOB} = 1")
        while "stay valid" not in caplog.text:
            assert status(f"carol-{ALICE}") == 200
        file.unlink()
        while "cannot be read" not in caplog.text:
            assert status(f"carol-{ALICE}") == 200
        file.write_text(TOKENS)
        until(BOB, 200)
        assert status(f"carol-{ALICE}") == 401
    assert "was read again: 1 tokens" in caplog.text
    for token in (ALICE, BOB, WATCHER):
        assert token not in caplog.text


def test_tokens_from_the_environment(tmp_path: Path):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    access = Access.load({"ENVPORT_TOKENS_FILE": str(file), "ENVPORT_TOKEN": "one-more-token-012345"})
    for token, name in ((ALICE, "alice"), (BOB, "bob"), ("one-more-token-012345", "default")):
        principal = access.authenticate(f"Bearer {token}")
        assert principal is not None
        assert principal.name == name
    assert access.authenticate(None) is None
    with pytest.raises(InvalidAccess, match="cannot be read"):
        Access.load({"ENVPORT_TOKENS_FILE": str(tmp_path / "missing.toml")})


def test_a_shared_secret_lets_replicas_read_each_other_s_tokens():
    one, two = (Access.load({"ENVPORT_SECRET": "a-secret-of-the-cluster"}) for _ in range(2))
    principal = one.authenticate(None)
    assert principal is not None
    token = one.mint(principal, "ep_1")
    read = two.authenticate(f"Bearer {token}")
    assert read is not None
    assert (read.name, read.episode, read.scopes) == ("local", "ep_1", {"play"})
    with pytest.raises(Unauthenticated):
        Access().authenticate(f"Bearer {token}")


def test_bindings():
    assert all(is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com"))
    with pytest.raises(InvalidAccess, match="--allowed-host"):
        HostPolicy.for_binding("0.0.0.0")
    policy = HostPolicy.for_binding("0.0.0.0", ["envport.example"])
    assert policy.allows_host("envport.example:8000")
    assert policy.allows_host("127.0.0.1:8000"), "a health check on the machine itself"
    assert not policy.allows_host("other.example")
    assert HostPolicy.for_binding("::1").allows_host("[::1]:8000")
