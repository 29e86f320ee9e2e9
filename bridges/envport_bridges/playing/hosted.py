"""The process of a gateway that an evaluation starts for itself.

The token comes in on standard input and is in no file, argument or variable that an agent under evaluation could read.
The end of standard input ends the gateway, so that none is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from envport.episodes import Limits
from envport.errors import EnvportError, InvalidEnvironment
from envport.registry import EnvironmentDefinition, load
from envport.serving import Service, Settings
from envport_bridges.playing.secrecy import hide_memory

__all__ = ["main"]

# The evaluation looks at every episode after its end, however many there are.
_LIMITS = Limits(max_ended=1_000_000)


def main() -> None:
    """Serve the environment that standard input names, and say where."""
    hide_memory()
    asked = json.loads(sys.stdin.readline())
    try:
        spec = _load(asked["reference"])
        # The evaluation closes its episodes before it ends, so there is nobody to wait for.
        settings = Settings(port=0, limits=_LIMITS, drain_seconds=0)
        service = Service(settings, [spec], {"ENVPORT_TOKEN": asked["token"]})
    except EnvportError as error:
        _say(error={"code": error.code, "message": str(error)})
        return
    threading.Thread(target=_end_with_input, daemon=True).start()
    service.run(lambda: _say(url=service.url, name=spec.name))


def _load(reference: str) -> EnvironmentDefinition:
    try:
        return load(reference)
    except EnvportError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidEnvironment(f"{reference} cannot be loaded: {type(error).__name__}: {error}") from error


def _say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def _end_with_input() -> None:
    # Not through the stream: its lock would be held when Python ends.
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
