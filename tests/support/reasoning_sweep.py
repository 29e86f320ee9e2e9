"""Plays every task of reasoning-gym with answers that are right, wrong, empty and hostile; a line of JSON for each.

`python reasoning_sweep.py SEED`: the seed of Python's global `random`, which no question may depend on. Each task is
played in a child of its own, because some scorers execute the answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from reasoning_gym.factory import DATASETS, create_dataset

ITEMS = 40
SECONDS = 20.0
KILLED = 3
NUMBERS = [str(number) for number in range(-1, 30)]
TEXTS = [
    f"__import__('os')._exit({KILLED})", "", " ", "\n", "yes", "no", "True", "False", "None", "null", "[]", "{}", "()",
    "nonsense", "a", "A", "x" * 500, "100", "0.5", "1/2", "1 2 3", "0 1", "[[0]]", "[1, 2, 3]", "I do not know",
    "<answer></answer>", "((((", "\x00", "½", "a,b,c", "1e999", "nan", "inf",
]  # fmt: skip


def same(answer: str, right: str) -> bool:
    """Whether an answer can be read as the right one. Some scorers read a text's first number, without its sign."""
    first = [re.search(r"\d+(\.\d+)?", text) for text in (answer, right)]
    if first[0] and first[1]:
        return float(first[0][0]) == float(first[1][0])
    return answer.strip().lower() == right.strip().lower()


def timed(count: int) -> Callable[[int], bool]:
    """Whether there is time for one more."""
    begun = time.process_time()
    return lambda number: number < count and time.process_time() - begun < SECONDS


def played(name: str) -> dict[str, Any]:
    made = create_dataset(name, seed=11, size=1200)
    entries: dict[int, Any] = {}
    more = timed(ITEMS)
    # Backwards in one of the processes: no question may depend on those before it.
    for place in range(ITEMS):
        if more(place):
            number = place if sys.argv[1] == "1" else ITEMS - 1 - place
            entries[number] = made[number]
    digests = {
        number: hashlib.sha256(f"{entry['question']}\n{entry['answer']}".encode()).hexdigest()[:12]
        for number, entry in entries.items()
    }
    found: dict[str, Any] = {"digests": digests, "solved": True, "full": [], "parts": 0.0}
    if any(not isinstance(entry["answer"], str) for entry in entries.values()):
        return found | {"solved": None}
    found["solved"] = all(made.score_answer(entry["answer"], entry) == 1 for entry in entries.values())
    constants = [*TEXTS, *NUMBERS]
    more = timed(len(constants) + 15)
    for place, answer in enumerate([*constants, *[entry["answer"] for entry in entries.values()][:15]]):
        if more(place):
            constant = place < len(constants)
            equal = same if constant else str.__eq__
            scores = [wrong(made, answer, entry) for entry in entries.values() if not equal(answer, entry["answer"])]
            # Another question's answer may be right here too.
            if constant and 1.0 in scores:
                found["full"].append(answer)
            partial = [score for score in scores if score < 1]
            if len(partial) > len(entries) / 2:
                found["parts"] = max(found["parts"], math.fsum(partial) / len(partial))
    return found


def wrong(made: Any, answer: str, entry: Any) -> float:
    try:
        return float(made.score_answer(answer, entry))
    except Exception:
        return 0.0


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.flush()
    output = os.dup(sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    for name in sorted(DATASETS):
        if name == "composite":
            continue
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (int(6 * SECONDS), int(6 * SECONDS)))
            random.seed(int(sys.argv[1]))
            os.write(output, f"{json.dumps({'task': name} | played(name))}\n".encode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            os.write(output, f"{json.dumps({'task': name, 'ended': os.waitstatus_to_exitcode(status)})}\n".encode())


if __name__ == "__main__":
    main()
