"""Agents that are given a model of ours: what they use of it is counted, and what fails is told apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bubblewrap import needs_bubblewrap
from byte_chat import TOKEN, catches, served, writing
from command_line import envport_here
from evaluating import CONTROL, documents, logs_in, secured
from inspect_ai.log import read_eval_log
from scripted_sampler import ScriptedSampler
from vllm_wire import vllm_wire

from envport.registry import load
from envport_bridges.agents.model.sampling import SampleRequest, SamplerFailed
from envport_bridges.model_serving.server import ModelServer

pytestmark = needs_bubblewrap

AGENT = f"{{python}} {Path(__file__).parents[2] / 'examples' / 'grpo_agent' / 'agent.py'}"
ASKING = f"{{python}} {Path(__file__).with_name('asking.py')}"


@pytest.fixture(scope="module")
def catch() -> Iterator[str]:
    with secured(load("catch?rows=3")) as gateway:
        yield gateway.url


@pytest.fixture(autouse=True)
def here(catch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is the gateway's only one, and both tokens are known."""
    monkeypatch.setenv("ENVPORT_URL", catch)
    monkeypatch.setenv("ENVPORT_TOKEN", CONTROL)
    monkeypatch.setenv("ENVPORT_MODEL_TOKEN", TOKEN)


@pytest.fixture
def policy() -> Iterator[ModelServer]:
    with served(writing("Hi!"), name="step_20") as server:
        yield server


def evaluate(agent: str, url: str, *words: str, code: int = 0) -> dict[str, Any]:
    options = ["--agent", agent, "--agent-model", url, "--num-tasks", "1", *words]
    return documents(*options, *(() if agent == AGENT else ("--no-sandbox",)), code=code)[0]


