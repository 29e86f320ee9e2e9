"""Policies: players that are functions instead of models."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, TypeAlias, cast

from pydantic_core import to_json

from envport.errors import InvalidOption
from envport.tools.sampling import ArgumentSampler
from envport_bridges.agents.programs.seat import Seat, SeatReply

__all__ = [
    "Policy",
    "PolicyCall",
    "PolicyRaised",
    "View",
    "load_policy",
    "no_op",
    "play_policy",
    "random_calls",
]

PolicyCall: TypeAlias = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""


@dataclass
class View:
    """What a policy sees: the same as a model, and a random number generator.

    Attributes:
        environment: Name of the environment.
        prompt: The task's prompt.
        tools: The tools, as MCP lists them.
        observation: The latest observation as text; before any call, the first observation.
        rng: Random number generator, seeded from the episode's seed and its epoch.
        history: The calls so far, each with its answer.
        legal_calls: The calls that make sense now, or a sample of them, if the environment says so and the policy is
            evaluated. A model does not see them.
    """

    environment: str
    prompt: str
    tools: list[dict[str, Any]]
    observation: str
    rng: Random
    history: list[tuple[PolicyCall, SeatReply]] = field(default_factory=list[tuple[PolicyCall, SeatReply]])
    legal_calls: list[PolicyCall] | None = None


Policy: TypeAlias = Callable[[View], PolicyCall | Awaitable[PolicyCall | None] | None]
"""Returns the next call, or `None` to stop."""


class PolicyRaised(Exception):
    """A policy raised, or returned what is no call; `__cause__` is what it raised. The player owns this."""


def random_calls(view: View) -> PolicyCall | None:
    """Make one of the legal calls if they are known, or else call a random tool with arguments that it accepts."""
    if view.legal_calls is not None:
        return view.rng.choice(view.legal_calls) if view.legal_calls else None
    if not view.tools:
        return None
    tool = view.rng.choice(view.tools)
    return tool["name"], ArgumentSampler(tool["inputSchema"]).sample(view.rng)


def no_op(view: View) -> PolicyCall | None:
    """Call nothing. It measures the reward of an episode without a player."""
    return None


_BUILT_IN: dict[str, Policy] = {"random": random_calls, "noop": no_op}


@cache
def load_policy(name: str) -> Policy:
    """Find a policy.

    Args:
        name: `random`, `noop`, `package.module:function` or `./file.py:function`.

    Raises:
        InvalidOption: There is no such function.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise InvalidOption(f"policy {name!r} is none of random, noop, MODULE:FUNCTION and ./FILE.py:FUNCTION")
    policy = getattr(_module(where, name), attribute, None)
    if not callable(policy):
        raise InvalidOption(f"policy {name!r}: there is no function {attribute!r} in {where}")
    return cast("Policy", policy)


def _module(where: str, name: str) -> ModuleType:
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        spec = importlib.util.spec_from_file_location(f"_policy_{Path(where).stem}", where)
        if spec is None or spec.loader is None:
            raise ImportError(f"{where} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        # Let the file import modules from its own folder, as a script can.
        sys.path.insert(0, str(Path(where).resolve().parent))
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as error:
        raise InvalidOption(f"policy {name!r} cannot be loaded: {type(error).__name__}: {error}") from error


async def play_policy(
    policy: Policy,
    view: View,
    seat: Seat,
    most_calls: int,
    legal_calls: Callable[[], Awaitable[list[PolicyCall] | None]] | None = None,
) -> str:
    """Let a policy play until the episode is over, the policy stops, or it reaches `most_calls`. Returns the reason.

    Args:
        policy: The policy.
        view: What it sees.
        seat: Where it plays.
        most_calls: The most calls that it may make.
        legal_calls: Asks which calls make sense now. It is not asked again after it has answered `None`.

    Raises:
        PolicyRaised: The policy raised, or returned what is no call.
        GatewayUnreachable: The gateway did not answer a call.
    """
    while not seat.over:
        if seat.calls >= most_calls:
            return f"the player was stopped after {most_calls} calls"
        if legal_calls is not None:
            view.legal_calls = await legal_calls()
            legal_calls = legal_calls if view.legal_calls is not None else None
        call = await _next_call(policy, view)
        if call is None:
            return "the policy stopped"
        reply = await seat.call(*call)
        view.observation = reply.text
        view.history.append((call, reply))
    return "the episode was over"


async def _next_call(policy: Policy, view: View) -> PolicyCall | None:
    try:
        call: Any = policy(view)
        if inspect.isawaitable(call):
            call = await call
        return _checked(call) if call is not None else None
    except (Exception, SystemExit) as error:
        raise PolicyRaised(f"{type(error).__name__}: {error}") from error


def _checked(call: Any) -> PolicyCall:
    match call:
        case (str(tool), dict()):
            arguments = cast("dict[str, Any]", call[1])
            # What cannot be sent fails here, where it is the policy's fault, and not in the client.
            to_json(arguments)
            return tool, arguments
        case _:
            raise TypeError(f"{call!r} is no call: that is the name of a tool, and a dict of its arguments")
