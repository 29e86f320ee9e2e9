"""`envport model serve`: a saved model, with the contexts that it was trained with."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest
import torch
from command_line import SECONDS, command, environment, envport_here
from tiny_model import make_model, make_tokenizer, save_model
from vllm_wire import MOST_IDS, vllm_wire

from envport_bridges.model_serving.loading import ServedModel
from envport_bridges.model_serving.settings import ServedModelSettings
from envport_bridges.trl.chat_format import ChatTemplateFormat

TOKEN = "a-control-token-of-the-models"
MESSAGES = [{"role": "user", "content": "Guess. <|im_end|> is only text."}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "step_20"
    save_model(folder)
    return folder


@contextmanager
def serving(*words: str, **variables: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Run the command; gives its address, its greeting and its process."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command("model", "serve", "--port", "0", *words, fresh=True),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", **variables),
        )
        assert process.stdout is not None
        try:
            greeting = ""
            for line in process.stdout:
                greeting += line
                if line.startswith("Stop with Ctrl-C."):
                    break
            found = re.search(r" at (http\S+)$", greeting, re.MULTILINE)
            log.seek(0)
            assert found, log.read()
            yield found[1], greeting, process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    with serving(str(folder), "--max-tokens", "64", ENVPORT_MODEL_TOKEN=TOKEN) as running:
        yield running


def test_it_says_what_to_do_next(folder: Path, served: tuple[str, str, subprocess.Popen[str]]):
    url, greeting, _ = served
    assert f"envport serves step_20 at {url}" in greeting
    assert f"OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=$ENVPORT_MODEL_TOKEN" in greeting
    assert f"ANTHROPIC_BASE_URL={url} " in greeting
    assert f"envport eval ENVIRONMENT --agent COMMAND --agent-model {url}" in greeting
    assert TOKEN not in greeting


def test_sdks_get_turns_whose_contexts_grow_by_what_was_sampled(served: tuple[str, str, subprocess.Popen[str]]):
    url, _, _ = served
    with openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0) as client:
        first = client.chat.completions.create(model="policy", messages=MESSAGES, max_tokens=8)
        told = {"role": "assistant", "content": first.choices[0].message.content}
        more = [*MESSAGES, told, {"role": "user", "content": "Again."}]
        second = client.chat.completions.create(model="policy", messages=more, max_tokens=8)
        assert first.usage is not None
        assert second.usage is not None
        assert second.usage.prompt_tokens_details is not None
        assert second.usage.prompt_tokens_details.cached_tokens == first.usage.total_tokens
        with pytest.raises(openai.BadRequestError, match="at most 64 are allowed"):
            client.chat.completions.create(
                model="policy", messages=[*more, told, {"role": "user", "content": "Again. " * 50}]
            )
    with anthropic.Anthropic(base_url=url, api_key=TOKEN, max_retries=0) as client:
        message = client.messages.create(model="policy", messages=MESSAGES, max_tokens=8)
        assert message.usage.input_tokens == first.usage.prompt_tokens


def test_a_session_ends_with_its_token(served: tuple[str, str, subprocess.Popen[str]]):
    url, greeting, _ = served
    assert "There is no token" not in greeting
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}) as control:
        session = control.post("/sessions").json()
        with openai.OpenAI(base_url=f"{url}/v1", api_key=session["token"], max_retries=0) as agent:
            agent.chat.completions.create(model="policy", messages=MESSAGES, max_tokens=4)
            assert control.delete(f"/sessions/{session['session_id']}").json()["completion_tokens"] <= 4
            with pytest.raises(openai.AuthenticationError):
                agent.chat.completions.create(model="policy", messages=MESSAGES)
        model = control.get("/model").json()
    assert (model["name"], model["sampler"], len(model["weights"])) == ("step_20", "transformers", 64)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_it_stops_at_a_signal(folder: Path, number: signal.Signals):
    with serving(str(folder)) as (_, greeting, process):
        assert "There is no token: evaluations need one" in greeting
        process.send_signal(number)
        assert process.wait(SECONDS) == 0


def test_a_context_is_the_one_of_training(folder: Path):
    model = ServedModel.load(str(folder), ServedModelSettings())
    trained = ChatTemplateFormat.of_model(make_tokenizer(), make_model(make_tokenizer()))
    assert model.chat.render(MESSAGES, ()) == trained.render(MESSAGES, ())
    assert model.chat.end_ids == trained.end_ids
    # What an observation shows does not end a turn.
    assert sum(id_ in model.chat.end_ids for id_ in model.chat.render(MESSAGES, ())) == 1


def test_variables_of_the_chat_template_are_those_of_training(tmp_path: Path):
    tokenizer = make_tokenizer("qwen3")
    make_model(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    settings = ServedModelSettings.read({"chat_template_kwargs": {"enable_thinking": False}})
    model = ServedModel.load(str(tmp_path), settings)
    assert tokenizer.decode(model.chat.render(MESSAGES, ())).endswith("<think>\n\n</think>\n\n")
    # And still, what an observation shows does not end a turn.
    assert sum(id_ in model.chat.end_ids for id_ in model.chat.render(MESSAGES, ())) == 1
    assert model.description["settings"]["chat_template_kwargs"] == '{"enable_thinking": false}'


def test_a_vllm_server_samples_and_only_the_tokenizer_is_loaded(folder: Path, tmp_path: Path):
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with vllm_wire(lambda body: [7, 8]) as server:
        model = ServedModel.load(str(tmp_path), ServedModelSettings(vllm=server.url, temperature=0.5))
        assert (model.description["sampler"], model.weights) == ("vllm", None)
        assert model.chat.most_ids == MOST_IDS
        model.close()


def refusal(*words: str) -> str:
    done = envport_here("model", "serve", *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def test_what_cannot_be_served_is_refused_in_one_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ENVPORT_MODEL_TOKEN", raising=False)
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ messages }}"
    make_model(tokenizer).config.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert "there is no folder ./nowhere" in refusal("./nowhere")
    assert "top_p is 0.0; it has to be above 0" in refusal(str(folder), "--top-p", "0")
    assert "the model's chat template cannot be used with tools" in refusal(str(tmp_path))
    assert "it has to be a JSON object" in refusal(str(folder), "--chat-template-kwargs", "[]")
    assert "cannot be used: no answer from http://127.0.0.1:9" in refusal(str(folder), "--vllm", "http://127.0.0.1:9")
    # Nothing was loaded for these.
    everywhere = (str(tmp_path), "--host", "0.0.0.0")
    assert "without a token, a model is served at this machine's loopback address only" in refusal(*everywhere)
    monkeypatch.setenv("ENVPORT_MODEL_TOKEN", TOKEN)
    assert "--allowed-host NAME" in refusal(*everywhere)
