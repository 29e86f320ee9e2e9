"""`envport model serve`."""

from __future__ import annotations

import os
import shlex
import signal
from dataclasses import dataclass
from typing import Annotated

import typer

from envport.cli.groups import OptionGroup, grouped
from envport.cli.options import json_object
from envport_bridges.model_serving.settings import ServedModelSettings

__all__ = ["model"]

model = typer.Typer(name="model", no_args_is_help=True, help="Serve models to agents.")

TOKEN = "ENVPORT_MODEL_TOKEN"
"""The variable with the control token."""


@dataclass(frozen=True)
class ModelAddressOptions(OptionGroup):
    """Where the model is served."""

    title = "Address"

    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Another one than this machine's own needs a token in ENVPORT_MODEL_TOKEN."
        ),
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8001
    allowed_host: Annotated[
        tuple[str, ...], typer.Option(metavar="NAME", help="A further host name by which clients call it.")
    ] = ()
    idle_seconds: Annotated[float, typer.Option(min=1, help="Seconds after which a session ends that nobody uses.")] = (
        3600.0
    )


@dataclass(frozen=True)
class WritingOptions(OptionGroup):
    """How the model runs and writes."""

    title = "Model"

    device: Annotated[str, typer.Option(help="Where it runs, as torch names it: cpu, cuda, mps.")] = (
        ServedModelSettings.device
    )
    dtype: Annotated[
        str, typer.Option(help="Type of its weights, as torch names it; auto for that in which it was saved.")
    ] = ServedModelSettings.dtype
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most tokens of a conversation after its first context, as GRPO's max_completion_length."
        ),
    ] = None
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the most probable token.")] = 1.0
    top_p: Annotated[float, typer.Option(min=0, max=1)] = 1.0
    top_k: Annotated[int, typer.Option(min=0, help="0 for all tokens.")] = 0
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the samples; chance if not given.")] = None
    vllm: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of a vLLM server that has the model: it samples, and only the tokenizer is loaded here. Its "
            "API key is in VLLM_API_KEY.",
        ),
    ] = None
    chat_template_kwargs: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Variables of the chat template, as in GRPO's chat_template_kwargs: '{\"enable_thinking\": false}'.",
        ),
    ] = None

    @property
    def settings(self) -> ServedModelSettings:
        """The same as settings.

        Raises:
            InvalidOption: What is given for the template is no JSON object.
        """
        return ServedModelSettings(
            self.device,
            self.dtype,
            self.max_tokens,
            self.temperature,
            self.top_p,
            self.top_k,
            self.seed,
            self.vllm,
            json_object("--chat-template-kwargs", self.chat_template_kwargs),
        )


@model.callback()
def models() -> None:
    """Serve models to agents."""


@model.command()
@grouped
def serve(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of a saved model, or its name on the hub.")],
    *,
    address: ModelAddressOptions,
    writing: WritingOptions,
) -> None:
    """Serve a saved model to agents: with the APIs of OpenAI and Anthropic, and the very contexts of training.

    A conversation that goes on is never tokenized again: what the model wrote stays as it was sampled.
    """
    from envport_bridges.model_serving.loading import ServedModel
    from envport_bridges.model_serving.server import ModelServer, ServingAddress

    token = os.environ.get(TOKEN) or None
    where = ServingAddress(address.host, address.port, token, address.allowed_host, address.idle_seconds)
    # Refused before the model is loaded, which takes a while.
    where.policy  # noqa: B018
    served = ServedModel.load(path, writing.settings, os.environ.get("VLLM_API_KEY"))
    server = ModelServer(served, where)

    def stop(number: int, frame: object) -> None:
        server.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run(lambda: _greet(served.name, server.url, secured=token is not None))
    print("\nStopped.")


def _greet(name: str, url: str, *, secured: bool) -> None:
    key = f"${TOKEN}" if secured else "any"
    print(f"envport serves {name} at {url}")
    print("Base URL of OpenAI's API (chat completions and responses):")
    print(f"  OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}")
    print("Base URL of Anthropic's API:")
    print(f"  ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={key}")
    print("Evaluate an agent with it:")
    command = shlex.join(["envport", "eval", "ENVIRONMENT", "--agent", "COMMAND", "--agent-model", url])
    print(f"  {command}")
    if not secured:
        print(f"There is no token: evaluations need one, in the variable {TOKEN} of both.")
    print("Stop with Ctrl-C.", flush=True)
