"""Calls the player's function with hidden arguments. It runs in a sandbox of its own, as source text.

What it prints is compared in the environment's process. So whatever the player's code does to this one, only right
results are of use.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    """Read arguments as lines of JSON, and print a line of JSON for each result."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    cases = [json.loads(line) for line in sys.stdin]
    solve = importlib.import_module("solution").solve
    for arguments in cases:
        answers.write(json.dumps(solve(*arguments), sort_keys=True) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
