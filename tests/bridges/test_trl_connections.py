"""What the episodes of a trainer share: a loop, few connections, a token; and that slow generation loses none."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cutting_proxy import cutting
from mirror import Guess
from patience import patient
from places import Place, gateway
from slow import slow

from envport import Client
from envport.access import Access, Principal
from envport.clock import ManualClock
from envport.episodes import Limits
from envport.errors import (
    ConfigurationError,
    EpisodeFailed,
    GatewayUnreachable,
    InvalidArguments,
    Unauthenticated,
    UnknownEnvironment,
    UnknownTool,
)
from envport_bridges.rollouts.tool_calls import ToolCall
from envport_bridges.rollouts.wire import read_answer
from envport_bridges.trl import EnvironmentSpec


@pytest.fixture
def place() -> Place:
    """These tests make gateways of their own."""
    return Place()


def opened(spec: EnvironmentSpec, row: int = 0) -> Any:
    environment = spec.environment_factory()
    environment.reset(**spec.rows[row])
    return environment


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=patient(200))


def handle_of(environment: Any) -> str:
    return environment._player.record.episode.episode_id


def test_an_episode_outlives_an_hour_of_generation(place: Place):
    """The bridge says every third of the idle limit that the episode is in use."""
    # The gateway's clock is moved by hand; the bridge's interval is real, and short.
    clock = ManualClock()
    with gateway(limits=Limits(idle_seconds=0.3), clock=clock) as serving:
        spec = EnvironmentSpec(f"{serving.url}/environments/guess", indices=[3])
        environment = opened(spec)
        with Client(serving.url) as control:
            for _ in range(12):
                serving.run(lambda: clock.advance(0.2))
                place.settle(lambda: control.episode(handle_of(environment)).expires_in == pytest.approx(0.3))
        assert environment.guess(number=3) == "Right."
        place.disconnect(spec)


def test_an_episode_that_nobody_uses_expires_in_the_end(place: Place):
    clock = ManualClock()
    with gateway(limits=Limits(idle_seconds=0.3), clock=clock) as serving:
        spec = EnvironmentSpec(f"{serving.url}/environments/guess", indices=[3], keep_alive=0.0)
        environment = opened(spec)
        serving.run(lambda: clock.advance(1.0))
        with pytest.raises(EpisodeFailed):
            environment.guess(number=3)
        assert environment.score is None
        place.disconnect(spec)


def test_a_hundred_instances_share_a_few_connections(place: Place):
    with gateway() as serving:
        spec = EnvironmentSpec(f"{serving.url}/environments/guess", num_tasks=10)
        assert spec.info.name == "guess"
        threads = threading.active_count()
        environments = [opened(spec, number % 10) for number in range(100)]
        assert all(environment.guess(number=9) for environment in environments)
        # One for the channel, and one for what is asked over HTTP.
        assert len(serving._server.server_state.connections) <= 2
        assert threading.active_count() <= threads + 1
        place.disconnect(spec)


def test_a_token_is_sent_to_its_gateway_and_shown_nowhere(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.delenv("ENVPORT_TOKEN", raising=False)
    secret = "a-token-of-the-tests-that-is-long-enough"
    trainer = Principal("trainer", frozenset({"control", "play"}))
    with gateway(access=Access([(hashlib.sha256(secret.encode()).digest(), trainer)])) as serving:
        url = f"{serving.url}/environments/guess"
        spec = EnvironmentSpec(url, indices=[3], token=secret)
        environment = opened(spec)
        assert environment.guess(number=3) == "Right."
        with pytest.raises(Unauthenticated):
            _ = EnvironmentSpec(url, patience=0.1).info
        monkeypatch.setenv("ENVPORT_TOKEN", secret)
        assert EnvironmentSpec(url, patience=0.2).info.name == "guess"
        assert secret not in caplog.text + repr(environment) + repr(spec.environment_factory) + repr(spec.target)
        place.disconnect(spec)


def test_an_episode_is_played_where_the_token_was_given_for():
    """A gateway that names another host in its addresses does not get the bridge to send the token there."""
    with gateway(public_url="http://elsewhere.invalid") as serving:
        environment = opened(EnvironmentSpec(f"{serving.url}/environments/guess", indices=[3]))
        assert environment._player.record.episode.address.startswith(serving.url)
        assert environment.guess(number=3) == "Right."


def test_a_call_that_is_not_answered_is_lost_and_its_episode_closed(place: Place):
    with gateway() as serving:
        spec = EnvironmentSpec(f"{serving.url}/environments/slow", num_tasks=2, call_seconds=0.05)
        environment = opened(spec)
        with pytest.raises(EpisodeFailed):
            environment.wait()
        assert environment.score is None
        assert serving.gateway.table.live == 1
        environment.reset(**spec.rows[1])
        place.settle(lambda: serving.gateway.table.live == 1)
        assert not environment.finished
        place.disconnect(spec)


def test_a_call_whose_answer_is_swallowed_is_played_once(place: Place):
    with gateway() as serving, cutting(serving.url, cuts={0, 2, 3}) as proxy:
        spec = EnvironmentSpec(f"{proxy.url}/environments/guess", indices=[3])
        environment = opened(spec)
        assert [environment.guess(number=number) for number in (1, 9, 3)] == ["Wrong.", "Wrong.", "Right."]
        assert proxy.calls == 6
        assert len(environment.rewards) == 3
        with Client(serving.url) as control:
            assert control.episode(handle_of(environment)).steps == 3
        place.disconnect(spec)


def test_a_gateway_that_is_gone_for_good_is_waited_for_once(place: Place):
    with gateway() as serving:
        spec = EnvironmentSpec(f"{serving.url}/environments/guess", num_tasks=4, patience=patient(1.0))
        environments = [opened(spec, row) for row in range(4)]
    waited: list[float] = []
    for environment in environments:
        began = time.monotonic()
        with pytest.raises(EpisodeFailed):
            environment.guess(number=1)
        waited.append(time.monotonic() - began)
        assert environment.score is None
    # Only the first waits for that long.
    assert sum(waited[1:]) < waited[0]
    place.disconnect(spec)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1", "http://127.0.0.1:1/environments/", "ftp://x/environments/a", "http:///environments/a"],
)
def test_an_address_that_names_no_environment_is_refused(url: str):
    with pytest.raises(ConfigurationError, match=r"does not name an environment|there is no scheme 'ftp'"):
        _ = EnvironmentSpec(url).info


def test_an_environment_that_is_not_served_is_refused(gateway_url: str):
    with pytest.raises(UnknownEnvironment, match="there is no environment 'chess'"):
        _ = EnvironmentSpec(f"{gateway_url}/environments/chess").info


def test_the_mcp_address_of_an_environment_will_do(gateway_url: str):
    assert EnvironmentSpec(f"{gateway_url}/environments/guess/mcp").info.name == "guess"


PLAYING = """
from envport_bridges.rollouts import Rollouts
import sys
rollouts = Rollouts(sys.argv[1])
kept = [rollouts.open(task=task) for task in (1, 2, 3)]
print([rollout.observation.text for rollout in kept])
"""
TRAINING = """
from envport_bridges.trl import EnvironmentSpec
import sys
spec = EnvironmentSpec(sys.argv[1], indices=[1, 2, 3])
kept = [spec.environment_factory() for _ in spec.rows]
print([e.reset(**row) for e, row in zip(kept, spec.rows)])
"""


# Whoever trains has the same connections, and imports for seconds.
@pytest.mark.parametrize("program", [PLAYING, *slow([TRAINING])], ids=["playing", "training"])
def test_a_process_that_ends_closes_its_episodes(place: Place, tmp_path: Path, program: str):
    before = Guess.alive
    with gateway() as serving:
        url = f"{serving.url}/environments/guess"
        done = python("-c", program, url)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("[seed") == 3
        assert done.stderr == ""
        assert serving.gateway.table.live == 0
    assert Guess.alive == before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_makes_connections_of_its_own(place: Place):
    program = (
        "import os, sys\n"
        "from envport_bridges.trl import EnvironmentSpec\n"
        "spec = EnvironmentSpec(sys.argv[1], indices=[1, 2])\n"
        "parent = spec.environment_factory(); parent.reset(**spec.rows[0])\n"
        "pid = os.fork()\n"
        "child = spec.environment_factory(); child.reset(**spec.rows[1])\n"
        "assert child.guess(number=2) == 'Right.'\n"
        "if pid:\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "    assert parent.guess(number=1) == 'Right.'\n"
    )
    with gateway() as serving:
        url = f"{serving.url}/environments/guess"
        done = python("-c", program, url)
        assert done.returncode == 0, done.stderr


class TestWire:
    def test_arguments_that_are_marked_for_headers_go_there_too(self):
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        call = ToolCall.of("größe", schema)
        headers = call.headers_for({"region": "eu"})
        assert headers["Mcp-Param-Region"] == "eu"
        assert headers["mcp-name"] == "=?base64?Z3LDtsOfZQ==?="
        assert "Mcp-Param-Region" not in call.headers_for({})

    def test_an_answer_after_progress_is_read(self):
        body = (
            b'event: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\r\n\r\n'
            b'event: message\r\ndata: {"id":1,"result":{"content":[{"type":"text","text":"data: x"}]}}\r\n\r\n'
        )
        assert read_answer(200, "text/event-stream", body).content[0]["text"] == "data: x"

    def test_the_space_after_data_may_be_left_out(self):
        body = b'event: message\ndata:{"id":1,"result":{"content":[{"type":"text","text":"x"}]}}\n\n'
        assert read_answer(200, "text/event-stream", body).content[0]["text"] == "x"

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            (b"<html>", GatewayUnreachable),
            (b"[]", GatewayUnreachable),
            (b"{}", GatewayUnreachable),
            (b'{"error": "no"}', GatewayUnreachable),
            (b'{"error": {"code": "unauthenticated", "message": "no"}}', Unauthenticated),
            (b'{"error": {"code": -32602, "message": "Unknown tool: x"}}', UnknownTool),
            (b'{"error": {"code": -32602, "message": "bad"}}', InvalidArguments),
            (b'{"error": {"code": -32603, "message": "bad"}}', EpisodeFailed),
            (b'{"result": null}', GatewayUnreachable),
        ],
    )
    def test_other_answers_are_errors(self, body: bytes, error: type[Exception]):
        with pytest.raises(error):
            read_answer(500, "application/json", body)
