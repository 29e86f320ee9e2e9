"""The measured gateway: `Service` with `echo`, or `envport serve` with somebody's settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from envport.bench.processes import Process, python_module
from envport.bench.profiles import GatewayProfile

__all__ = ["start_gateway"]


def start_gateway(
    stack: ExitStack,
    limits: Mapping[str, Any],
    profile: GatewayProfile | None,
    interpreter: Sequence[str] = python_module(),
) -> tuple[Process, str]:
    """Start a gateway in a process of its own.

    Args:
        stack: What ends it.
        limits: Fields of `Limits` that differ from the defaults. Those that the profile has are left as they are there.
        profile: Settings of `envport serve`, if it is to have any.
        interpreter: What runs its module.

    Returns:
        Its process and its address.

    Raises:
        RuntimeError: It did not start.
    """
    if profile is None:
        process = Process("envport.bench.servers", "gateway", json.dumps(dict(limits)), interpreter=interpreter)
        return stack.enter_context(process), process.read()
    options = ["--port", "0", "--log-level", "warning", "--drain-seconds", "0", "--end-with-input"]
    for name, value in limits.items():
        if (option := name.replace("_", "-")) not in profile.settings:
            options += [f"--{option}", f"{value}"]
    # A token in our environment would shut the load generator out.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ENVPORT_")}
    arguments = ("serve", "echo", "--config", str(profile.file), *options)
    process = stack.enter_context(Process("envport.cli", *arguments, interpreter=interpreter, variables=variables))
    while (found := re.search(r"http://[\w.:]+", process.read())) is None:
        pass
    return process, found[0]
