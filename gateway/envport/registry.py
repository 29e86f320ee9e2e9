"""From a reference to an environment that can be served (see `envport.references`)."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from envport.classes import find_class
from envport.definition import EnvironmentDefinition
from envport.environment_file import EnvironmentFile
from envport.errors import (
    ConfigurationError,
    EnvironmentNotFound,
    InvalidEnvironment,
    InvalidOption,
)
from envport.given_options import OptionTypes
from envport.modules import import_module
from envport.references import ParsedReference, SchemeText, is_address
from envport.scoring import Scorer

__all__ = ["EnvironmentDefinition", "Scheme", "load", "scheme_of", "schemes"]

_SCHEMES = "envport.schemes"
_RESERVED = ("http", "https")
_INSPECTION_SECONDS = 300.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Scheme(Protocol):
    """What a package registers under the entry point group `envport.schemes`, by the scheme as its name.

    The definition has to name an importable class whose options are plain data, because episodes may run in other
    processes. So a scheme inspects the foreign system once, and gives what it found to the class in
    `unshown_options`. Import an extra in the module of the scheme, and raise `MissingExtra` if it is not installed.
    """

    def __call__(self, rest: str, /, **options: Any) -> EnvironmentDefinition | Awaitable[EnvironmentDefinition]:
        """Make an environment of a reference. May be async, for a costly inspection.

        Args:
            rest: The text after the colon, without quotes.
            **options: The options of the reference. A scheme declares them as keyword-only parameters with types;
                others are refused.

        Returns:
            The environment. Its name is the one to serve it under if the reference gives no other.

        Raises:
            ConfigurationError: The rest names nothing that can be served.
        """
        ...


def schemes() -> dict[str, EntryPoint]:
    """The entry points of the schemes that installed packages register, by scheme.

    Raises:
        ConfigurationError: Two packages register the same scheme.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=_SCHEMES), key=lambda point: point.name):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise ConfigurationError(
                f"two packages register the scheme {point.name!r}: {other.value} and {point.value}; remove one of them"
            )
    return found


def scheme_of(point: EntryPoint) -> Scheme:
    """The scheme of an entry point.

    Raises:
        MissingExtra: It needs a package that is not installed.
    """
    scheme: Any = import_module(point.module)
    for part in point.attr.split("."):
        scheme = getattr(scheme, part)
    return cast("Scheme", scheme)


def load(
    reference: str, name: str | None = None, score: str | None = None, options: Mapping[str, Any] | None = None
) -> EnvironmentDefinition:
    """Find an environment, and check that it can be served.

    Args:
        reference: What to load: `NAME`, `package.module:Class`, `./path/file.py:Class`, `scheme:rest` or
            `./envport.toml:name`, optionally
            with options (`catch?rows=8&columns=4`), optionally with another name to serve it under
            (`small=catch?rows=5`). See `envport.references`.
        name: The name to serve it under. Overrides the name in the reference.
        score: Function that scores final states: `package.module:function` or `./path/file.py:function`.
        options: Options as data, instead of those in the reference.

    Raises:
        EnvironmentNotFound: There is nothing at the reference.
        InvalidEnvironment: The object at the reference is not a usable environment.
        InvalidOption: An option is unknown or has a bad value.
        MissingExtra: The environment needs a package that is not installed.
    """
    return _load(reference, name, score, options, None)


def _load(
    reference: str, name: str | None, score: str | None, options: Mapping[str, Any] | None, folder: Path | None
) -> EnvironmentDefinition:
    parsed = ParsedReference.parse(reference)
    if is_address(parsed.target):
        raise EnvironmentNotFound(
            f"{parsed.target} is an address, and a reference is needed here; a scheme precedes an address that it is "
            "to use, as in mcp:http://host/mcp"
        )
    served = name or parsed.alias
    if served is not None:
        # Before the foreign system of a scheme is looked at.
        _require_name(served)
    if parsed.where.endswith(".toml"):
        return _by_file(parsed, served, score, options)
    known = schemes()
    if parsed.may_have_scheme and parsed.where in known and parsed.where not in _RESERVED:
        spec = _by_scheme(known[parsed.where], parsed, options, folder)
    else:
        spec = _by_class(parsed, known, served, options, folder)
    if served is not None and served != spec.name:
        spec = replace(spec, name=served)
    if score is not None:
        spec = replace(spec, scorer=Scorer.find(score))
    _require_name(spec.name)
    spec.check()
    return spec


