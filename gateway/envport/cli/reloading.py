"""`envport serve --reload`: loads environments again when their files change."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import sys
import sysconfig
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from envport.app import Gateway
from envport.cli.loading import load_environment
from envport.definition import EnvironmentDefinition
from envport.errors import EnvportError, MissingExtra
from envport.references import ParsedReference

try:
    from watchfiles import Change, DefaultFilter, awatch  # pyright: ignore[reportUnknownVariableType]
except ImportError:
    raise MissingExtra("--reload", "reload") from None

__all__ = ["Reloader", "Watched"]

logger = logging.getLogger(__name__)

_SUFFIXES = (".py", ".toml", ".jsonl")


@dataclass(frozen=True)
class Watched:
    """An environment that is loaded again when a file below one of its folders changes.

    Attributes:
        reference: What is loaded.
        folders: The folders of its source and of its `envport.toml`.
    """

    reference: str
    folders: frozenset[Path]

    @classmethod
    def of(cls, reference: str, spec: EnvironmentDefinition) -> Watched:
        """What to watch for an environment. Installed packages are not watched."""
        where = ParsedReference.parse(reference).where
        found = [Path(where).resolve()] if where.endswith(".toml") else []
        package = sys.modules.get(spec.cls.__module__.partition(".")[0])
        found += [Path(file).resolve() for file in (getattr(package, "__file__", None),) if file is not None]
        return cls(reference, frozenset(path.parent for path in found if not _installed(str(path))))

    def holds(self, path: Path) -> bool:
        """Whether a file is below one of its folders."""
        return any(path.is_relative_to(folder) for folder in self.folders)


class Reloader:
    """Loads environments again when their files change, and has the gateway serve them.

    Args:
        gateway: The gateway.
        watched: The environments.
        score: Function that scores final states, if one does.
    """

    def __init__(self, gateway: Gateway, watched: Iterable[Watched], score: str | None):
        self._gateway = gateway
        self._watched = list(watched)
        self._score = score

    @property
    def folders(self) -> list[Path]:
        """The folders that are watched."""
        return sorted({folder for one in self._watched for folder in one.folders})

    async def start(self) -> asyncio.Task[None]:
        """Watch from now on, in a task."""
        changes = awatch(*self.folders, watch_filter=_Sources())
        task = asyncio.create_task(self._follow(changes))
        # Its first step begins to watch, so that no change after this is missed.
        await asyncio.sleep(0)
        return task

    async def _follow(self, changes: AsyncGenerator[set[tuple[Change, str]]]) -> None:
        async for found in changes:
            paths = {Path(path) for _, path in found}
            concerned = [one for one in self._watched if any(map(one.holds, paths))]
            try:
                await self._reload(concerned, paths)
            except EnvportError as error:
                logger.error("not reloaded: %s. The environment is served as it was.", str(error).rstrip("."))
            except Exception:
                logger.exception("not reloaded. The environment is served as it was.")

    async def _reload(self, concerned: list[Watched], paths: set[Path]) -> None:
        loaded = await asyncio.to_thread(self._load, concerned, paths)
        for spec in loaded:
            before = self._gateway.table.environments[spec.name]
            await self._gateway.replace(spec)
            tools = "" if spec.fingerprint == before.fingerprint else ", and its tools have changed"
            logger.info("environment %s was reloaded: new episodes are of the new one%s", spec.name, tools)

    def _load(self, concerned: list[Watched], paths: set[Path]) -> list[EnvironmentDefinition]:
        """Import the environments anew. If one of them fails, none is changed."""
        for path in paths:
            # Python takes a compiled file for current if the time in whole seconds and the size are the same.
            with suppress(FileNotFoundError, NotImplementedError):
                Path(importlib.util.cache_from_source(str(path))).unlink()
        with _imported_anew(self._modules_of(concerned)):
            loaded = [load_environment(one.reference, score=self._score) for one in concerned]
            for spec in loaded:
                spec.check()
        return loaded

    def _modules_of(self, concerned: list[Watched]) -> dict[str, ModuleType]:
        """The modules that belong to these environments and to no other, but for envport's own, which runs."""
        others = [one for one in self._watched if one not in concerned]
        found: dict[str, ModuleType] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file is None or name == "__main__" or name.partition(".")[0] == "envport" or _installed(file):
                continue
            path = Path(file).resolve()
            if any(one.holds(path) for one in concerned) and not any(one.holds(path) for one in others):
                found[name] = module
        return found


class _Sources(DefaultFilter):
    """The files that an environment is written in. Without hidden ones, caches and virtual environments."""

    def __call__(self, change: Change, path: str) -> bool:
        return path.endswith(_SUFFIXES) and super().__call__(change, path)


def _installed(file: str) -> bool:
    """Whether a file came with Python or was installed."""
    return "/site-packages/" in Path(file).as_posix() or file.startswith(_places())


@cache
def _places() -> tuple[str, ...]:
    found = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(f"{place}{os.sep}" for one in found for place in {one, one.resolve()})


@contextmanager
def _imported_anew(modules: Mapping[str, ModuleType]) -> Generator[None]:
    """A context in which these modules are imported again. After an error, the earlier modules are restored."""
    before = set(sys.modules)
    for name in modules:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    try:
        yield
    except BaseException:
        for name in set(sys.modules) - before:
            del sys.modules[name]
        sys.modules.update(modules)
        raise
