"""A picture as the first observation, through TRL's own trainer: it reaches the model, and pixels carry gradient."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from patience import patient
from tiny_model import calls, config, scripted
from trl import GRPOTrainer

from envport_bridges.trl import ConcurrentGRPOTrainer, episode_reward
from envport_bridges.trl.observations import placeholders_of, without_placeholders

pytest.importorskip("PIL.Image", reason="Pillow is not installed (extra images)")

# Of each test: making the first trainer takes most of it, on a busy core about half a minute.
pytestmark = pytest.mark.timeout(300)

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo_image"


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The example's trainer before its first step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(EXAMPLE)
        import train as example

        patched.setattr(example, "GROUPS", 4)
        patched.setattr(example, "ITERATIONS", 2)
        options = example.parse(["--batches", "1", "--warm-up", "24", "--evaluation", "4"])
        options.output = tmp_path_factory.mktemp("image")
        model, processor = example.warm_up(0, options)
        yield example.make_trainer(example.LAMP, model, processor, 0, options)
    for name in ("train", "lamp", "random_answers", "tiny_vision", "tiny_policy"):
        sys.modules.pop(name)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def batch(trainer: Any) -> dict[str, Any]:
    """What TRL makes of one batch of rollouts, before it is shuffled."""
    trainer.model.train()
    return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))


def log_probabilities(trainer: Any, batch: dict[str, Any], pixels: torch.Tensor) -> torch.Tensor:
    """Of each token of the completions, 0 for those that the model did not write."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    pictures = {key: batch[key] for key in ("image_grid_thw", "num_images", "mm_token_type_ids")}
    kept = batch["completion_ids"].size(1)
    values, *_ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, kept, pixel_values=pixels, **pictures
    )
    return values * batch["completion_mask"] * batch["tool_mask"]


@pytest.mark.slow
def test_the_picture_reaches_the_model(trainer: Any, batch: dict[str, Any]):
    rollouts, side, patch = len(batch["prompt_ids"]), 32, 4
    assert batch["num_images"] == [1] * rollouts
    assert batch["pixel_values"].shape[0] == rollouts * (side // patch) ** 2
    image = trainer.model.config.image_token_id
    assert ((batch["prompt_ids"] == image).sum(dim=1) == (side // patch // 2) ** 2).all()


def test_members_of_a_group_see_the_same_picture(trainer: Any, batch: dict[str, Any]):
    pictures = batch["pixel_values"].reshape(-1, trainer.num_generations, 64, batch["pixel_values"].shape[1])
    assert (pictures == pictures[:, :1]).all()
    assert not torch.equal(pictures[0, 0], pictures[1, 0])


def test_another_picture_makes_other_answers_likely(trainer: Any, batch: dict[str, Any]):
    before = log_probabilities(trainer, batch, batch["pixel_values"]).detach()
    after = log_probabilities(trainer, batch, batch["pixel_values"].flip(0)).detach()
    assert (before - after).abs().max() > 1e-3


def test_the_pixels_carry_gradient(trainer: Any, batch: dict[str, Any]):
    trainer.model.zero_grad()
    pixels = batch["pixel_values"].clone().requires_grad_()
    (log_probabilities(trainer, batch, pixels).sum(dim=1) * batch["advantages"]).sum().backward()
    assert pixels.grad is not None
    assert pixels.grad.abs().max() > 0
    assert all(weights.grad.abs().max() > 0 for weights in trainer.model.model.visual.patch_embed.parameters())
    trainer.model.zero_grad()


def test_the_stock_trainer_takes_steps(trainer: Any):
    before = trainer.model.model.visual.patch_embed.proj.weight.detach().clone()
    trainer.train()
    assert not torch.equal(before, trainer.model.model.visual.patch_embed.proj.weight)
    rewards = [entry["rewards/episode_reward/mean"] for entry in trainer.state.log_history if "reward" in entry]
    assert rewards
    assert all(0 <= reward <= 1 for reward in rewards)


@pytest.mark.parametrize("trainer_class", [GRPOTrainer, ConcurrentGRPOTrainer])
def test_a_placeholder_for_a_picture_in_a_message_is_text(trainer: Any, tmp_path: Path, trainer_class: type[Any]):
    """The refused argument stands in the tool's answer, and the processor must not look for the video."""
    written = calls(("answer", '{"colour": "<|video_pad|>"}'))
    spec = trainer.environment_factories[None]
    made = scripted(trainer_class, lambda text, turn: "<|im_end|>" if turn else written)(
        model=trainer.model,
        args=config(tmp_path, chat_template_kwargs=None),
        processing_class=trainer.processing_class,
        train_dataset=trainer.train_dataset,
        environment_factory=spec,
        reward_funcs=[episode_reward],
    )
    made.train()
    failures = [entry["tools/failure_frequency"] for entry in made.state.log_history if "reward" in entry]
    assert failures == [1.0]
    assert "< |video_pad|>" in made.seen[-1]


def test_placeholders_are_those_of_the_processor(trainer: Any):
    placeholders = placeholders_of(trainer.processing_class)
    assert placeholders == ("<|image_pad|>", "<|video_pad|>")
    assert placeholders_of(trainer._tokenizer) == ()
    image = {"type": "image", "image": object()}
    shown = [{"type": "text", "text": "a <|image_pad|>"}, image]
    assert without_placeholders(shown, placeholders) == [{"type": "text", "text": "a < |image_pad|>"}, image]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_what_only_the_picture_tells_is_learned(tmp_path: Path):
    """The script checks both runs: with the pictures it learns, and without them it stays at chance."""
    command = [sys.executable, str(EXAMPLE / "train.py"), "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(2900))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "pictures, seed 0: right" in done.stdout
    assert "control, seed 0: right" in done.stdout