def _by_file(
    parsed: ParsedReference, served: str | None, score: str | None, options: Mapping[str, Any] | None
) -> EnvironmentDefinition:
    target, query = parsed.plain()
    path, _, name = target.partition(":")
    if query or options is not None:
        raise InvalidOption(f"the options of {name!r} are in {path}: give none in the reference")
    file = EnvironmentFile.read(Path(path))
    table = file.environment(name)
    spec = _load(table.reference, served or name, score or table.score, table.options, file.path.resolve().parent)
    return replace(spec, limits=table.limits, secrets=table.secrets)


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot name an environment: use letters, digits, '.', '_' and '-', at most 64 of them; "
            "another name can precede the reference: NAME=REFERENCE"
        )


def _by_class(
    parsed: ParsedReference,
    known: Mapping[str, Any],
    served: str | None,
    given: Mapping[str, Any] | None,
    folder: Path | None,
) -> EnvironmentDefinition:
    target, query = parsed.plain()
    if parsed.may_have_scheme and not parsed.target.partition(":")[2].partition("?")[0].isidentifier():
        raise EnvironmentNotFound(
            f"there is no scheme {parsed.where!r}; installed: {', '.join(known) or 'none'}; install the package that "
            "registers it, or give NAME, package.module:Class or ./path/file.py:Class"
        )
    try:
        cls, default_name = find_class(target)
    except EnvironmentNotFound as error:
        if parsed.may_have_scheme and str(error) == f"there is no module {parsed.where!r}":
            raise EnvironmentNotFound(f"{error}, and no scheme; installed: {', '.join(known) or 'none'}") from None
        with suppress(ConfigurationError):
            if (file := EnvironmentFile.in_folder()) is not None and target in file.tables:
                error.args = (f"{error}; write ./{file.path}:{target} for the one in {file.path}",)
        raise
    name = served or default_name
    types = OptionTypes.of_class(f"environment {name!r}", cls)
    options = _options(types, query, given, folder)
    types.require(options, name)
    return EnvironmentDefinition(name, cls, options)


def _by_scheme(
    point: EntryPoint, parsed: ParsedReference, given: Mapping[str, Any] | None, folder: Path | None
) -> EnvironmentDefinition:
    scheme = scheme_of(point)
    types = OptionTypes.of_function(f"scheme {point.name!r}", scheme)
    text = SchemeText.read(point.name, parsed.target.partition(":")[2], types.hints)
    _refuse_ambiguity(point.name, text)
    options = _options(types, text.query, given, folder)
    types.require(options, f'{point.name}:"..."')
    made = _awaited(scheme(text.rest, **options), point.name)
    if not isinstance(made, EnvironmentDefinition):
        raise InvalidEnvironment(f"scheme {point.name!r} gave {made!r}, not an EnvironmentDefinition")
    return made


def _options(types: OptionTypes, query: str, given: Mapping[str, Any] | None, folder: Path | None) -> dict[str, Any]:
    if given is None:
        return types.from_text(query)
    if query:
        raise InvalidOption(f"{types.whose}: its options are given twice, after a question mark and as data")
    return types.from_data(given, folder)


def _refuse_ambiguity(scheme: str, text: SchemeText) -> None:
    """Refuse `scheme:Class` if a module of that name defines the class. Does not import the module."""
    if text.quoted or not text.rest.isidentifier():
        return
    found = importlib.util.find_spec(scheme)
    source = Path(found.origin) if found is not None and found.origin else None
    if source is None or source.suffix != ".py":
        return
    if re.search(rf"^class {text.rest}\b", source.read_text("utf-8", "replace"), re.MULTILINE):
        raise InvalidOption(
            f"{scheme}:{text.rest} is both the scheme {scheme!r} and a class of the module {scheme!r}: write "
            f'{scheme}:"{text.rest}" for the scheme, and {source}:{text.rest} for the class'
        )


def _awaited(made: Any, scheme: str) -> Any:
    """The result of a scheme. If it is awaitable, waits for it in an event loop of its own."""
    if not inspect.isawaitable(made):
        return made
    try:
        return _run(lambda: asyncio.run(_in_time(made)))
    except TimeoutError:
        raise ConfigurationError(
            f"scheme {scheme!r} did not make an environment within {_INSPECTION_SECONDS:g} s"
        ) from None


async def _in_time(made: Awaitable[Any]) -> Any:
    async with asyncio.timeout(_INSPECTION_SECONDS):
        return await made


def _run(work: Callable[[], Any]) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    # The caller runs an event loop, in which no other can run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()
