"""How an evaluation was played, read from Inspect's log: limits, and how a model was asked."""

from __future__ import annotations

from typing import Any

from inspect_ai.log import EvalConfig, EvalLog

from envport_bridges.evaluation.agent_models.served import AGENT_MODEL

__all__ = ["settings_of"]

_OF_MODELS = ("token_limit", "token_limit_type", "message_limit", "turn_limit", "cost_limit")

# How a server is asked and what it tells does not change what a model answers, and its seed is chance.
_NOT_GENERATION = frozenset(
    {
        "max_retries", "timeout", "attempt_timeout", "stream_idle_timeout", "max_connections", "adaptive_connections",
        "cache_prompt", "cache", "batch", "extra_headers", "logprobs", "top_logprobs", "prompt_logprobs", "seed",
    }
)  # fmt: skip


def settings_of(log: EvalLog) -> dict[str, Any]:
    """How an evaluation was played, as far as its kind of player has that setting.

    Args:
        log: Inspect's log.
    """
    config, arguments = log.eval.config, log.eval.task_args
    settings: dict[str, Any] = {
        "epochs": config.epochs or 1,
        "time_limit": config.time_limit,
        "working_limit": config.working_limit,
    }
    if arguments.get("agent"):
        settings["agent_seconds"] = float(arguments.get("agent_seconds", 600.0))
        model = (log.eval.metadata or {}).get(AGENT_MODEL)
        return settings | _of_agent_model(model, config) if model else settings
    if arguments.get("policy"):
        return settings
    # Those of the evaluation precede those of the model.
    whole = log.eval.model_generate_config.merge(log.plan.config)
    generation = whole.model_dump(mode="json", exclude=set(_NOT_GENERATION))
    return settings | {name: getattr(config, name) for name in _OF_MODELS} | generation


def _of_agent_model(described: dict[str, Any], config: EvalConfig) -> dict[str, Any]:
    """The model of an agent, how it was sampled from, and how much of it the agent could use."""
    model = f"{described['name']} {described['weights'] or ''}".rstrip()
    return {name: getattr(config, name) for name in _OF_MODELS} | {"agent_model": model} | described["settings"]
