"""What the pages tell to write for TRL trains, with a model of a few thousand parameters in place of a real one."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import trl
from bubblewrap import needs_bubblewrap
from documents import block, blocks_in
from tiny_model import make_model, make_tokenizer

from envport_bridges.trl import EnvironmentSpec

PAGE = "bridges/envport_bridges/trl/README.md"
SHOWN = "http://127.0.0.1:8000"
MODEL = "Qwen/Qwen3-1.7B"
PLAYER = Path(__file__).parents[1] / "support" / "small_player.py"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    tokenizer = make_tokenizer()
    folder = tmp_path / "tiny"
    tokenizer.save_pretrained(folder)
    make_model(tokenizer).save_pretrained(folder)
    return folder


def trained(page: str, told: dict[str, str], folder: Path) -> Any:
    """Run the program of a page that trains, with a short configuration; returns its trainer."""
    source = block(page, "from trl import GRPOConfig, GRPOTrainer")
    small = (
        f"GRPOConfig(output_dir={str(folder)!r}, per_device_train_batch_size=4, num_generations=4, max_steps=1, "
        "save_strategy='no', report_to='none', use_cpu=True, bf16=False, "
        "gradient_checkpointing=False, disable_tqdm=True, logging_steps=1, "
    )
    for shown, ours in (told | {"GRPOConfig(": small}).items():
        assert shown in source
        source = source.replace(shown, ours)
    program: dict[str, Any] = {}
    exec(compile(source, page, "exec"), program)
    trainer = program["trainer"]
    logged = trainer.state.log_history
    assert [entry["envport/lost_episodes"] for entry in logged if "envport/lost_episodes" in entry] == [0.0]
    return trainer


def test_the_front_page_s_program_trains(gateway_url: str, tiny: Path, tmp_path: Path):
    told = {f"{SHOWN}/environments/catch": f"{gateway_url}/environments/guess", MODEL: str(tiny)}
    trained("README.md", told | {"iterations=12": "iterations=12, max_completion_length=16"}, tmp_path)


def test_the_agents_page_s_program_trains(tiny: Path, tmp_path: Path):
    told = {
        MODEL: str(tiny),
        "max_completion_length=2048": "max_completion_length=16",
        "my_agent.py": f"{PLAYER} plain",
        "deadline=120": "deadline=120, sandbox=False",
    }
    trainer = trained("bridges/envport_bridges/agents/README.md", told, tmp_path)
    assert [entry["agent/crashed"] for entry in trainer.state.log_history if "agent/crashed" in entry] == [0.0]


@needs_bubblewrap
def test_the_page_s_programs_are_ones_that_trl_takes(gateway_url: str):
    given: list[inspect.BoundArguments] = []

    def trainer(*arguments: Any, **named: Any) -> None:
        given.append(inspect.signature(trl.GRPOTrainer).bind(*arguments, **named))

    def config(**named: Any) -> dict[str, Any]:
        inspect.signature(trl.GRPOConfig).bind(**named)
        return named

    names: dict[str, Any] = {"GRPOTrainer": trainer, "GRPOConfig": config}
    first, second, _, vllm, agents = blocks_in(PAGE, "python")
    exec(first.replace(f"{SHOWN}/environments/catch", f"{gateway_url}/environments/guess"), names)
    (bound,) = given
    assert len(bound.arguments["train_dataset"]) == 256
    guess = names["spec"]
    exec(second, names | {"catch": guess, "wordle": EnvironmentSpec("echo", num_tasks=4)})
    exec(vllm, names)
    exec(agents.replace("my_agent.py", str(PLAYER)), names)
