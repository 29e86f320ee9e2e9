"""Who may reach the page, and what each scope shows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from command_line import Served, refused
from page_tabs import WAIT, Tabs, forget_refusals, log_in
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from envport.access import Access, Principal
from envport.errors import Unauthenticated

HTML = {"Accept": "text/html"}
TOKENS = {scope: f"a-token-with-the-scope-{scope}" for scope in ("read", "play", "control", "metrics")}
OTHER = "a-token-of-somebody-else"


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    entries = [f'[[tokens]]\nname = "me"\nscopes = ["{scope}"]\ntoken = "{token}"\n' for scope, token in TOKENS.items()]
    entries.append(f'[[tokens]]\nname = "other"\nscopes = ["read"]\ntoken = "{OTHER}"\n')
    file.write_text("\n".join(entries))
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def secured(token_file: Path) -> Iterator[Served]:
    with Served("catch", "--token-file", str(token_file)) as served:
        yield served


def session(gateway: Served, token: str) -> str:
    """The cookie of a login, as a header."""
    answer = httpx2.post(f"{gateway.url}/ui/login", data={"token": token}, timeout=WAIT)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    return cookie.partition(";")[0]


def test_the_scope_play_plays_and_sees_no_reward(secured: Served, tabs: Tabs):
    with tabs.open(secured.url) as tab:
        log_in(tab, TOKENS["play"])
        tab.get_by_role("link", name="Play").click()
        tab.get_by_role("button", name="Start").click()
        for moves in range(9):
            tab.get_by_role("heading", name=f"History ({moves})").wait_for()
            tab.get_by_role("button", name="stay", exact=True).click()
        tab.get_by_text("It terminated after 9 steps.").wait_for()
        assert "eward" not in tab.get_by_role("region", name="Observation").locator(".ev-good").inner_text()
        assert "eward" not in tab.get_by_role("region", name="Actions").inner_text()
        # What players do not see of a task is not sent either.
        tab.goto(f"{secured.url}/ui/environments/catch")
        tab.get_by_text("19: ball").wait_for()
        assert "etadata" not in tab.content()
        # The token is nowhere that a script could read.
        assert TOKENS["play"] not in json.dumps(tab.evaluate("[document.cookie, location.href, {...localStorage}]"))
        tab.get_by_role("button", name="Log out").click()
        tab.get_by_label("Token").wait_for()
    forget_refusals(tabs)


@pytest.mark.slow
def test_the_scope_read_looks_and_does_not_play(secured: Served, tabs: Tabs):
    with tabs.open(secured.url) as tab:
        log_in(tab, "wrong-token-wrong-token")
        tab.get_by_role("alert").wait_for()
        log_in(tab, TOKENS["metrics"])
        tab.get_by_text("none of the scopes read, play and control").wait_for()
        log_in(tab, TOKENS["read"])
        tab.get_by_role("heading", name="Environments").wait_for()
        assert not tab.get_by_role("link", name="Play").count()
        tab.get_by_role("link", name="catch").click()
        tab.get_by_text("Metadata, which players do not see").first.wait_for(state="attached")
        assert not tab.get_by_role("link", name="Play it here").count()
        tab.goto(f"{secured.url}/ui/play/catch")
        tab.get_by_text("Your token may only look.").wait_for()
    forget_refusals(tabs)


@pytest.mark.parametrize("path", ["/", "/ui/episodes", "/_nicegui_ws/socket.io/?EIO=4&transport=polling"])
def test_no_path_of_the_page_is_open_without_a_token(secured: Served, path: str):
    answer = httpx2.get(f"{secured.url}{path}", headers=HTML, timeout=WAIT)
    assert answer.status_code in (401, 403)
    assert "catch" not in answer.text
    for cookie in ("", "forged.forged", session(secured, TOKENS["read"])[:-2] + "xx"):
        answer = httpx2.get(f"{secured.url}{path}", headers={**HTML, "Cookie": cookie}, timeout=WAIT)
        assert answer.status_code in (401, 403)


def test_the_session_opens_the_page_and_nothing_else(secured: Served):
    cookie = session(secured, TOKENS["control"])
    assert httpx2.get(secured.url, headers={**HTML, "Cookie": cookie}, timeout=WAIT).status_code == 200
    for path in ("/environments", "/episodes", "/metrics"):
        assert httpx2.get(f"{secured.url}{path}", headers={"Cookie": cookie}, timeout=WAIT).status_code == 401


def test_a_socket_is_for_the_principal_that_got_the_page(secured: Served):
    page = httpx2.get(secured.url, headers={**HTML, "Authorization": f"Bearer {TOKENS['read']}"}, timeout=WAIT)
    found = re.search(r"'client_id': '([0-9a-f-]+)'", page.text)
    assert found, page.text
    socket_path = f"/_nicegui_ws/socket.io/?EIO=4&transport=websocket&client_id={found[1]}"
    address = f"{secured.url.replace('http', 'ws')}{socket_path}"
    mine, foreign = ({"Authorization": f"Bearer {token}"} for token in (TOKENS["play"], OTHER))
    with connect(address, additional_headers=mine) as socket:
        assert str(socket.recv(WAIT)).startswith("0{")
    with pytest.raises(InvalidStatus, match="403"):
        connect(address, additional_headers=foreign)


def tokens(*names: str) -> list[tuple[bytes, Principal]]:
    return [(hashlib.sha256(name.encode()).digest(), Principal(name, frozenset({"read"}))) for name in names]


def test_a_session_is_as_valid_as_its_token_and_for_a_time():
    access = Access(tokens("one", "two"), b"secret")
    now, past = access.session("one", 60), access.session("one", -1)
    assert access.of_session(now) == Principal("one", frozenset({"read"}))
    assert access.of_session(past) is None
    # The token was taken away; the secret is another one; the session is of nobody.
    assert Access(tokens("two"), b"secret").of_session(now) is None
    assert Access(tokens("one"), b"other").of_session(now) is None
    for forged in ("", ".", "a.b", now[:-4], f"x{now}"):
        assert access.of_session(forged) is None
    with pytest.raises(Unauthenticated):
        access.session("three", 60)
    # Neither a token nor its digest can be read from it.
    assert hashlib.sha256(b"one").hexdigest() not in now


def test_without_tokens_other_machines_get_the_page_only_if_it_is_asked_for():
    with Served("catch", "--host", "0.0.0.0", "--allowed-host", "127.0.0.1", "--allow-unauthenticated") as open_to_all:
        port = open_to_all.url.rpartition(":")[2]
        page = httpx2.get(f"http://127.0.0.1:{port}", headers=HTML).text
        assert "This is the plain page." in page
        assert "pip install 'envport[ui]'" in page


def test_no_ui_serves_the_plain_page(tmp_path: Path):
    (tmp_path / "envport.toml").write_text("[serve]\nui = false\n")
    with Served("catch", cwd=tmp_path) as plain:
        assert "This is the plain page." in httpx2.get(plain.url, headers=HTML).text
        assert httpx2.get(f"{plain.url}/ui/episodes").status_code == 404


@pytest.mark.slow
def test_without_the_extra_one_is_told_how_to_get_it(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['nicegui'] = None\n")
    said = refused("serve", "catch", "--ui", fresh=True, PYTHONPATH=str(tmp_path))
    assert "pip install 'envport[ui]'" in said
