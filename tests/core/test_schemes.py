"""References with a scheme, which a package registers: `foreign:...` of tests/support/packages."""

from __future__ import annotations

import asyncio
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Served, envport, player, refused, text

from envport.episodes import Episodes, OpenRequest
from envport.errors import ConfigurationError, EnvironmentNotFound, InvalidOption, MissingExtra
from envport.references import from_anywhere
from envport.registry import load
from envport_bridges.agents.gateways.place import Place
from envport_bridges.rollouts import Rollouts
from envport_bridges.trl import EnvironmentSpec

PACKAGES = str(Path(__file__).parents[1] / "support" / "packages")


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGES)
    monkeypatch.setenv("PYTHONPATH", PACKAGES)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A command with spaces that prints the tools of a foreign system."""
    file = tmp_path_factory.mktemp("foreign") / "tools.py"
    file.write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    return f"{sys.executable} {file}"


class _Tools(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps([self.path.rpartition("=")[2]]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """Address of a foreign system, whose only tool is what its query says."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Tools) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/tools"
        server.shutdown()
        serving.join()


def test_a_command_with_spaces_and_equals_signs(program: str) -> None:
    spec = load(f"foreign:{program} --a=b look:around x://y")
    assert list(spec.tools) == ["--a=b", "look:around", "x://y"]
    assert spec.name == "foreign"
    assert spec.options["source"] == f"{program} --a=b look:around x://y"


def test_an_address_with_a_query(page: str) -> None:
    spec = load(f"mine=foreign:{page}?a=b&c=dig")
    assert (spec.name, list(spec.tools)) == ("mine", ["dig"])


def test_options_follow_the_closing_quote(page: str, program: str) -> None:
    quoted = load(f'foreign:"{page}?a=dig"?greeting=Good%20day&loud=yes')
    assert list(quoted.tools) == ["dig"]
    assert quoted.options == {"source": f"{page}?a=dig", "greeting": "Good day", "loud": True}
    escaped = load(f'foreign:"{program} \\"two words\\" back\\\\\\\\slash"')
    assert list(escaped.tools) == ["two words", "back\\slash"]
    assert load(f"foreign:{page}?a=dig", options={"loud": True}).options["loud"] is True


def test_what_a_scheme_found_out_is_shown_to_nobody(program: str) -> None:
    spec = load(f"foreign:{program} secret_tool")
    assert "tools" not in spec.options
    assert "tools=" not in repr(spec)
    assert "'tools'" not in repr(spec)


@pytest.mark.parametrize(
    ("reference", "error", "complaint"),
    [
        ("foreign:", InvalidOption, "says nothing after the scheme; write foreign:REST"),
        ('foreign:"', InvalidOption, "opens a quote and does not close it"),
        ('foreign:"my program" --flag', InvalidOption, r'write foreign:"\\"my program\\" --flag" if the quotes belong'),
        (
            "foreign:http://h/mcp?loud=yes",
            InvalidOption,
            r'write foreign:"http://h/mcp\?loud=yes" if .* and foreign:"http://h/mcp"\?loud=yes if it is an option',
        ),
        ("foreign:run this?greeting=x", InvalidOption, "could mean two things, because 'greeting' is also an option"),
        ("foreign:word?lowd=yes", InvalidOption, "scheme 'foreign' has no option 'lowd'; its options are: greeting"),
        ('foreign:"word"?loud=maybe', InvalidOption, "scheme 'foreign': option 'loud' is 'maybe'; it has to be"),
        ("foreign:false", ConfigurationError, "'false' ended with 1"),
        ("needy:thing", MissingExtra, "References with needy: .*pip install"),
        (
            "nowhere:FrozenLake-v1",
            EnvironmentNotFound,
            "there is no scheme 'nowhere'; installed: .*foreign, .*needy.*;",
        ),
        ("nowhere:Thing", EnvironmentNotFound, "there is no module 'nowhere', and no scheme; installed: .*foreign"),
        ("http://host/environments/x", EnvironmentNotFound, "is an address, and a reference is needed"),
        ("x=https://host/mcp", EnvironmentNotFound, "is an address, and a reference is needed"),
        ("a b=foreign:false", ConfigurationError, "'a b' cannot name an environment"),
    ],
)
def test_each_mistake_says_how_to_write_it(reference: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint) as caught:
        load(reference)
    assert "\n" not in str(caught.value)


def test_a_class_in_a_module_of_the_same_name_is_ambiguous(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "foreign.py").write_text("from envport import Environment\n\nclass Own(Environment): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidOption, match=rf'write foreign:"Own" for the scheme, and {tmp_path}/foreign.py:Own for'):
        load("foreign:Own")
    # Quotes say that the scheme is meant: there is no such program.
    with pytest.raises(FileNotFoundError):
        load('foreign:"Own"')


def test_two_packages_with_one_scheme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[envport.schemes]\nforeign = other:foreign\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"two packages register the scheme 'foreign': .*other:foreign"):
        load("foreign:true")


def test_a_path_in_the_rest_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert from_anywhere("foreign:./run.py:8000?a=b") == "foreign:./run.py:8000?a=b"
    assert from_anywhere("x=./own.py:Own?a=b") == f"x={tmp_path}/own.py:Own?a=b"


async def test_it_is_loaded_where_an_event_loop_runs_and_played_in_a_process(program: str) -> None:
    spec = load(f"foreign:{program} dig")
    episodes = Episodes({spec.name: spec}, runtime="process")
    async with episodes.run():
        opening = await episodes.open(OpenRequest("foreign", "me"))
        result = await episodes.call(episodes.find(opening.handle, "me"), "dig", {})
    assert opening.observation.text == f"Hello from {program} dig"
    assert result.observation.text == "used dig"


def test_a_bridge_and_an_evaluation_take_it(page: str) -> None:
    reference = f"foreign:{page}?a=dig"
    with Rollouts(reference).open() as rollout:
        assert rollout.call("dig", {}).content[0]["text"] == "used dig"
    assert [tool["name"] for tool in EnvironmentSpec(reference).info.tools] == ["dig"]
    try:
        assert [tool["name"] for tool in Place.of(reference).info().tools] == ["dig"]
    finally:
        Place.stop_all()


def test_the_commands_take_it(page: str) -> None:
    reference = f'mine=foreign:"{page}?a=dig"?loud=true'
    with Served(reference, PYTHONPATH=PACKAGES) as served:

        async def play() -> str:
            async with player(f"{served.url}/environments/mine/mcp") as client:
                opened = await client.call_tool("start_episode", {})
                return text(opened)

        assert f"HELLO from {page}?a=dig" in asyncio.run(play())
    checked = envport("check", reference, PYTHONPATH=PACKAGES)
    assert checked.returncode == 0, checked
    played = envport("play", reference, stdin="\n", PYTHONPATH=PACKAGES)
    assert "used dig" in played.stdout, played
    attached = envport("attach", "--stdio", "--json", reference, PYTHONPATH=PACKAGES)
    assert json.loads(attached.stdout)["mcpServers"]["mine"]["args"][-1] == reference
    assert "References with needy:" in refused("serve", "needy:thing", PYTHONPATH=PACKAGES)
