"""A model of some ten thousand parameters that has learned to catch the ball, and the server that serves it."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from agent import towards_the_ball
from patience import patient
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.cli.serve import Serve

from envport.client import Client

# How Qwen's templates write tools and calls, without what a tiny model has no use for.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# What decides the game stays a token of its own; what is always the same becomes one long token.
ALONE = Regex(r"\n|\d|left|stay|right")
STEPS = 400


def games(url: str, name: str) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """The tools as a model is given them, and every game as it is played by whoever can."""
    import anyio
    from mcp import Client as McpClient

    async def play(url: str, messages: list[dict[str, Any]]) -> None:
        async with McpClient(url) as seat:
            over = False
            while not over:
                arguments = {"direction": towards_the_ball(messages[-1]["content"])}
                call = {"id": "1", "type": "function", "function": {"name": "move", "arguments": arguments}}
                result = await seat.call_tool("move", arguments)
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
                messages.append({"role": "tool", "content": result.content[0].text})
                over = result.meta["envport/terminated"]

    with Client(url) as control:
        info = control.environment(name)
        played: list[list[dict[str, Any]]] = []
        for split in info.splits:
            for index in range(split.num_tasks):
                opened = control.open(name, split=split.name, task=index, seed=0)
                messages = [{"role": "user", "content": f"{opened.prompt}\n\n{opened.observation.text}"}]
                anyio.run(play, opened.mcp_url, messages)
                played.append(messages)
    functions = [
        {
            "type": "function",
            "function": {key: tool[wire] for key, wire in (("name", "name"), ("description", "description"))}
            | {"parameters": tool["inputSchema"]},
        }
        for tool in info.tools
    ]
    return functions, played


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(ALONE, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=2000, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def learn(folder: Path, url: str, name: str) -> None:
    """Make a model that has learned all games by heart, and save it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tools, played = games(url, name)
    draft = make_tokenizer([])
    texts = [draft.apply_chat_template(game, tools=tools, tokenize=False) for game in played]
    pieces = [piece for text in texts for piece in re.split(r"<\|im_start\|>|<\|im_end\|>|</?tool_call>", text)]
    tokenizer = make_tokenizer(pieces)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.08,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    labels = _answers_alone(batch["input_ids"], tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # Of all its tokens together, so that each is by far the likeliest.
        if loss.item() < 1e-2:
            break
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _answers_alone(ids: torch.Tensor, tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    """The labels: only what the assistant writes."""
    begin = tokenizer("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
    labels = torch.full_like(ids, -100)
    for row, line in enumerate(ids.tolist()):
        for place in range(len(line) - len(begin)):
            if line[place : place + len(begin)] == begin:
                start = place + len(begin)
                end = line.index(tokenizer.eos_token_id, start) + 1
                labels[row, start:end] = ids[row, start:end]
    return labels


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """`transformers serve` on a free port, in a thread; gives the address of its OpenAI-compatible API."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # In a process of its own, it would import for seconds what is here.
    server = Serve(force_model=str(folder), device="cpu", host="127.0.0.1", port=port, non_blocking=True)
    try:
        deadline = time.monotonic() + patient(60)
        while not server.server.started:
            assert time.monotonic() < deadline, "it did not start"
            threading.Event().wait(0.01)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill_server()


if __name__ == "__main__":
    from harness import running

    from envport.registry import load

    with running(load("catch?rows=3&columns=3")) as gateway:
        begin = time.monotonic()
        learn(Path(sys.argv[1]), gateway.url, "catch")
        print(json.dumps({"seconds": time.monotonic() - begin}))
