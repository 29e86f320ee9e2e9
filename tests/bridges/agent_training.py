"""Trainings whose episodes are played by agents, and whether what they trained is what was sampled."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from patience import patient
from test_trl_training import guess_up_to
from tiny_model import config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer

from envport_bridges.agents.gateways.hosted import Hosted
from envport_bridges.trl import EnvironmentSpec

SEEN = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages")


@cache
def gateway() -> Hosted:
    """One gateway for the tests of a process: each rollout function of its own would start one."""
    return Hosted.start("mirror:Guess")


def guess(*indices: int) -> EnvironmentSpec:
    """Tasks of the game in `mirror`."""
    found = gateway()
    return EnvironmentSpec(f"{found.url}/environments/{found.name}", indices=indices, token=found.token)


def watched(trainer_class: type[Any]) -> type[Any]:
    """A trainer that keeps what was sampled, and what it makes a loss of."""

    class Watched(trainer_class):
        def _generate_single_turn(self, prompt_ids: Any, *args: Any, **options: Any) -> Any:
            ids, logprobs = super()._generate_single_turn(prompt_ids, *args, **options)
            room = self.generation_config.max_new_tokens
            self.sampled = [*getattr(self, "sampled", []), *zip(map(tuple, prompt_ids), map(tuple, ids), strict=True)]
            return [one[:room] for one in ids], logprobs

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            self.trained = [*getattr(self, "trained", []), *rows_of(inputs)]
            return super()._compute_loss(model, inputs)

    return Watched


def rows_of(inputs: dict[str, Any]) -> list[tuple[list[int], list[int], list[int], float]]:
    rows = []
    for prompt, shown, completion, real, mask, advantage in zip(*(inputs[key] for key in SEEN), strict=True):
        real = real.bool()
        rows.append((prompt[shown.bool()].tolist(), completion[real].tolist(), mask[real].tolist(), float(advantage)))
    return rows


def assert_trained_as_sampled(trainer: Any) -> int:
    """Every run of trained tokens was sampled after exactly what stands before it; returns how many there are."""
    runs = 0
    for prompt, completion, mask, _ in trainer.trained:
        place = 0
        while place < len(mask):
            end = place
            while end < len(mask) and mask[end] == mask[place]:
                end += 1
            if mask[place]:
                context, ids = tuple(prompt + completion[:place]), tuple(completion[place:end])
                found = [one for before, one in trainer.sampled if before == context]
                assert any(one[: len(ids)] == ids for one in found), (context[-20:], ids)
                runs += 1
            place = end
    return runs


def train(
    tmp_path: Path,
    words: str,
    trainer_class: type[Any] = GRPOTrainer,
    script: Any = None,
    agent: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    spec = options.pop("spec", None) or guess(1, 2)
    tokenizer = make_tokenizer()
    reward_funcs = options.pop("reward_funcs", spec.reward_funcs)
    agent = {"sandbox": False, "deadline": patient(20), **(agent or {})}
    # Each rollout is a process or two.
    options = {"per_device_train_batch_size": 4, "num_generations": 2} | options
    trainer = watched(scripted(trainer_class, script or guess_up_to(3)))(
        model=make_model(tokenizer),
        args=config(tmp_path, **options),
        processing_class=tokenizer,
        train_dataset=spec.rollout_dataset,
        rollout_func=spec.agent_rollout_func(words, **agent),
        reward_funcs=reward_funcs,
    )
    trainer.train()
    return trainer
