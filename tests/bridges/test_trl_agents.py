"""Whole agents are trained: by the stock trainer, token for token as they were sampled, whatever they do."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from agent_training import assert_trained_as_sampled, guess, train
from bubblewrap import needs_bubblewrap
from patience import patient
from test_trl_training import DONE, guess_up_to, logged
from tiny_model import calls, config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer

from envport.errors import ConfigurationError, InvalidAccess
from envport_bridges.agents.gateways.hosted import Hosted
from envport_bridges.agents.model.calls import CallChain
from envport_bridges.trl import AgentGRPOTrainer, EnvironmentSpec
from envport_bridges.trl.agent_rows import AddedRow
from envport_bridges.trl.agent_trainer import _with_rows

FOLDER = tempfile.TemporaryDirectory(prefix="envport-player-")
# A copy, because other tests run this program at the same time, and `still_running` knows it by its path.
PLAYER = Path(shutil.copy(Path(__file__).parents[1] / "support" / "small_player.py", FOLDER.name))


def command(modes: str, folder: Path | None = None) -> str:
    return f"{{python}} {PLAYER} {modes} {folder or ''}".strip()


def still_running() -> list[int]:
    """Processes of the player's program."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(PLAYER).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_an_agent_is_trained_by_the_stock_trainer(tmp_path: Path):
    trainer = train(tmp_path, command("plain"))
    # Number 1 takes one guess more than number 0 would: rewards are those of the environment.
    assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx((0.75 + 0.5) / 2)]
    assert logged(trainer, "envport/finished_episodes") == [1.0]
    assert logged(trainer, "agent/chains") == [1.0]
    assert logged(trainer, "agent/left_out_tokens") == [0.0]
    assert logged(trainer, "envport/lost_episodes") == [0.0]
    assert assert_trained_as_sampled(trainer) == sum(len(ids) > 0 for _, ids in trainer.sampled)


@needs_bubblewrap
def test_a_resident_agent_is_trained_in_its_sandbox(tmp_path: Path):
    agent = {"resident": True, "sandbox": True, "at_once": 2}
    trainer = train(tmp_path, f"{command('plain,two')} --resident", agent=agent, max_steps=2)
    assert logged(trainer, "envport/finished_episodes") == [1.0, 1.0]
    assert logged(trainer, "agent/crashed") == [0.0, 0.0]
    assert_trained_as_sampled(trainer)
    trainer.rollout_func.close()
    assert not still_running()


MODES = "plain,crash,silent,two,compact,retry,stop,long"
EIGHT = {"per_device_train_batch_size": 8, "num_generations": 4}


