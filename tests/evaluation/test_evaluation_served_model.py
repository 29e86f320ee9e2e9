"""A model behind an OpenAI-compatible server, such as vLLM: real generations, from which the server reads tool calls.

The server is transformers' own, and the model was made on the spot; Inspect's provider is the one for vLLM.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import envport_here, refused
from harness import RunningGateway, running

from envport.registry import load

MISSING = [name for name in ("transformers", "torch", "openai") if find_spec(name) is None]
if MISSING:
    pytest.skip(f"no model can be served: {', '.join(MISSING)} missing", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "evaluate_catch"))

CATCH = "catch?rows=3&columns=3"


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(load(CATCH)) as serving:
        yield serving


@pytest.fixture(scope="module")
def folder(gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Importing torch takes seconds, also in the process that runs other tests.
    from tiny_server import learn

    folder = tmp_path_factory.mktemp("models") / "tiny"
    learn(folder, gateway.url, "catch")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    from tiny_server import serving

    with serving(folder) as url:
        yield url


@pytest.mark.timeout(300)
def test_a_served_model_plays_by_the_tools_it_was_trained_with(gateway: RunningGateway, folder: Path, server: str):
    words = ["--model", f"vllm/{folder}", "--model-base-url", server, "--temperature", "0", "--max-tokens", "64"]
    done = envport_here("eval", f"{gateway.url}/environments/catch", *words, "--jobs", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)
    assert result["infrastructure_failures"] == 0, result["lost"]
    # It learned what the tools and observations look like by heart: another text, and it would not know what to do.
    assert (result["reward"]["mean"], result["success"]["mean"]) == (1.0, 1.0)
    assert (result["steps"], result["tool_errors"]) == (2.0, 0.0)
    assert result["tokens"] > 0
    assert result["player"].startswith("model vllm/")


# With a provider that loads nothing, `test_evaluation_model_server` shows the same.
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_that_is_away_is_said_before_the_first_episode(folder: Path):
    words = ["--model", f"vllm/{folder}", "--model-base-url", "http://127.0.0.1:9/v1"]
    # In a process of its own: Inspect keeps the address of the first server.
    says = refused("eval", CATCH, *words, "--num-tasks", "1", "--json")
    assert "the model's server does not answer at http://127.0.0.1:9/v1: " in says
