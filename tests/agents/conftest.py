"""The model's address with a scripted policy behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from scripted_policy import Script, ScriptedPolicy, Serve

from envport_bridges.agents.model.endpoint import ModelEndpoint


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a policy with a script, until the test ends."""
    with ExitStack() as entered:

        def start(script: Script, **settings: object) -> tuple[ModelEndpoint, ScriptedPolicy]:
            policy = ScriptedPolicy(script)
            return entered.enter_context(ModelEndpoint(policy, **settings)), policy

        yield start
