"""`ENVPORT_URL` means the same for every command: the gateway where none is given, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from command_line import TOKEN, Served, envport, refused

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def alone() -> Iterator[Served]:
    """A gateway with one environment, whose name nothing has that is installed here."""
    with Served("only=counter", ENVPORT_TOKEN=TOKEN) as served:
        yield served


def variables(served: Served) -> dict[str, str]:
    return {"ENVPORT_URL": served.url, "ENVPORT_TOKEN": TOKEN}


def test_without_an_environment_it_is_that_of_the_gateway(alone: Served):
    listed = envport("list", "--json", **variables(alone))
    assert [it["name"] for it in json.loads(listed.stdout)] == ["only"]
    assert f"at {alone.url}, as ENVPORT_URL says" in listed.stderr
    described = json.loads(envport("describe", "--json", **variables(alone)).stdout)
    assert described["mcp_url"] == f"{alone.url}/environments/only/mcp"
    played = envport("play", stdin="\n", **variables(alone))
    assert played.returncode == 0, played
    assert f"{alone.url}/environments/only, as ENVPORT_URL says" in played.stderr


@pytest.mark.parametrize("words", [("play",), ("describe",)])
def test_of_several_environments_one_has_to_be_named(gateway: Served, words: tuple[str, ...]):
    said = refused(*words, ENVPORT_URL=gateway.url)
    assert "catch, counter, showcase" in said
    assert f"{gateway.url}/environments/catch" in said


def test_without_both_a_command_says_what_is_missing():
    for command in ("play", "describe"):
        assert "say which environment: a REFERENCE" in refused(command)


def test_a_reference_runs_here_whatever_the_variable_is():
    """Nobody answers at that address."""
    assert envport("describe", "counter", ENVPORT_URL=NOBODY).returncode == 0
    assert envport("play", "counter", stdin="\n", ENVPORT_URL=NOBODY).returncode == 0
    assert envport("check", "counter", "--seed", "0", "--steps", "1", ENVPORT_URL=NOBODY).returncode == 0


def test_a_name_of_the_gateway_alone_is_not_found_here_and_the_message_says_how_to_name_it(alone: Served):
    said = refused("play", "only", **variables(alone))
    assert said.endswith("(a name means what is installed here; at the gateway of ENVPORT_URL: --url $ENVPORT_URL)")


def test_a_whole_address_is_what_it_says(alone: Served):
    address = f"{alone.url}/environments/only"
    given = {"ENVPORT_URL": NOBODY, "ENVPORT_TOKEN": TOKEN}
    assert json.loads(envport("describe", address, "--json", **given).stdout)["name"] == "only"
    assert json.loads(envport("open", address, "--json", **given).stdout)["mcp_url"].startswith(alone.url)
    assert f"{address}/mcp" in envport("attach", address, **given).stdout
    played = envport("play", address, stdin="\n", **given)
    assert played.returncode == 0, played
    for command in ("describe", "play", "open", "attach"):
        assert "leave --url out" in refused(command, address, "--url", alone.url, **given)
        assert "not the address of an environment" in refused(command, alone.url, **given)


def test_what_is_no_address_is_refused_and_the_variable_named():
    assert "(it is in ENVPORT_URL)" in refused("list", ENVPORT_URL="127.0.0.1:8000")


def test_the_help_of_each_command_names_the_variable():
    for command in ("list", "describe", "play", "open", "attach"):
        assert "ENVPORT_URL" in envport(command, "--help", COLUMNS="200").stdout


def test_an_evaluation_without_an_environment_is_of_that_of_the_gateway(gateway: Served):
    pytest.importorskip("inspect_ai")
    said = refused("eval", "--policy", "random", ENVPORT_URL=gateway.url)
    assert "catch, counter, showcase" in said