def refusal(*words: str) -> str:
    done = envport_here("eval", "--num-tasks", "1", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_an_agent_plays_with_a_served_model_and_its_tokens_and_dollars_are_counted():
    sampler = ScriptedSampler(catches)
    with served(sampler, name="step_20", temperature=0.5) as server:
        result = evaluate(AGENT, f"{server.url}/v1", "--price", "10,20")
        assert server._control.sessions == 1
    assert result["infrastructure_failures"] == 0, result["lost"]
    assert (result["episodes"], result["reward"]["mean"], result["steps"]) == (1, 1.0, 2.0)
    assert result["player"] == "agent {python} agent.py with step_20"
    assert result["settings"]["agent_model"] == "step_20 weights of step_20"
    assert result["settings"]["temperature"] == 0.5
    contexts, written = (sum(len(one[place]) for one in sampler.log) for place in (0, 1))
    assert len(sampler.log) == 3
    assert result["tokens"] == contexts + written
    assert result["cost"] == pytest.approx((contexts * 10 + written * 20) / 1e6)
    log = read_eval_log(str(logs_in(Path("logs"))[0]))
    assert log.eval.model == "envport/step_20"
    assert log.stats.model_usage["envport/step_20"].total_tokens == contexts + written
    # What was sampled is never tokenized again.
    for before, after in zip(sampler.log[:2], sampler.log[1:3], strict=True):
        assert after[0][: len(before[0]) + len(before[1])] == before[0] + before[1]


def test_an_agent_that_uses_too_many_tokens_is_stopped_and_scored(policy: ModelServer):
    result = evaluate(f"{ASKING} 100000", policy.url, "--token-limit", "300")
    assert (result["episodes"], result["infrastructure_failures"]) == (1, 0), result["lost"]
    assert result["tokens"] > 300
    (sample,) = read_eval_log(str(logs_in(Path("logs"))[0])).samples or []
    assert sample.limit is not None
    assert sample.limit.type == "token"


def test_an_agent_that_costs_too_much_is_stopped_and_scored(policy: ModelServer):
    result = evaluate(f"{ASKING} 100000", policy.url, "--cost-limit", "0.01", "--price", "100,100")
    assert (result["episodes"], result["infrastructure_failures"]) == (1, 0), result["lost"]
    assert result["cost"] > 0.01


def test_what_an_agent_does_not_survive_is_its_own_fault():
    with served(writing("Hi!"), most_ids=60) as server:
        result = evaluate(f"{ASKING} 9", server.url, code=1)
    assert (result["episodes"], result["infrastructure_failures"]) == (1, 0)
    assert result["tokens"] > 0


class Sampler:
    """Does something for each request before it answers."""

    gathers = False

    def __init__(self, act: Callable[[int], None]):
        self._act = act
        self._asked = 0

    def sample(self, requests: Sequence[SampleRequest]) -> Any:
        self._asked += 1
        self._act(self._asked)
        return writing("Hi!").sample(requests)


def test_an_episode_whose_model_goes_away_is_lost_and_not_zero():
    gone: list[ModelServer] = []

    def act(number: int) -> None:
        if number == 2:
            gone[0].stop()

    with served(Sampler(act)) as server:
        gone.append(server)
        result = evaluate(f"{ASKING} 3", server.url, code=1)
    assert (result["episodes"], result["infrastructure_failures"]) == (0, 1)
    assert result["reward"]["mean"] is None
    (lost,) = result["lost"]
    assert lost["fault"] == "infrastructure"
    assert "the model's server does not answer" in lost["why"]


@pytest.mark.parametrize(("fails_until", "lost"), [(9, 1), (0, 0)])
def test_an_episode_whose_model_fails_last_is_lost(fails_until: int, lost: int):
    def act(number: int) -> None:
        if number <= fails_until:
            raise SamplerFailed("no tokens today")

    with served(Sampler(act)) as server:
        result = evaluate(f"{ASKING} 1", server.url, code=1 if lost else 0)
    assert result["infrastructure_failures"] == lost
    if lost:
        assert "the agent's model failed: 1 of its requests had no answer" in result["lost"][0]["why"]


def test_a_lost_episode_is_played_again_with_a_new_session(policy: ModelServer):
    def act(number: int) -> None:
        if number == 1:
            raise SamplerFailed("no tokens today")

    with served(Sampler(act)) as server:
        result = evaluate(f"{ASKING} 1", server.url, "--retries", "1")
    assert (result["episodes"], result["infrastructure_failures"]) == (1, 0)


def test_agents_with_different_models_are_not_compared(policy: ModelServer, monkeypatch: pytest.MonkeyPatch):
    with served(writing("Hi!"), name="step_40") as other:
        for number, (server, options) in enumerate([(policy, ()), (other, ()), (policy, ())]):
            evaluate(f"{ASKING} 1", server.url, "--log-dir", f"logs{number}", *options)
    first, second, third = (str(logs_in(Path(f"logs{number}"))[0]) for number in range(3))
    done = envport_here("compare", first, second)
    assert done.returncode == 2
    assert "agent_model is 'step_20 weights of step_20' in A and 'step_40 weights of step_40' in B" in done.stderr
    assert envport_here("compare", first, second, "--despite", "agent_model").returncode == 0
    assert envport_here("compare", first, third).returncode == 0


def test_a_comparison_says_that_it_does_not_know_the_model_of_an_agent(policy: ModelServer):
    evaluate(f"{ASKING} 1", policy.url, "--log-dir", "given")
    documents("--agent", "{python} -c pass", "--num-tasks", "1", "--no-sandbox", "--log-dir", "own")
    done = envport_here("compare", str(logs_in(Path("given"))[0]), str(logs_in(Path("own"))[0]), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["unknown"] == ["agent_model"]


def test_a_model_that_cannot_be_used_is_refused_in_one_line(policy: ModelServer, monkeypatch: pytest.MonkeyPatch):
    agent = ["--agent", f"{ASKING} 1"]
    given = [*agent, "--agent-model", policy.url]
    assert "--agent-model is the model of an agent: give --agent too" in refusal(
        "--policy", "random", "--agent-model", policy.url
    )
    assert "is the server's business: give temperature to `envport model serve`" in refusal(
        *given, "--temperature", "0"
    )
    assert "cannot be given a model" in refusal("--agent", "gemini", "--agent-model", policy.url)
    assert "there is no folder ./nowhere" in refusal(*agent, "--agent-model", "./nowhere")
    assert "a served model has no setting 'heat'" in refusal(*agent, "--agent-model", "./nowhere", "-M", "heat=1")
    assert "the model's server does not answer at http://127.0.0.1:9" in refusal(
        *agent, "--agent-model", "http://127.0.0.1:9"
    )
    with vllm_wire(lambda body: [1]) as other:
        assert "is no `envport model serve`: it answers GET /model with 404" in refusal(
            *agent, "--agent-model", other.url
        )
    with served(writing("Hi!"), token=None) as everybody_s:
        assert "has no token, so an agent could use it outside of its session" in refusal(
            *agent, "--agent-model", everybody_s.url
        )
    monkeypatch.setenv("ENVPORT_MODEL_TOKEN", "another-token-of-some-length")
    assert "does not accept the token in ENVPORT_MODEL_TOKEN" in refusal(*given)
    monkeypatch.delenv("ENVPORT_MODEL_TOKEN")
    assert "ENVPORT_MODEL_TOKEN is not set" in refusal(*given)
