"""A model's server that is down, or no server at all, is said in one line, before anything is played."""

from __future__ import annotations

import socket
import time

import pytest
from command_line import envport_here
from evaluating import documents
from inspect_ai.log import read_eval_log
from patience import patient


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE_API_KEY", "a-key-of-the-tests")


def evaluated(served: str, *words: str, model: str = "openai-api/mine/model") -> str:
    """The only line that is said of what is refused."""
    began = time.monotonic()
    done = envport_here("eval", f"{served}/catch", "--model", model, *words, "--json")
    assert (done.returncode, done.stdout) == (2, ""), done
    assert time.monotonic() - began < patient(30)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_a_server_that_is_down_is_said_with_its_address(served: str):
    url = f"http://127.0.0.1:{closed_port()}/v1"
    assert evaluated(served, "--model-base-url", url).startswith(
        f"error: the model's server does not answer at {url}: "
    )


def test_the_address_may_come_from_a_variable(served: str, monkeypatch: pytest.MonkeyPatch):
    url = f"http://127.0.0.1:{closed_port()}/v1"
    for name, model in {"MINE_BASE_URL": "openai-api/mine/model", "VLLM_BASE_URL": "vllm/mine"}.items():
        monkeypatch.setenv(name, url)
        assert f"does not answer at {url}: " in evaluated(served, model=model)


def test_an_address_has_to_be_a_url(served: str):
    assert "does not answer at 127.0.0.1:80/v1: " in evaluated(served, "--model-base-url", "127.0.0.1:80/v1")


def test_a_server_that_takes_its_time_is_waited_for_as_long_as_is_said(served: str):
    with socket.create_server(("127.0.0.1", 0)) as slow:
        url = f"http://127.0.0.1:{slow.getsockname()[1]}/v1"
        words = ["--model-base-url", url, "--model-timeout", "1", "--model-retries", "0", "--num-tasks", "1"]
        (result,) = documents(f"{served}/catch", "--model", "openai-api/mine/model", *words, code=1)
        # It was asked whether it is there, and then for an answer.
        assert slow.accept()[0].recv(1024).startswith(b"HEAD /v1 ")
        assert slow.accept()[0].recv(1024).startswith(b"POST /v1/chat/completions ")
    assert (result["episodes"], result["faults"]["infrastructure"]) == (0, 1)
    config = read_eval_log(result["log"], header_only=True).plan.config
    assert (config.attempt_timeout, config.max_retries) == (1, 0)
