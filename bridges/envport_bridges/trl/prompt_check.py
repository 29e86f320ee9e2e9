"""Checks that the model is shown the tools.

A trainer that collects them in another way leaves the model without, and nobody notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envport.errors import ConfigurationError
from envport_bridges.trl.classes import tools_of
from envport_bridges.trl.rollout_environment import RolloutEnvironment

__all__ = ["require_tools_in_prompts", "shown_tools"]

_PROBE = [{"role": "user", "content": ""}]


def shown_tools(environment: RolloutEnvironment) -> list[Any] | None:
    """The tools that the model is shown; `None` if there are none."""
    return [getattr(environment, name) for name in tools_of(type(environment))] or None


def require_tools_in_prompts(trainer: Any, environments: Sequence[Any], prompt_ids: Sequence[Sequence[int]]) -> None:
    """Check that each prompt holds what the chat template makes of its environment's tools.

    Args:
        trainer: A `GRPOTrainer`.
        environments: The environment of each prompt.
        prompt_ids: The token ids of the prompts, as the model is given them.

    Raises:
        ConfigurationError: One of them does not; the message says what may be the cause.
    """
    seen: set[type[Any]] = set()
    for environment, ids in zip(environments, prompt_ids, strict=False):
        if isinstance(environment, RolloutEnvironment) and type(environment) not in seen:
            seen.add(type(environment))
            _require(trainer, environment, ids)


def _require(trainer: Any, environment: RolloutEnvironment, ids: Sequence[int]) -> None:
    tools = shown_tools(environment)
    if tools is None:
        return
    names = ", ".join(tool.name for tool in tools_of(type(environment)).values())
    block = _difference(_rendered(trainer, tools), _rendered(trainer, None))
    if not block:
        raise ConfigurationError(f"the chat template shows the model no tools ({names}): use one that renders `tools`")
    if block not in _text(trainer, ids):
        raise ConfigurationError(
            f"the prompt that the model was given does not hold the tools of the environment ({names}) as the chat "
            "template renders them. This version of TRL collects them in another way, or uses another template. Known "
            "to work: envport_bridges.trl.contract.KNOWN_TRL."
        )


def _rendered(trainer: Any, tools: list[Any] | None) -> str:
    ids = trainer.processing_class.apply_chat_template(
        [_PROBE],
        tools=tools,
        chat_template=trainer.chat_template,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        **trainer.chat_template_kwargs,
    )["input_ids"][0]
    return _text(trainer, ids)


def _text(trainer: Any, ids: Sequence[int]) -> str:
    """The text of token ids, without white space: some tokenizers change that."""
    tokenizer: Any = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return "".join(str(tokenizer.decode(ids)).split())


def _difference(longer: str, shorter: str) -> str:
    """What the longer text has between the beginning and the end that both share."""
    start = _shared(longer, shorter)
    end = _shared(longer[start:][::-1], shorter[start:][::-1])
    return longer[start : len(longer) - end]


def _shared(one: str, other: str) -> int:
    """How many characters two texts share at the beginning."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))
