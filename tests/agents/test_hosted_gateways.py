"""Gateways that are started for one evaluation or training."""

from __future__ import annotations

import textwrap
from pathlib import Path

from envport.client import Client
from envport_bridges.agents.gateways.hosted import Hosted

TALKATIVE = """
    print("Loading the data ...")

    from envport import Environment, tool


    class Talkative(Environment):
        '''Says what it does.'''

        def reset(self, *, seed, task=None):
            return "ready"

        @tool
        def act(self) -> str:
            '''Act.'''
            return "done"
"""


def test_an_environment_may_print_while_it_is_loaded(tmp_path: Path):
    file = tmp_path / "talkative.py"
    file.write_text(textwrap.dedent(TALKATIVE))
    hosted = Hosted.start(f"{file}:Talkative")
    try:
        with Client(hosted.url, token=hosted.token) as control:
            assert control.open(hosted.name, seed=1).episode_id
    finally:
        hosted.stop()
