"""A real run of GRPOTrainer with TRL's `OpenRewardSpec`, as a program: `ors_training.py SITE_PACKAGES URL`.

The model's words are written by a script, which moves to the left. The last line is what the trainer logged, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))
sys.path.append(sys.argv[1])
os.environ.update(OPENREWARD_SESSION_URL=sys.argv[2], OPENREWARD_API_URL=sys.argv[2], TRL_EXPERIMENTAL_SILENCE="1")

import openreward_light  # noqa: F401
from tiny_model import calls, config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer
from trl.experimental.openreward import OpenRewardSpec


def script(text: str, turn: int) -> str:
    """Nine moves to the left, which are an episode."""
    return calls(("move", json.dumps({"direction": "left"}))) if turn < 9 else "Done.<|im_end|>"


if __name__ == "__main__":
    spec = OpenRewardSpec(sys.argv[2], env_name="catch", indices=[3, 4])
    tokenizer = make_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        trainer = scripted(GRPOTrainer, script)(
            model=make_model(tokenizer),
            args=config(Path(folder), max_tool_calling_iterations=10, max_completion_length=4096),
            processing_class=tokenizer,
            train_dataset=spec.train_dataset,
            environment_factory=spec.environment_factory,
            reward_funcs=spec.reward_funcs,
        )
        trainer.train()
    print(json.dumps(trainer.state.log_history[0]))
