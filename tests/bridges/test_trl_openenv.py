"""An OpenEnv server in one word: the tools that TRL gets are those that the server has."""

from __future__ import annotations

from openenv_releases import ACTION, Hostile

from envport_bridges.trl import EnvironmentSpec


def test_the_tools_are_the_server_s() -> None:
    with Hostile() as server:
        spec = EnvironmentSpec(f"openenv:{server.url}")
        shown = dict(spec.environment_factory().step)
        assert shown["function"]["parameters"] == ACTION
        assert shown["function"]["name"] == "step"
