"""`envport serve` as a process: what it prints, who may reach it, what it logs, how it stops."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from command_line import SECONDS, TOKEN, Served, envport, player, refused, refused_here, text
from slow import slow
from websockets.sync.client import connect

MODES = ["auto", "legacy"]

OWN = """
import time

from envport import Environment, Task, tool


class Own(Environment):
    \"\"\"An environment of one's own.

    Its second paragraph.
    \"\"\"

    runtime = "thread"

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "Begin."

    @tool
    def wait(self) -> str:
        \"\"\"Never returns.\"\"\"
        time.sleep(3600)

    @tool
    def crash(self) -> str:
        \"\"\"Breaks.\"\"\"
        raise RuntimeError("the inside of it")
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


async def started(client: object) -> str:
    result = await client.call_tool("start_episode", {})  # type: ignore[attr-defined]
    return result.meta["envport/episode_id"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_of_either_era_plays_at_the_address_that_is_printed(gateway: Served, mode: str):
    async with player(f"{gateway.url}/environments/counter/mcp", mode) as client:
        episode_id = await started(client)
        counts = [text(await client.call_tool("count", {"episode_id": episode_id})) for _ in range(3)]
    assert counts == ["1", "2", "3"]


def test_web_sockets_are_not_compressed(gateway: Served):
    """Compression would take most of the memory of a connection."""
    with connect(f"{gateway.url.replace('http', 'ws')}/rollouts", compression="deflate") as connection:
        assert connection.response is not None
        assert "Sec-WebSocket-Extensions" not in connection.response.headers


def test_the_greeting_says_what_is_served_and_what_to_do_next(gateway: Served):
    assert re.search(r"^  counter +Counts up from 1", gateway.greeting, re.MULTILINE)
    attach = f"  claude mcp add --transport http catch {gateway.url}/environments/catch/mcp\n"
    assert attach in gateway.greeting
    said = "There are no tokens. An agent too may open and reset episodes, and read rewards"
    assert gateway.greeting.count(said) == 1
    assert f"  {gateway.url}/docs\n" in gateway.greeting
    assert httpx2.get(f"{gateway.url}/docs").status_code == 200


@pytest.mark.parametrize("found", [*slow([True]), False])
def test_the_commands_that_are_printed_work_in_a_shell_in_any_folder(found: bool, tmp_path: Path):
    scripts = str(Path(sys.executable).parent)
    others = [folder for folder in os.environ["PATH"].split(":") if folder != scripts]
    path = ":".join([scripts, *others] if found else others)
    with Served("catch", PATH=path) as served:
        (play,) = re.findall(r"^  (.*envport play catch --url .*)$", served.greeting, re.MULTILINE)
        (attach,) = re.findall(r"\(for other clients: (.* attach) NAME (--url .*)\):$", served.greeting, re.MULTILINE)
        assert play.startswith("envport ") == found
        for command, shown in ((play, "Tools:"), (f"{attach[0]} catch {attach[1]}", "mcpServers")):
            done = subprocess.run(
                ["sh", "-c", command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                env={"PATH": path, "HOME": str(tmp_path)},
                cwd=tmp_path,
                check=False,
            )
            assert (done.returncode, shown in done.stdout) == (0, True), done.stderr


def test_without_references_all_that_can_be_loaded_is_served_and_the_rest_explained(little_installed: Path):
    with Served(PYTHONPATH=str(little_installed)) as served:
        assert {"catch", "counter", "echo"} <= {it["name"] for it in httpx2.get(f"{served.url}/environments").json()}
        line = next(line for line in served.greeting.splitlines() if line.startswith("  broken"))
        assert line.endswith("pip install 'envport[textarena]'")


def test_environments_are_served_from_files_with_options_and_under_other_names(own: Path):
    with Served("./own.py:Own", "small=catch?rows=5", cwd=own) as served:
        assert re.search(r"^  own +An environment of one's own\.$", served.greeting, re.MULTILINE)
        small = httpx2.get(f"{served.url}/environments/small").json()
        assert small["options"] == {"rows": 5}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("mode", MODES)
async def test_signals_stop_it_in_order_while_clients_are_connected(number: signal.Signals, mode: str):
    with Served("counter", "--drain-seconds", "0") as served:
        async with player(f"{served.url}/environments/counter/mcp", mode) as client:
            await started(client)
            assert await asyncio.to_thread(served.stop, number) == 0
            (line,) = served.log.splitlines()
            assert line.endswith("ended as closed: The gateway was shut down.")


async def test_a_call_that_never_ends_does_not_keep_it_alive(own: Path):
    with Served("own.py:Own", "--shutdown-seconds", "1", "--drain-seconds", "0", cwd=own) as served:
        async with player(f"{served.url}/environments/own/mcp") as client:
            episode_id = await started(client)
            stuck = asyncio.create_task(client.call_tool("wait", {"episode_id": episode_id}))
            while (await asyncio.to_thread(httpx2.get, f"{served.url}/readyz")).json()["live"] != 1:
                pass
            assert await asyncio.to_thread(served.stop) == 0
            with pytest.raises(Exception, match=r".*"):
                await stuck
        assert "Traceback" not in served.log
        assert "could not be cancelled" in served.log.splitlines()[-1]


def test_requests_are_logged_only_when_asked_for():
    with Served("counter", "--log-level", "debug", "--log-format", "json") as served:
        assert "server" not in httpx2.get(f"{served.url}/healthz").headers
        served.stop()
        assert any("/healthz" in json.loads(line)["message"] for line in served.log.splitlines())


def test_a_port_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("serve", "counter", "--port", str(port))
    assert line == f"error: port {port} of 127.0.0.1 is in use: choose another with --port, or a free one with --port 0"


def test_without_tokens_other_machines_are_kept_out():
    line = refused("serve", "counter", "--port", "0", "--host", "0.0.0.0")
    assert "without tokens" in line
    assert "--allow-unauthenticated" in line


def test_bound_to_every_address_it_has_to_know_its_names():
    line = refused("serve", "counter", "--port", "0", "--host", "0.0.0.0", "--allow-unauthenticated")
    assert "--allowed-host" in line


def test_told_so_in_so_many_words_it_lets_everybody_in_by_its_names_only():
    words = ("--host", "0.0.0.0", "--allow-unauthenticated", "--allowed-host", "gateway.test")
    with Served("counter", *words) as served:
        address = served.url.replace("gateway.test", "127.0.0.1")
        assert served.url.startswith("http://gateway.test:")
        assert httpx2.get(f"{address}/environments", headers={"Host": "gateway.test"}).status_code == 200
        assert httpx2.get(f"{address}/environments", headers={"Host": "elsewhere.test"}).status_code == 421
        foreign = {"Host": "gateway.test", "Origin": "https://elsewhere.test"}
        assert httpx2.get(f"{address}/environments", headers=foreign).status_code == 403
        assert "Whoever reaches this address" in served.log
        assert "An agent too may open and reset episodes" in served.log


def test_origins_of_web_pages_are_let_in_by_name():
    with Served("counter", "--allowed-origin", "https://app.example.com") as served:
        for origin, status in (("https://app.example.com", 200), ("https://app.example.org", 403)):
            assert httpx2.get(f"{served.url}/environments", headers={"Origin": origin}).status_code == status


def test_a_public_address_is_the_one_that_is_printed_and_answered():
    public = "https://envs.example.org/play"
    with Served("counter", "--public-url", public + "/", ENVPORT_TOKEN=TOKEN) as served:
        assert served.url == public
        assert f"{public}/environments/counter/mcp" in served.greeting


async def test_with_tokens_every_request_needs_one(secured: Served):
    url = f"{secured.url}/environments/counter/mcp"
    assert "--header 'Authorization: Bearer ${ENVPORT_TOKEN}'" in secured.greeting
    assert TOKEN not in secured.greeting + secured.log
    assert "no tokens" not in secured.greeting + secured.log
    assert httpx2.post(url, json={}).status_code == 401
    assert httpx2.get(f"{secured.url}/environments").status_code == 401
    assert httpx2.get(f"{secured.url}/healthz").status_code == 200
    async with player(url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["start_episode", "count"]


def test_tokens_come_from_a_file_with_their_scopes(tmp_path: Path):
    file = tmp_path / "tokens.toml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    file.write_text(f'[[tokens]]\nname = "agent"\nscopes = ["play"]\nsha256 = "{digest}"\n')
    file.chmod(0o644)
    with Served("counter", "--token-file", str(file)) as served:
        (warning,) = served.log.splitlines()
        assert warning.endswith(f"{file}. Let only its owner do so: chmod 600")
        answer = httpx2.get(f"{served.url}/environments", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 403
        done = envport("attach", "counter", "--url", served.url, ENVPORT_TOKEN=TOKEN)
        assert "lists 2 tools" in done.stderr


def test_a_bad_token_file_is_refused(tmp_path: Path):
    file = tmp_path / "tokens.toml"
    file.write_text("[[tokens]")
    assert "is not TOML" in refused("serve", "counter", "--port", "0", "--token-file", str(file))
    assert "cannot be read" in refused("serve", "counter", "--port", "0", "--token-file", str(tmp_path / "none"))


def test_limits_are_kept():
    with Served("counter", "--max-episodes", "1", "--wait-seconds", "0", "--idle-seconds", "90") as served:
        answers = [httpx2.post(f"{served.url}/episodes", json={"environment": "counter"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 503]
        info = httpx2.get(f"{served.url}/environments/counter").json()
        assert info["limits"]["idle_seconds"] == 90


def test_limits_of_environments_are_kept():
    words = ("--wait-seconds", "0", "--max-episodes-per-environment", "2", "--max-episodes-of", "echo=1")
    with Served("counter", "echo", *words) as served:
        for name, most in (("counter", 2), ("echo", 1)):
            assert httpx2.get(f"{served.url}/environments/{name}").json()["limits"]["max_episodes"] == most
            answers = [httpx2.post(f"{served.url}/episodes", json={"environment": name}) for _ in range(most + 1)]
            assert [answer.status_code for answer in answers] == [*[201] * most, 503]
            assert f"environment '{name}'" in answers[-1].json()["error"]["message"]


@pytest.mark.parametrize("said", ["echo", "echo=", "echo=0", "echo=-1", "echo=1.5", "echo=²", "=1"])
def test_a_limit_of_an_environment_has_to_be_a_name_and_a_number(said: str):
    assert "has to be NAME=N" in refused_here("serve", "echo", "--port", "0", "--max-episodes-of", said)


def test_a_limit_for_what_is_not_served_or_given_twice_is_refused():
    assert "'eco', which is not served" in refused("serve", "echo", "--port", "0", "--max-episodes-of", "eco=1")
    twice = ("--max-episodes-of", "echo=1", "--max-episodes-of", "echo=2")
    assert "given twice" in refused("serve", "echo", "--port", "0", *twice)


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_loopback_has_other_names_too(host: str):
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if host == "::1" else socket.AF_INET).close()
    except OSError as error:
        pytest.skip(f"{host} cannot be bound to: {error}")
    with Served("counter", "--host", host) as served:
        assert httpx2.get(f"{served.url}/healthz").status_code == 200


def test_it_may_open_as_many_files_as_the_system_allows():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with Served("counter", fresh=True) as served:
            assert resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
