"""Gateways with tokens, evaluations of them, and models that keep to a script."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from command_line import envport_here
from harness import RunningGateway, running
from inspect_ai import eval as inspect_eval
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolCall

from envport.access import Access, Principal
from envport_bridges.evaluation.inspect_ai import episode
from envport_bridges.evaluation.results import Result

CONTROL = "a-control-token-of-the-tests"

Script = Callable[[list[Any], list[Any]], ModelOutput]
"""What the model answers, given the messages and the tools."""


def access() -> Access:
    digest = hashlib.sha256(CONTROL.encode()).digest()
    return Access([(digest, Principal("evaluator", frozenset({"control", "play"})))])


@contextlib.contextmanager
def secured(*environments: Any, **settings: Any) -> Iterator[RunningGateway]:
    """A gateway that needs a token."""
    with running(*environments, access=access(), **settings) as gateway:
        yield gateway


def address(gateway: RunningGateway, name: str) -> str:
    return f"{gateway.url}/environments/{name}"


def evaluate(env: str, *, model: Model | None = None, epochs: int = 1, limits: Any = None, **task: Any) -> EvalLog:
    (log,) = inspect_eval(
        episode(env=env, **task),
        model=model,
        epochs=epochs,
        log_dir="logs",
        display="none",
        ctl_server=False,
        **(limits or {}),
    )
    return log


def result_of(env: str, **options: Any) -> Result:
    return Result.of(evaluate(env, **options))


def scripted(script: Script) -> Model:
    """A model that answers what a script says."""
    return get_model(
        "mockllm/model",
        custom_outputs=lambda messages, tools, choice, config: script(messages, tools),
        memoize=False,
    )


def says(text: str) -> ModelOutput:
    return _output(ChatMessageAssistant(content=text, source="generate"), "stop")


def calls(*made: tuple[str, dict[str, Any]] | ToolCall) -> ModelOutput:
    tool_calls = [
        one if isinstance(one, ToolCall) else ToolCall(id=f"call_{index}", function=one[0], arguments=one[1])
        for index, one in enumerate(made)
    ]
    return _output(ChatMessageAssistant(content="", tool_calls=tool_calls, source="generate"), "tool_calls")


def _output(message: ChatMessageAssistant, reason: Any) -> ModelOutput:
    usage = ModelUsage(input_tokens=10, output_tokens=2, total_tokens=12)
    return ModelOutput(
        model="mockllm", choices=[ChatCompletionChoice(message=message, stop_reason=reason)], usage=usage
    )


def documents(*words: str, code: int = 0) -> list[dict[str, Any]]:
    """What `envport eval` prints as JSON."""
    done = envport_here("eval", *words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def logs_in(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob("*.eval"))
