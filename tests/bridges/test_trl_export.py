"""What is exported for SFTTrainer is, token for token, what GRPOTrainer showed the model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest
from recorded_plays import recorded_at
from tiny_model import calls, config, make_model, make_tokenizer, scripted
from transformers.image_utils import load_image
from trl import SFTConfig, SFTTrainer

from envport import Client
from envport.tools.content import text_observation
from envport_bridges.export import ConversationForm, conversation, load_export, write_jsonl, write_parquet
from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec

DONE = "I stop.<|im_end|>"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read from files is cached in the test's folder, and not in that of the user."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def played(url: str, tmp_path: Path) -> tuple[list[list[int]], list[list[int]], list[str]]:
    """Plays by GRPOTrainer: the tokens of each rollout, which of them the model wrote, and the episodes' handles."""
    spec = EnvironmentSpec(f"{url}/environments/guess", indices=[1, 4])
    kept: list[Any] = []

    def script(text: str, turn: int) -> str:
        turns = [calls(("guess", '{"number": 0}')), calls(("ask", '{"question": "ä?"}'))]
        return [*turns, calls(("guess", '{"number": 1}')), DONE][turn]

    class Kept(scripted(ConcurrentGRPOTrainer, script)):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            kept.append((batch, [one.episode_id for one in self.environments]))
            return batch

    tokenizer = make_tokenizer()
    Kept(
        model=make_model(tokenizer),
        args=config(tmp_path),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    ).train()
    batch, handles = kept[0]
    tokens, written = [], []
    for row in range(len(handles)):
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
        there = batch["completion_mask"][row].bool()
        tokens.append(prompt + batch["completion_ids"][row][there].tolist())
        written.append([0] * len(prompt) + batch["tool_mask"][row][there].tolist())
    return tokens, written, handles


def fine_tuning(file: Path, tmp_path: Path, **options: Any) -> Any:
    """A real trainer of an exported file."""
    tokenizer = make_tokenizer()
    settings: dict[str, Any] = {"max_steps": 1, "max_length": None, "report_to": "none", "use_cpu": True, "bf16": False}
    args = SFTConfig(str(tmp_path / "sft"), save_strategy="no", disable_tqdm=True, **settings, **options)
    return SFTTrainer(make_model(tokenizer), args, processing_class=tokenizer, train_dataset=load_export(file))


@pytest.fixture(scope="module")
def rollouts(gateway_url: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return played(gateway_url, tmp_path_factory.mktemp("grpo"))


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_what_is_fine_tuned_on_is_what_grpo_showed(rollouts: Any, gateway_url: str, tmp_path: Path, write: Any):
    tokens, _, handles = rollouts
    file = tmp_path / f"episodes.{write.__name__.removeprefix('write_')}"
    # Task 4 is not found, and the model has the last word. Task 1 is found in its third turn, where the rollout ends.
    write([recorded_at(gateway_url, handles[4])], file, ConversationForm(last_turn="I stop."))
    assert fine_tuning(file, tmp_path).train_dataset["input_ids"][0] == [*tokens[4], *make_tokenizer().encode("\n")]
    write([recorded_at(gateway_url, handles[0])], file)
    exported = fine_tuning(file, tmp_path).train_dataset["input_ids"][0]
    assert exported[: len(tokens[0])] == tokens[0]
    assert make_tokenizer().decode(exported[len(tokens[0]) :]).count("Right.") == 1


def test_only_the_assistants_turns_are_learned_if_that_is_asked_for(rollouts: Any, gateway_url: str, tmp_path: Path):
    tokens, written, handles = rollouts
    write_parquet([recorded_at(gateway_url, handles[4])], tmp_path / "e.parquet", ConversationForm(last_turn="I stop."))
    trainer = fine_tuning(tmp_path / "e.parquet", tmp_path, assistant_only_loss=True)
    row = trainer.train_dataset[0]
    learned = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100]
    wrote = [token for token, mask in zip(tokens[4], written[4], strict=True) if mask]
    # TRL's template counts the new line after a turn as a part of it.
    assert make_tokenizer().decode(learned).replace("<|im_end|>\n", "<|im_end|>") == make_tokenizer().decode(wrote)
    trainer.train()
    assert trainer.state.global_step == 1


def test_images_stand_where_trl_puts_them(gateway_url: str):
    spec = EnvironmentSpec(f"{gateway_url}/environments/pictures", num_tasks=1)
    environment: Any = spec.environment_factory()
    observation = environment.reset(**spec.rows[0])
    # As GRPOTrainer joins a prompt and an observation with images.
    shown = [{"type": "text", "text": spec.rows[0]["prompt"][-1]["content"]}, *observation]
    shown_by_tool = environment.look()
    messages = conversation(recorded_at(gateway_url, environment.episode_id))["messages"]
    for exported, told in ((messages[0]["content"], shown), (messages[2]["content"], shown_by_tool)):
        assert [part["type"] for part in exported] == [part["type"] for part in told]
        for part, trl_s in zip(exported, told, strict=True):
            if part["type"] == "text":
                assert part == trl_s
            else:
                image = load_image(part["image"])
                assert (image.size, image.convert("RGB").tobytes()) == (
                    trl_s["image"].size,
                    trl_s["image"].convert("RGB").tobytes(),
                )


@pytest.mark.parametrize("as_text", [True, False])
def test_control_tokens_of_an_environment_are_text_if_that_is_asked_for(
    rollouts: Any, gateway_url: str, tmp_path: Path, as_text: bool
):
    recorded = recorded_at(gateway_url, rollouts[2][0])
    spoken = text_observation("<|im_end|>")
    trajectory = recorded.trajectory.model_copy(update={"first_observation": spoken})
    form = ConversationForm(template_kwargs={"sanitize_control_tokens": True} if as_text else None)
    write_parquet([replace(recorded, trajectory=trajectory)], tmp_path / "e.parquet", form)
    tokenizer = make_tokenizer()
    ids = fine_tuning(tmp_path / "e.parquet", tmp_path).train_dataset["input_ids"][0]
    # One for the tools, and one for each message: the user's, three calls and their results.
    assert ids.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 8 + (not as_text)


def test_tools_with_other_keys_stay_as_they_are(gateway_url: str, tmp_path: Path):
    """Columns of Arrow give every object the keys of all; an export does not."""
    recordings: list[Any] = []
    for name, tool, arguments in (
        ("mirror", "show", {"value": {"a": [1, "x", None]}}),
        ("guess", "ask", {"question": "?"}),
        ("mirror", "show-text", {"text": "t"}),
    ):
        with Client(gateway_url) as client:
            opened, tools = client.open(name, seed=1), client.environment(name).tools
        recordings.append((recorded_at(gateway_url, opened.episode_id, calls=[(tool, arguments)]), tools, arguments))
    for suffix, write in ((".jsonl", write_jsonl), (".parquet", write_parquet)):
        file = tmp_path / f"episodes{suffix}"
        assert write([recorded for recorded, *_ in recordings], file) == 3
        for row, (recorded, tools, arguments) in zip(load_export(file), recordings, strict=True):
            assert [tool["function"]["parameters"] for tool in row["tools"]] == [tool["inputSchema"] for tool in tools]
            assert json.dumps(row["messages"][1]["tool_calls"][0]["function"]["arguments"]) == json.dumps(arguments)
            assert set(row["messages"][0]) == {"role", "content"}
            assert row["episode_id"] == recorded.trajectory.episode.episode_id
    assert len(fine_tuning(tmp_path / "episodes.jsonl", tmp_path).train_dataset) == 3
