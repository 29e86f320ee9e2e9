"""A saved model that is served for an evaluation, and played by a whole agent; real generations."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from bubblewrap import needs_bubblewrap
from evaluating import documents, logs_in

pytestmark = [needs_bubblewrap, pytest.mark.slow]

if MISSING := [name for name in ("trl", "openai") if find_spec(name) is None]:
    pytest.skip(f"no model can be served: {', '.join(MISSING)} missing", allow_module_level=True)

AGENT = f"{{python}} {Path(__file__).parents[2] / 'examples' / 'grpo_agent' / 'agent.py'}"


@pytest.mark.timeout(600)
def test_a_saved_model_is_served_for_an_evaluation_and_stopped_after(tmp_path: Path):
    from tiny_model import save_model

    save_model(Path("step_20"))
    words = ["catch?rows=3", "--agent", AGENT, "--agent-model", "step_20", "-M", "max_tokens=32", "--price", "1,2"]
    (result,) = documents(*words, "--temperature", "0.5", "--num-tasks", "2", "--jobs", "2")
    assert (result["episodes"], result["infrastructure_failures"]) == (2, 0), result["lost"]
    assert result["player"].endswith(" with step_20")
    assert result["settings"]["agent_model"].startswith("step_20 ")
    assert (result["settings"]["temperature"], result["settings"]["max_conversation_tokens"]) == (0.5, 32)
    # Each had a turn of at most 32 tokens.
    assert result["tokens"] > 0
    assert result["cost"] > 0
    # A log that is continued elsewhere finds the model again.
    from inspect_ai.log import read_eval_log

    (log,) = logs_in(Path("logs"))
    assert read_eval_log(str(log), header_only=True).eval.task_args["agent_model"] == str(tmp_path / "step_20")
