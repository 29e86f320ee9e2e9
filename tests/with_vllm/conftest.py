"""vLLM on a CPU. `make test-vllm` makes the virtual environment for it; in another one, these tests are left out.

The folder is not named after vLLM: pytest puts `tests` on the path, and TRL would take a folder `vllm` there for vLLM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm_extra import MISSING

PACKAGES = Path(__file__).with_name("packages")
EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo_catch"
# A core and little memory for each process; nothing is looked up elsewhere. Nothing is compiled: that takes longer than
# the few steps that follow.
VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


def pytest_configure(config: pytest.Config) -> None:
    if MISSING:
        return
    # Before anything is imported that reads them.
    os.environ.update(VARIABLES)
    # vLLM finds the plugin there.
    sys.path.insert(0, str(PACKAGES))
    # vLLM, TRL and Inspect warn of much, from the first import on.
    config.addinivalue_line("filterwarnings", "ignore")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if MISSING and collection_path.name.startswith("test_vllm") else None


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's policy as `--vllm` leaves it: it knows the form of the game, wins some and loses some."""
    sys.path.insert(0, str(EXAMPLE))
    from lessons import CATCH
    from train import parse
    from train import policy as make_policy
    from training import GAME

    from envport_bridges.trl import EnvironmentSpec

    output = tmp_path_factory.mktemp("policy")
    options = parse(["--vllm", "--warm-up", "150"])
    model, _ = make_policy(CATCH, EnvironmentSpec(GAME, split="train", num_tasks=64), options, 0, output)
    return Path(model.name_or_path)


@pytest.fixture(scope="session")
def server(policy: Path) -> Iterator[str]:
    """One server for all tests: its start takes a minute and a half of a core."""
    from model_server import model_server

    words = ["vllm", "serve", str(policy), "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "16"]
    words += ["--enforce-eager", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    # What TRL asks of a server; `VLLM_SERVER_DEV_MODE` opens the routes that it uses.
    words += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    development = {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": str(PACKAGES)}
    with model_server(words, "Application startup complete", **development) as url:
        yield url