def test_whatever_an_agent_does_is_data(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A crash is the player's fault: its episode is scored as it stands, and what was sampled is trained."""
    folder = tmp_path / "modes"
    folder.mkdir()
    endings: list[Any] = []

    def reward(episode_reward: Any, agent_ending: Any, completions: Any, **columns: Any) -> Any:
        endings.extend(zip(agent_ending, episode_reward, map(len, completions), strict=True))
        return episode_reward

    trainer = train(tmp_path, command(MODES, folder), agent={"at_once": 1}, reward_funcs=[reward], **EIGHT)
    (said,) = [record.getMessage() for record in caplog.records if "crashed" in record.getMessage()]
    crash = "1 of 8 agents crashed, one of them so: exit code 3. The end of its output: something is wrong"
    assert said == crash
    assert [ending for ending, _, _ in endings] == ["exited", "crashed", *["exited"] * 6]
    assert None not in [given for _, given, _ in endings]
    # The one that asked for nothing, and the one that asked for too much.
    assert [place for place, (_, _, said) in enumerate(endings) if not said] == [2, 7]
    assert logged(trainer, "agent/chains") == [pytest.approx((1 + 1 + 0 + 5 + 2 + 1 + 1 + 0) / 8, abs=0.5)]
    assert logged(trainer, "agent/left_out_tokens")[0] > 0
    assert assert_trained_as_sampled(trainer) >= 8


def test_an_agent_that_hangs_or_floods_ends_alone(tmp_path: Path):
    folder = tmp_path / "modes"
    folder.mkdir()
    trainer = train(
        tmp_path,
        command("hang,flood,linger,plain", folder),
        agent={"at_once": 4, "deadline": patient(3), "max_model_calls": 20},
    )
    assert logged(trainer, "agent/stopped_at_deadline") == [0.25]
    assert logged(trainer, "agent/crashed") == [0.0]
    assert logged(trainer, "envport/lost_episodes") == [0.0]
    assert_trained_as_sampled(trainer)
    assert not still_running()


def test_a_gateway_that_goes_away_is_nobodys_zero(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Agents that fail because of it are not to blame: their episodes are left out."""
    rewards: list[Any] = []
    ends: list[Any] = []

    def reward(episode_reward: Any, episode_finished: Any, agent_ending: Any, **columns: Any) -> Any:
        rewards.extend(episode_reward)
        ends.extend(zip(episode_finished, agent_ending, strict=True))
        return episode_reward

    gateways: list[Hosted] = []

    def script(text: str, turn: int) -> str:
        if turn == 1 and gateways:
            gateways.pop().process.kill()
        return guess_up_to(3)(text, turn)

    spec = EnvironmentSpec("mirror:Guess", indices=[1, 2], patience=0.1)
    before = Hosted.start

    def start(*asked: Any) -> Hosted:
        gateways.append(before(*asked))
        return gateways[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hosted, "start", start)
        agent = {"at_once": 2}
        trainer = train(tmp_path, command("plain"), script=script, spec=spec, agent=agent, reward_funcs=[reward])
    assert rewards == [None] * 4
    assert logged(trainer, "envport/lost_episodes") == [1.0]
    # The others could not be opened, so that their agents were not started.
    assert ends == [(False, "crashed")] * 2 + [(False, None)] * 2
    assert logged(trainer, "agent/crashed") == [1.0]
    assert logged(trainer, "envport/finished_episodes") == [0.0]
    assert not [record for record in caplog.records if "agents crashed" in record.getMessage()]
    assert not any(any(mask) for _, _, mask, _ in trainer.trained)


def test_a_second_reward_function_does_not_score_what_was_lost(tmp_path: Path):
    spec = guess(0, 1)

    def length(completions: Any, **columns: Any) -> list[float]:
        return [float(len(completion)) for completion in completions]

    trainer = train(
        tmp_path,
        command("plain"),
        spec=spec,
        script=lambda text, turn: calls(("break_down", "{}")) if turn == 0 else DONE,
        reward_funcs=[*spec.reward_funcs, length],
    )
    assert logged(trainer, "envport/lost_episodes") == [1.0]
    assert {advantage for _, _, _, advantage in trainer.trained} == {0.0}


def test_an_exception_in_training_leaves_nothing(tmp_path: Path):
    """No process of an agent, no thread and no port, whether it comes from the model or from a reward function."""
    threads = {thread.name for thread in threading.enumerate()}

    def broken(text: str, turn: int) -> str:
        if turn == 1:
            raise RuntimeError("out of memory")
        return guess_up_to(3)(text, turn)

    with pytest.raises(RuntimeError, match="out of memory"):
        train(tmp_path, command("plain"), script=broken)

    def wrong(**columns: Any) -> Any:
        raise ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        train(tmp_path, command("linger"), reward_funcs=[wrong])
    resident = {"resident": True, "at_once": 2}
    with pytest.raises(ValueError, match="no such column"):
        train(tmp_path, f"{command('plain')} --resident", reward_funcs=[wrong], agent=resident)
    assert not still_running()
    left = {thread.name for thread in threading.enumerate()} - threads
    assert not {name for name in left if "agents" in name or "model" in name}


def test_an_agent_that_never_works_is_said(tmp_path: Path):
    file = tmp_path / "broken.py"
    file.write_text("import nothing_of_that_name")
    with pytest.raises(ConfigurationError, match="failed in all of 4 episodes") as failure:
        train(tmp_path, f"{{python}} {file}")
    assert "No module named 'nothing_of_that_name'" in str(failure.value)


@pytest.mark.parametrize(
    ("mode", "agent", "why"),
    [
        ("silent", {}, r"all 4 exited by themselves, after .* Do they use OPENAI_BASE_URL .* needs resident=True"),
        ("long", {}, r"was refused \(context_length_exceeded\)"),
        (
            "asleep",
            {"deadline": patient(3)},
            r"all 4 were stopped at deadline=\S+ s\. .* The end of the output of one: is awaited",
        ),
    ],
)
def test_agents_that_have_no_turn_of_the_model_are_said(
    tmp_path: Path, mode: str, agent: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
):
    train(tmp_path, command(mode), agent=agent)
    (said,) = [record.getMessage() for record in caplog.records if "nothing of this batch" in record.getMessage()]
    assert re.search(why, said)


@pytest.mark.parametrize(("program", "output"), [("", "KeyError: 'ENVPORT_MCP_URL'"), ("-c pass ", r"\(none\)")])
def test_a_program_that_is_no_resident_is_told_how_one_works(tmp_path: Path, program: str, output: str):
    words = command("plain").replace("{python} ", f"{{python}} {program}")
    reads = "reads its missions from its standard input.*bridges/envport_bridges/agents/RESIDENT.md"
    with pytest.raises(ConfigurationError, match=rf"(?s)failed in all of 4 episodes.*{reads}.*{output}"):
        train(tmp_path, words, agent={"resident": True})


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match="2 processes"):
        guess(1).agent_rollout_func(command("plain"), sandbox=False)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("at_once", 0, "a positive whole number"),
        ("at_once", "8", "a positive whole number"),
        ("at_once", True, "a positive whole number"),
        ("max_model_calls", 2.5, "a positive whole number"),
        ("deadline", -1.0, "a positive number"),
        ("deadline", float("nan"), "a positive number"),
        ("deadline", True, "a positive number"),
        ("command", ["{python}", "agent.py"], "a text, such as '{python} my_agent.py', or the name of a preset"),
        ("reads", "/nope", "a list of paths, such as ['/data']"),
        ("reads", [1], "a list of paths, such as ['/data']"),
        ("resident", "no", "True or False"),
        ("all_chains", 1, "True or False"),
        ("compare_tokenizing", None, "True or False"),
        ("sandbox", "off", "True or False"),
    ],
)
def test_bad_settings_are_refused(name: str, value: Any, allowed: str):
    given = {"command": command("plain"), "sandbox": False} | {name: value}
    with pytest.raises(ConfigurationError) as refused:
        EnvironmentSpec("mirror:Guess").agent_rollout_func(**given)
    assert str(refused.value) == f"{name} is {value!r}; allowed: {allowed}"


def test_a_gateway_without_tokens_is_refused(gateway_url: str, tmp_path: Path):
    with pytest.raises(InvalidAccess, match="no tokens"):
        train(tmp_path, command("plain"), spec=EnvironmentSpec(f"{gateway_url}/environments/guess", indices=[1, 2]))


def test_every_chain_is_trained_with_the_advantage_of_its_episode(tmp_path: Path):
    trainer = train(tmp_path, command("two"), AgentGRPOTrainer, agent={"all_chains": True}, loss_type="dapo")
    chains = logged(trainer, "agent/chains")[0]
    assert chains > 2
    assert logged(trainer, "agent/left_out_tokens") == [0.0]
    filled = [row for row in trainer.trained if any(row[2])]
    assert len(filled) == round(chains * 4)
    assert_trained_as_sampled(trainer)
    sampled = sum(len(ids) for _, ids in trainer.sampled)
    assert sum(sum(mask) for _, _, mask, _ in trainer.trained) == sampled


@pytest.mark.slow
def test_chains_that_were_cut_are_masked_as_rows_are(tmp_path: Path):
    def script(text: str, turn: int) -> str:
        written = guess_up_to(3)(text, turn)
        return "In short: no" if "Sum up: turn 1." in text else written

    trainer = train(
        tmp_path,
        command("two"),
        AgentGRPOTrainer,
        script,
        agent={"all_chains": True},
        loss_type="dapo",
        mask_truncated_completions=True,
    )
    assert any("Sum up: turn 1." in text for text in trainer.seen)
    ends = [completion[-1] for _, completion, mask, _ in trainer.trained if any(mask)]
    assert set(ends) == {trainer._tokenizer.eos_token_id}


def test_a_log_probability_that_vllm_does_not_know_is_not_a_number():
    """TRL writes `None` for it, and makes the same of the rows."""
    chain = CallChain((), [1], [2, 3], [1, 1], cast("Any", [-0.5, None]))
    one = torch.ones(1, 2, dtype=torch.long)
    batch = dict.fromkeys(("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask"), one)
    batch |= {"sampling_per_token_logps": -torch.ones(1, 2), "advantages": torch.ones(1)}
    batch["num_items_in_batch"] = torch.tensor(2)
    accelerator = SimpleNamespace(device="cpu", gather=lambda value: value)
    trainer = SimpleNamespace(_tokenizer=SimpleNamespace(pad_token_id=0), accelerator=accelerator)
    rows = _with_rows(batch, [AddedRow(0, chain)], trainer)
    assert rows["sampling_per_token_logps"][1, 0] == -0.5
    assert rows["sampling_per_token_logps"][1, 1].isnan()
    assert rows["num_items_in_batch"] == 4


def test_every_chain_needs_a_loss_that_allows_it(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"all_chains=True does not work with loss_type='grpo'.*'dapo'"):
        train(tmp_path, command("two"), AgentGRPOTrainer, agent={"all_chains": True}, loss_type="grpo")
    with pytest.raises(ConfigurationError, match="AgentGRPOTrainer"):
        train(tmp_path, command("two"), agent={"all_chains": True})
    with pytest.raises(ConfigurationError, match=r"old_per_token_logps"):
        train(tmp_path, command("two"), AgentGRPOTrainer, agent={"all_chains": True}, num_iterations=2)


@pytest.mark.parametrize("function", ["agent_rollout_func", "rollout_func"])
def test_tools_beside_a_rollout_func_are_refused(tmp_path: Path, function: str):
    """TRL would call them itself, and train all that stands between the turns."""
    spec = guess(1, 2)
    rollout = spec.agent_rollout_func(command("plain"), sandbox=False)
    trainer_class = scripted(GRPOTrainer, guess_up_to(3))
    tokenizer = make_tokenizer()
    trainer = trainer_class(
        model=make_model(tokenizer),
        args=config(tmp_path),
        processing_class=tokenizer,
        train_dataset=spec.rollout_dataset,
        rollout_func=rollout if function == "agent_rollout_func" else spec.rollout_func,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    with pytest.raises(ConfigurationError, match="neither tools nor environment_factory beside rollout_func"):
        trainer.train()


@pytest.mark.slow
def test_another_dataset_is_refused_and_another_specification_is_played(tmp_path: Path):
    other = guess(5)
    trainer = train(tmp_path, command("plain"), per_device_eval_batch_size=4, num_generations_eval=4)
    found = trainer.evaluate(other.rollout_dataset)
    # The right number is 5, and three guesses are made.
    assert found["eval_rewards/episode_reward/mean"] == pytest.approx(-0.75)
    with pytest.raises(ConfigurationError, match="rollout_dataset"):
        trainer.evaluate(other.train_dataset)
