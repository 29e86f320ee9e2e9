"""Bad input to the command line: one clear line, exit code 2, never a traceback."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Served, command, envport, refused, refused_here
from patience import patient

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    "words",
    [
        ("open", "nope", "--url", NOBODY),
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (
                ("serve", "nope"),
                ("bench", "--only", "nope"),
                ("play", "nope"),
                ("describe", "nope"),
                ("stdio", "nope"),
                ("check", "nope"),
                ("list", "--url", NOBODY),
                ("attach", "nope", "--url", NOBODY),
                ("cluster", "nope"),
            )
        ),
    ],
    ids=lambda words: words[0],
)
def test_every_command_refuses_as_it_is_installed(words: tuple[str, ...]):
    """The other tests fork most commands from a process that has loaded all of them; these start a Python each."""
    refused(*words, fresh=True)


@pytest.mark.parametrize("name", ["play", "describe", "stdio", "check"])
def test_every_command_says_that_there_is_no_such_environment(name: str):
    assert "there is no environment 'nope'; installed: " in refused_here(name, "nope")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nope", "there is no environment 'nope'; installed: "),
        ("no_such_package.module:Class", "there is no module"),
        ("./no_such_file.py:Class", "there is no file ./no_such_file.py"),
        ("catch?rows=many", "option 'rows' is 'many'"),
        ("catch?height=3", "has no option 'height'; its options are: rows"),
        ("envport:Client", "is not a subclass of envport.Environment"),
    ],
)
def test_an_environment_that_cannot_be_served(reference: str, said: str):
    assert said in refused_here("serve", reference)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = = 1", "invalid syntax"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit('gone')", "SystemExit: gone"),
        ("import no_such_package", "No module named 'no_such_package'"),
        (
            "from envport import *\nclass E(Environment):\n"
            " def reset(self, *, seed, task): ...\n @tool\n def t(self, x): ...",
            "parameter 'x' has no type hint",
        ),
    ],
)
def test_an_authors_mistake(tmp_path: Path, source: str, said: str):
    (tmp_path / "mine.py").write_text(source)
    line = refused("serve", "./mine.py:E", cwd=tmp_path)
    assert said in line


@pytest.mark.parametrize("name", ["serve", "play", "describe"])
def test_a_missing_extra(broken_package: Path, name: str):
    line = refused(name, "broken", PYTHONPATH=str(broken_package))
    assert line.endswith("pip install 'envport[textarena]'")


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--url", NOBODY),
        ("describe", "catch", "--url", NOBODY),
        ("open", "catch", "--url", NOBODY),
        ("attach", "catch", "--url", NOBODY),
        ("play", "catch", "--url", NOBODY),
    ],
)
def test_a_gateway_that_cannot_be_reached(words: tuple[str, ...]):
    line = refused_here(*words)
    assert NOBODY in line
    assert line.endswith("start it with: envport serve)")


def test_the_gateways_address_comes_from_the_environment():
    assert "no answer from http://127.0.0.1:9: connection refused (" in refused("open", "catch", ENVPORT_URL=NOBODY)


def test_a_stranger_at_the_address(tmp_path: Path):
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    with server:
        assert server.stdout is not None
        port = server.stdout.readline().split(" port ")[1].split()[0]
        url = f"http://127.0.0.1:{port}"
        assert "not as an MCP server" in refused("attach", "catch", "--url", url)
        assert "404" in refused("list", "--url", url)
        server.terminate()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("open", "nope"), "there is no environment 'nope' here; served: 'catch', 'counter', 'showcase'"),
        (("attach", "nope"), "There is no environment 'nope' here"),
        (("attach", "catch?rows=5"), "There is no environment 'catch?rows=5'"),
        (("open", "catch", "--task", "1000"), "no task 1000"),
        (("play", "catch", "--task", "1000"), "no task 1000"),
    ],
)
def test_a_request_that_the_gateway_refuses(gateway: Served, words: tuple[str, ...], said: str):
    assert said in refused(*words, "--url", gateway.url)


def test_a_token_that_is_missing_or_wrong(secured: Served):
    assert "ENVPORT_TOKEN" in refused("open", "counter", "--url", secured.url)
    assert "not valid" in refused("play", "counter", "--url", secured.url, ENVPORT_TOKEN="another-token-0123456789")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nope",), "No such command 'nope'"),
        (("serve", "--nope"), "--nope"),
        (("serve", "--port", "many"), "--port"),
        (("serve", "catch", "catch"), "two environments are named 'catch'"),
        (("play",), "REFERENCE"),
        (("play", "catch", "--task", "1000"), "no task 1000"),
        (("stdio", "catch", "--task", "1000"), "no task 1000"),
        (("attach",), "say what to attach to"),
        (("attach", "catch", "--episode", NOBODY, "--url", NOBODY), "leave --url out"),
        (("attach", "--episode", "nope"), "is not the address"),
    ],
)
def test_words_that_make_no_sense(words: tuple[str, ...], said: str):
    assert said in refused_here(*words)


def test_a_reader_that_goes_away_is_no_error():
    described = shlex.join(command("describe", "showcase", "--json"))
    done = subprocess.run(
        ["bash", "-c", f"{described} | head -n 1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done
    assert done.stderr == ""


def test_help_names_every_command_and_is_there_without_any():
    top = envport("--help")
    assert top.returncode == 0
    assert envport().stdout.strip() == top.stdout.strip()
    for name in ("serve", "list", "describe", "open", "attach", "play", "check", "stdio", "bench", "version"):
        assert f" {name} " in top.stdout
    assert "--allow-unauthenticated" in envport("serve", "--help").stdout
    assert "--quick" in envport("bench", "--help").stdout
