"""Plays given calls with OpenEnv's client, as a program for a virtual environment of OpenEnv's.

Reads what to do as JSON from standard input, and prints the rewards of each episode's steps as a line of JSON.
"""

import json
import sys
from unittest.mock import MagicMock

# OpenEnv draws web pages with gradio, which takes most of the time to import.
sys.modules["gradio"] = sys.modules["gradio.themes"] = MagicMock()

from openenv.core.generic_client import GenericEnvClient  # noqa: E402


def main(asked):
    headers = {"Authorization": f"Bearer {asked['token']}"}
    for choice in asked["episodes"]:
        with GenericEnvClient(base_url=asked["url"], headers=headers).sync() as env:
            env.reset(**choice)
            steps = [
                env.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
                for name, arguments in asked["calls"]
            ]
        print(json.dumps([step.reward for step in steps]))


if __name__ == "__main__":
    main(json.load(sys.stdin))
