"""The process of a model that an evaluation serves for itself; `ChildServer` starts it.

What to serve is read from standard input, with the token: so it is in no file, argument or variable that an evaluated
agent could read. The server ends when standard input ends, so that none is left behind.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from envport.errors import EnvportError
from envport.secrecy import hide_memory
from envport_bridges.model_serving.loading import ServedModel
from envport_bridges.model_serving.server import ModelServer, ServingAddress
from envport_bridges.model_serving.settings import ServedModelSettings

__all__ = ["main"]


def main() -> None:
    """Serve the model that standard input names, and print the address."""
    hide_memory()
    asked: dict[str, Any] = json.loads(sys.stdin.readline())
    # What libraries print must not get between our lines.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**words: object) -> None:
        print(json.dumps(words), file=answers, flush=True)

    model, token = asked.pop("model"), asked.pop("token")
    try:
        served = ServedModel.load(model, ServedModelSettings.read(asked), os.environ.get("VLLM_API_KEY"))
        server = ModelServer(served, ServingAddress(token=token))
    except EnvportError as error:
        say(error={"code": error.code, "message": str(error)})
        return
    threading.Thread(target=_stop_with_input, args=(server,), daemon=True).start()
    server.run(lambda: say(url=server.url))


def _stop_with_input(server: ModelServer) -> None:
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
