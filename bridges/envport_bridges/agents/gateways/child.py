"""The process of a gateway that an evaluation or a training starts for itself; `hosted` starts it.

The token is read from standard input. So it is in no file, argument or variable that an agent could read.
The gateway ends when standard input ends, so that no gateway is left behind.
"""

from __future__ import annotations

import json
import os
import sys

from envport.episodes import Limits
from envport.errors import EnvportError, InvalidEnvironment
from envport.registry import EnvironmentDefinition, load
from envport.secrecy import hide_memory
from envport.serve_settings import Settings
from envport.serving import Service

__all__ = ["main"]

# Keep all ended episodes, because each one is read after its end.
_LIMITS = Limits(max_ended=1_000_000)


def main() -> None:
    """Serve the environment that standard input names, and print the address."""
    hide_memory()
    asked = json.loads(sys.stdin.readline())
    # What an environment prints must not get between our lines.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**words: object) -> None:
        print(json.dumps(words), file=answers, flush=True)

    sys.path += [folder for folder in asked["path"] if folder not in sys.path]
    try:
        spec = _load(asked["reference"], asked["options"], asked["score"])
        # Do not wait for episodes at the end: they are closed by then.
        settings = Settings(port=0, limits=_LIMITS, drain_seconds=0, end_with_input=True)
        service = Service(settings, [spec], {"ENVPORT_TOKEN": asked["token"]})
    except EnvportError as error:
        say(error={"code": error.code, "message": str(error)})
        return
    service.run(lambda: say(url=service.url, name=spec.name))


def _load(reference: str, options: str, score: str | None) -> EnvironmentDefinition:
    try:
        return load(reference, score=score, options=json.loads(options) if options else None)
    except EnvportError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidEnvironment(f"{reference} cannot be loaded: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    main()
