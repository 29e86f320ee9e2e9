"""An environment that loses some of its episodes, until a file says that all is well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness import running

from envport import Environment, Step, Task, UpstreamLost, tool
from envport.registry import EnvironmentDefinition


class Lossy(Environment):
    """Every second seed loses its episode; of the others, some are worth 1 and the rest less than nothing."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._seed = seed
        return "Look."

    @tool
    def look(self) -> Step[str]:
        """Look."""
        if self._seed % 2 == 0 and not Path("well").exists():
            raise UpstreamLost("the browser is gone")
        return Step("seen", reward=1.0 if self._seed % 3 else -2.0, terminated=True)


@contextlib.contextmanager
def lossy() -> Iterator[str]:
    """Its address at a gateway."""
    with running(EnvironmentDefinition("lossy", Lossy, {})) as gateway:
        yield f"{gateway.url}/environments/lossy"
