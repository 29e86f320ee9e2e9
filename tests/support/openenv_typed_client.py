"""The classes by which TRL's script for OpenEnv's catch plays, as a program for a virtual environment of OpenEnv's.

TRL's script needs the package of OpenEnv's OpenSpiel environment, which no registry has. Its client and its environment
class are written here after their documentation. `URL` is all that a user changes.
"""

import json
import sys
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import MagicMock

# OpenEnv draws web pages with gradio, which takes most of the time to import.
sys.modules["gradio"] = sys.modules["gradio.themes"] = MagicMock()

from openenv.core.client_types import StepResult  # noqa: E402
from openenv.core.env_client import EnvClient  # noqa: E402
from openenv.core.env_server.types import Action, Observation, State  # noqa: E402

URL = sys.argv[1]


class OpenSpielAction(Action):
    action_id: int
    game_name: str = "catch"
    game_params: dict[str, Any] | None = None


class OpenSpielObservation(Observation):
    info_state: list[float]
    legal_actions: list[int]
    game_phase: str = "playing"


class OpenSpielEnv(EnvClient[OpenSpielAction, OpenSpielObservation, State]):
    def _step_payload(self, action):
        return {"action_id": action.action_id, "game_name": action.game_name, "game_params": action.game_params}

    def _parse_result(self, payload):
        data = payload["observation"]
        observation = OpenSpielObservation(
            info_state=data["info_state"],
            legal_actions=data["legal_actions"],
            game_phase=data["game_phase"],
            done=payload["done"],
            reward=payload["reward"],
        )
        return StepResult(observation=observation, reward=payload["reward"], done=payload["done"])

    def _parse_state(self, payload):
        return State(episode_id=payload.get("episode_id"), step_count=payload["step_count"])


@dataclass
class CatchEnv:
    """What TRL's trainer is given as `environment_factory`."""

    client: Any = field(default_factory=lambda: OpenSpielEnv(base_url=URL).sync())
    reward: float = 0.0
    done: bool = False

    def reset(self, **kwargs):
        result = self.client.reset()
        self.reward, self.done = 0.0, result.observation.done
        return result.observation.info_state

    def _act(self, action_id):
        result = self.client.step(OpenSpielAction(action_id=action_id, game_name="catch"))
        self.reward, self.done = result.reward or 0.0, result.observation.done
        return result.observation.info_state

    def move(self, direction):
        return self._act({"left": 0, "right": 2}[direction])

    def stay(self):
        return self._act(1)


def columns(info_state):
    """Where the ball and the paddle are."""
    ball = next(index for index, value in enumerate(info_state[:-5]) if value == 1.0) % 5
    return ball, info_state[-5:].index(1.0)


def main():
    env = CatchEnv()
    for _ in range(3):
        seen = env.reset()
        while not env.done:
            ball, paddle = columns(seen)
            seen = env.stay() if ball == paddle else env.move("left" if ball < paddle else "right")
        state = env.client.state()
        print(json.dumps({"reward": env.reward, "done": env.done, "steps": state.step_count, "last": seen}))
    env.client.close()


if __name__ == "__main__":
    main()
