"""A program that plays one mission after another, in the way that each mission's prompt names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

PLAYED = 0
LAST = ""


def say(line: object) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    os.write(1, text.encode() + b"\n")


def done(mission: Any, **more: object) -> None:
    say({"done": mission["id"], **more})


def tell(mission: Any, rest: str) -> None:
    size, short = len(mission["prompt"]), mission | {"prompt": mission["prompt"][:20]}
    told = {"mission": short, "size": size, "pid": os.getpid(), "played": PLAYED, "variables": dict(os.environ)}
    told["descriptors"] = len(os.listdir("/proc/self/fd"))
    say("told " + json.dumps(told))
    done(mission)


def fail(mission: Any, rest: str) -> None:
    print("a reason in the log", file=sys.stderr, flush=True)
    done(mission, error={"why": "I lost"})


def leave(mission: Any, rest: str) -> None:
    sys.exit(int(rest))


def hang(mission: Any, rest: str) -> None:
    """Hang, with another process, after a file was opened."""
    held = [os.open(rest, os.O_WRONLY)] if rest else []
    for descriptor in held:
        os.write(descriptor, b"started")
    linger = [sys.executable, "-c", "import time; time.sleep(3600)"]
    subprocess.Popen(linger, start_new_session=True, pass_fds=held)
    time.sleep(3600)


def hold(mission: Any, rest: str) -> None:
    os.write(os.open(rest, os.O_WRONLY), b"started")
    done(mission)


def late(mission: Any, rest: str) -> None:
    """Answer for the mission before, once more."""
    say({"done": LAST})
    print("still playing", file=sys.stderr, flush=True)
    done(mission)


def early(mission: Any, rest: str) -> None:
    """Answer, and answer for the next one too."""
    done(mission)
    say({"done": "the next"})


def other(mission: Any, rest: str) -> None:
    say({"done": "another"})
    time.sleep(3600)


def garbage(mission: Any, rest: str) -> None:
    for line in ("{", "[" * 60_000 + '"done"', '{"done"', '["done"]', "\x00\xff", '{"finished": "done"}', ""):
        say(line)
    done(mission)


def long(mission: Any, rest: str) -> None:
    for _ in range(100):
        os.write(1, b"x" * 1_000_000)
    say("")
    done(mission)


def twice(mission: Any, rest: str) -> None:
    done(mission)
    done(mission)


def mute(mission: Any, rest: str) -> None:
    os.close(1)
    time.sleep(3600)


def chatter(mission: Any, rest: str) -> None:
    """Write more than pipes hold, on both streams."""
    os.write(2, b"e" * 200_000)
    os.write(1, b"o" * 200_000 + b"\n")
    done(mission)


def missions() -> Iterator[Any]:
    for line in sys.stdin:
        yield json.loads(line)


if __name__ == "__main__":
    if "deaf" in sys.argv:
        time.sleep(3600)
    if "early" in sys.argv:
        say({"done": "none yet"})
    for mission in missions():
        PLAYED += 1
        word, _, rest = mission["prompt"].partition(" ")
        globals()[word](mission, rest)
        LAST = mission["id"]
