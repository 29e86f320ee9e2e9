"""Makes a program that plays one mission after another of a function. Copy it: it needs only the standard library."""

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["serve"]


def serve(play: Callable[[dict[str, Any]], object]) -> None:
    """Call `play` with each mission, until there are no more. An exception fails the mission, and not the program."""
    missions, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.dup(1)
    # What `play` and its libraries print goes to standard error, and what they start reads no missions.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in missions:
        mission = json.loads(line)
        answer = {"done": mission["id"]}
        try:
            play(mission)
        except Exception as error:
            traceback.print_exc()
            answer["error"] = f"{type(error).__name__}: {error}"
        os.write(answers, json.dumps(answer).encode() + b"\n")
