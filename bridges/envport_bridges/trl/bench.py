"""Prints what the bridge costs and how exact it is: `python -m envport_bridges.trl.bench`.

python -m envport_bridges.trl.bench                       # all of it, about five minutes
python -m envport_bridges.trl.bench schemas echo          # some of it
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import logging
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from envport import Environment, Task, tool
from envport_bridges.trl.classes import environment_class
from envport_bridges.trl.matrix import Corpus, compare, environment_tools, tool_templates
from envport_bridges.trl.rollout_environment import RolloutEnvironment
from envport_bridges.trl.spec import EnvironmentSpec

__all__ = ["WaitEnvironment", "main"]

_CORPUS = Path("tests/bridges/corpus.py")
_EXAMPLE = Path("examples/grpo_catch")
_CALLS = 3_000
_STEPS = 20
_ECHO = (
    "echo=envport_bridges.trl.bench:EchoForBench",
    *("--port", "0", "--log-level", "warning", "--drain-seconds", "0", "--end-with-input"),
)


class WaitEnvironment(Environment):
    """Takes 100 ms for a call."""

    def reset(self, *, seed: int, task: Task | None) -> None:
        """Begin."""

    @tool
    async def wait(self) -> str:
        """Wait."""
        await asyncio.sleep(0.1)
        return "waited"


class EchoForBench(Environment):
    """Says back what it is told."""

    def reset(self, *, seed: int, task: Task | None) -> None:
        """Begin."""

    @tool
    def echo(self, message: str) -> str:
        """Say the message back."""
        return message


def schemas(options: argparse.Namespace) -> None:
    """How many schemas of the corpus stand in the prompt exactly, ours and TRL's `OpenRewardSpec` binder's."""
    entries = _corpus(options.corpus)
    if entries is None:
        return
    for name, render in (("envport", _ours), ("OpenRewardSpec", _openreward)):
        exact = callable_ = 0
        for listed, _ in entries.values():
            shown = _quietly(lambda: render(listed))  # noqa: B023
            callable_ += shown is not None
            exact += shown is not None and json.dumps(shown) == json.dumps(listed["inputSchema"])
        print(f"schemas: {name}: of {len(entries)}, {exact} exact in the prompt, {callable_} callable")


def formats(options: argparse.Namespace) -> None:
    """What each chat template of the installed TRL shows of the corpus, and what it brings back of its calls."""
    entries = _corpus(options.corpus)
    if entries is None:
        return
    tokenizer, _ = _tiny()
    print(f"formats: of {len(entries)} tools: shown exactly, called and read back equal, said not to arrive, wrong")
    for cell in compare(tokenizer, tool_templates(), entries):
        print(
            f"formats: {cell.template:24} {cell.path:20} "
            f"{cell.exact:4} {cell.equal:4} {len(cell.said):4} {len(cell.wrong):4}"
        )


def _corpus(path: Path) -> Corpus | None:
    spec = importlib.util.spec_from_file_location("corpus", path)
    if spec is None or spec.loader is None or not path.exists():
        print(f"no corpus at {path}; run this in a checkout of envport, or say where it is with --corpus")
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CORPUS


def _quietly(render: Callable[[], Any]) -> Any:
    try:
        return render()
    except Exception:  # What a binder cannot take counts as not callable, whatever it raises.
        return None


def _shown(tool: Any) -> Any:
    rendering: Any = importlib.import_module("transformers.utils.chat_template_utils")
    texts, _ = rendering.render_jinja_template([[]], tools=[tool], chat_template="{{ tools | tojson }}")
    return json.loads(texts[0])[0]["function"]["parameters"]


def _ours(listed: dict[str, Any]) -> Any:
    player: Any = SimpleNamespace(call=_called)
    environment = environment_class("demo", [listed], RolloutEnvironment)(player)
    (found,) = (getattr(environment, name) for name in environment_tools(environment))
    found()
    return _shown(found)


def _called(*arguments: Any) -> str:
    """Stands for an environment."""
    return "called"


def _openreward(listed: dict[str, Any]) -> Any:
    from trl.experimental.openreward import environment as openreward

    made = type("Demo", (), {"_call_ors_tool": _called})
    before = set(vars(made))
    tool = {
        "name": listed["name"],
        "description": listed.get("description"),
        "input_schema": listed["inputSchema"],
    }
    openreward._bind_tool_method(made, tool)  # pyright: ignore[reportPrivateUsage]
    (bound,) = set(vars(made)) - before
    if bound != listed["name"] or bound.startswith("_") or bound in ("reset", "get_reward"):
        return None
    return _shown(getattr(made(), bound))


def classes(options: argparse.Namespace) -> None:
    """How long a class of a thousand tools takes."""
    properties = {f"p{n}": {"type": "string", "enum": ["a", "b"], "description": "One of two."} for n in range(5)}
    schema = {"type": "object", "properties": properties, "required": ["p0"]}
    listing = [{"name": f"tool-{n}", "description": "A tool.", "inputSchema": schema} for n in range(1000)]
    player: Any = SimpleNamespace()
    began = time.perf_counter()
    environment = environment_class("demo", listing, RolloutEnvironment)(player)
    found = [getattr(environment, name) for name in environment_tools(environment)]
    print(f"classes: a class of {len(found)} tools: {time.perf_counter() - began:.2f} s (to reach: 1 s)")


def echo(options: argparse.Namespace) -> None:
    """CPU of client and server for one `echo`: the bridge's call, and that of `mcp.Client` on a minimal MCP server."""
    serving = _serving("envport.cli", "serve", *_ECHO)
    with serving as (url, server), _serving("envport.bench.servers", "minimal") as (minimal, its_server):
        spec = EnvironmentSpec(f"{url}/environments/echo", num_tasks=1)
        environment: Any = spec.environment_factory()
        environment.reset(**spec.rows[0])
        say = environment.echo

        def bridge(calls: int) -> None:
            for _ in range(calls):
                assert say(message="hello") == "hello"

        def client(calls: int) -> None:
            asyncio.run(_mcp_calls(f"{minimal}/mcp", calls))

        for work in (bridge, client):
            work(200)
        # In turns, so that a machine that is busy meanwhile is so for both.
        rounds = [(_cpu(server, bridge, _CALLS // 5), _cpu(its_server, client, _CALLS // 5)) for _ in range(5)]
    for name, figures in zip(("bridge", "mcp.Client"), zip(*rounds, strict=True), strict=True):
        client_us, server_us = (sorted(column)[len(rounds) // 2] for column in zip(*figures, strict=True))
        print(f"echo: {name}: {client_us + server_us:,.0f} µs CPU a call ({client_us:,.0f} + {server_us:,.0f})")
    ratios = sorted(sum(mine) / sum(its) for mine, its in rounds)
    print(f"echo: ratio {ratios[len(ratios) // 2]:.2f} (to reach: 0.20)")


async def _mcp_calls(address: str, calls: int) -> None:
    from mcp import Client

    async with Client(address) as client:
        for _ in range(calls):
            await client.call_tool("echo", {"message": "hello"})


def _cpu(server: int, work: Callable[[int], None], calls: int) -> tuple[float, float]:
    """Microseconds of CPU a call: of this process, and of the server."""
    clock = (~server << 3) | 2  # The CPU clock of a process; see clock_getcpuclockid(3).
    mine, its = time.process_time(), time.clock_gettime(clock)
    work(calls)
    return (time.process_time() - mine) / calls * 1e6, (time.clock_gettime(clock) - its) / calls * 1e6


@contextmanager
def _serving(module: str, *arguments: str) -> Generator[tuple[str, int]]:
    """A server in a process of its own: its address and its process id."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = next(filter(None, (re.search(r"http://[\w.:]+", line) for line in process.stdout)))
            yield found[0], process.pid
        finally:
            process.terminate()


def rollouts(options: argparse.Namespace) -> None:
    """How long one turn of 64 rollouts waits for a tool of 100 ms, concurrent and stock."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    from envport_bridges.trl.trainer import ConcurrentGRPOTrainer

    spec = EnvironmentSpec("envport_bridges.trl.bench:WaitEnvironment", num_tasks=64)
    for trainer_class in (ConcurrentGRPOTrainer, GRPOTrainer):
        seconds = _turn(spec, trainer_class)
        print(f"rollouts: 64 x 100 ms, one turn, {trainer_class.__name__}: {seconds:.2f} s (to reach: 0.30 s)")


def _turn(spec: EnvironmentSpec, trainer_class: Any) -> float:
    from trl.trainer.grpo_config import GRPOConfig

    tokenizer, model = _tiny()
    marks: list[float] = []
    call = '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call><|im_end|>'

    class Timed(trainer_class):
        """Writes a tool call and then nothing; what is between the first call and the last result is counted."""

        def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            text = "<|im_end|>" if marks else call
            return [tokenizer(text, add_special_tokens=False)["input_ids"] for _ in prompt_ids], None

        def _tool_call_loop(self, *args: Any, **kwargs: Any) -> Any:
            marks.append(time.perf_counter())
            stock: Any = super()
            return stock._tool_call_loop(*args, **kwargs)

        def _get_tool_suffix_ids(self, tool_messages: Any) -> Any:
            if resolve := getattr(self, "_resolve", None):
                resolve(tool_messages)
            marks.append(time.perf_counter())
            return [tokenizer.eos_token_id]

    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=64,
            num_generations=8,
            max_steps=1,
            max_completion_length=512,
            max_tool_calling_iterations=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
            logging_steps=1000,
        )
        Timed(
            model=model,
            args=args,
            processing_class=tokenizer,
            train_dataset=spec.train_dataset,
            environment_factory=spec.environment_factory,
            reward_funcs=spec.reward_funcs,
        ).train()
    return marks[64] - marks[0]


def step(options: argparse.Namespace) -> None:
    """The share of a GRPO step of the example that the environment takes."""
    from envport_bridges.trl.step_share import MOST_OF_A_STEP, measure_step

    if not (options.example / "train.py").exists():
        print(f"no example at {options.example}; run this in a checkout of envport, or say where it is with --example")
        return
    found = measure_step(options.example, _serving, options.steps, options.warm_up)
    print(f"step: of {found.steps} GRPO steps of {options.example.name}, {found.calls:,.0f} calls each; the means:")
    print(
        f"step: time {found.seconds:.2f} s, of which the trainer waited {1e3 * found.waited:,.0f} ms for environments: "
        f"{found.of_time:.1%} (to reach: {MOST_OF_A_STEP:.0%})"
    )
    print(
        f"step: CPU {found.cpu:.2f} s, of which gateway and environments {1e3 * found.gateway:,.0f} ms and the bridge "
        f"{1e3 * found.bridge:,.0f} ms: {found.of_cpu:.1%}"
    )


def agents(options: argparse.Namespace) -> None:
    """What an episode costs when an agent plays it."""
    from envport_bridges.trl.agent_bench import MOST_OF_A_ROLLOUT, measure_agents

    example = options.example.with_name("grpo_agent")
    if not (example / "train.py").exists():
        print(f"no example at {example}; run this in a checkout of envport, or say where grpo_catch is with --example")
        return
    found = measure_agents(example, warm_up=options.warm_up)
    print(
        f"agents: {found.rounds} rounds of {found.episodes} episodes; medians of seconds for an episode, and of ratios"
    )
    print(f"agents: rollout_func {found.rollout:.3f} s, all at once")
    for at_once, (seconds, ratio) in found.resident.items():
        print(
            f"agents: resident agents {seconds:.3f} s, {ratio:.1f} times that, {at_once} at once "
            f"(to reach: at most {MOST_OF_A_ROLLOUT:.0f})"
        )
    print(f"agents: an agent started for each {found.started[0]:.3f} s, {found.started[1]:.1f} times, 8 at once")
    print(
        f"agents: {found.tokenized_differently:.1%} of {found.figures.extended:,} contexts that extend an earlier one "
        "would differ if the agent's words were tokenized again; here, none does"
    )


def _tiny() -> tuple[Any, Any]:
    """A tokenizer and a model that need no download."""
    import torch
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.set_num_threads(1)
    alphabet = {char: index for index, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(alphabet, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<|im_start|>"])
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3_instruct_2507.jinja"
    tokenizer.chat_template = template.read_text()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    return tokenizer, Qwen3ForCausalLM(config)


def main(arguments: list[str] | None = None) -> None:
    """Run what is asked for."""
    parts = {
        "schemas": schemas,
        "formats": formats,
        "classes": classes,
        "echo": echo,
        "rollouts": rollouts,
        "step": step,
        "agents": agents,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all if none is given")
    parser.add_argument("--corpus", type=Path, default=_CORPUS, help="tool schemas to compare")
    parser.add_argument("--example", type=Path, default=_EXAMPLE, help="folder of the example that step trains")
    parser.add_argument("--steps", type=int, default=_STEPS, help="how many steps it trains")
    parser.add_argument("--warm-up", type=int, help="episodes of its warm-up; as many as the example has if not given")
    options = parser.parse_args(arguments)
    if unknown := [part for part in options.parts if part not in parts]:
        parser.error(f"there is no part {unknown[0]!r}; there are: {', '.join(parts)}")
    logging.disable(logging.WARNING)
    for name, run in parts.items():
        if not options.parts or name in options.parts:
            run(options)


if __name__ == "__main__":
    main()
