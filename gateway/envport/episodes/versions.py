"""The environments that are served, and those that they have replaced, as long as episodes of them are live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envport.definition import EnvironmentDefinition

__all__ = ["Versions"]


class Versions:
    """Keeps each environment that is served, by name, and the ones before it.

    Args:
        environments: The environments that are served at first.

    Attributes:
        current: The environments that are served, by name. Changes when one is replaced.
    """

    def __init__(self, environments: Mapping[str, EnvironmentDefinition]):
        self.current = dict(environments)
        self._waiting: list[EnvironmentDefinition] = []
        # Runtimes identify environments by `id()`. Keep the replaced objects, so that no new object gets the same id.
        self._kept: list[EnvironmentDefinition] = []

    def replace(self, spec: EnvironmentDefinition) -> None:
        """Serve an environment in place of the one of the same name."""
        before = self.current[spec.name]
        self.current[spec.name] = spec
        self._waiting.append(before)
        self._kept.append(before)

    def is_current(self, spec: EnvironmentDefinition) -> bool:
        """Whether new episodes are of this one."""
        return self.current[spec.name] is spec

    @property
    def replaced(self) -> bool:
        """Whether any was replaced and may still be played."""
        return bool(self._waiting)

    def unused(self, played: Iterable[EnvironmentDefinition]) -> list[EnvironmentDefinition]:
        """Those that were replaced and that no live episode plays, each once.

        Args:
            played: What the live episodes play.
        """
        live = {id(spec) for spec in played}
        unused = [spec for spec in self._waiting if id(spec) not in live]
        self._waiting = [spec for spec in self._waiting if id(spec) in live]
        return unused
