"""Reads the Dockerfiles of tasks that need no image of their own: a plain system, folders, variables, copied files."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CopiedFile", "ImageNeeded", "Layout", "read_dockerfile"]

_PLAIN_SYSTEMS = ("ubuntu", "debian", "python", "bash", "busybox", "alpine")
_WITHOUT_EFFECT = ("LABEL", "CMD", "EXPOSE", "MAINTAINER", "STOPSIGNAL")


class ImageNeeded(Exception):
    """A Dockerfile does more than a sandbox can do. The message says what, and in which line."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file that is copied into the machine.

    Attributes:
        source: Where it is on this machine.
        path: Absolute path in the task's machine.
        executable: Whether it is a program.
    """

    source: Path
    path: str
    executable: bool


@dataclass(slots=True)
class Layout:
    """What a Dockerfile makes of a plain system.

    Attributes:
        workdir: The working folder.
        folders: Folders that are made.
        variables: Environment variables.
        files: Files that are copied.
    """

    workdir: str = "/"
    folders: list[str] = field(default_factory=list[str])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    files: list[CopiedFile] = field(default_factory=list[CopiedFile])


def read_dockerfile(path: Path) -> Layout:
    """Read a Dockerfile.

    Args:
        path: The file. What it copies is beside it.

    Raises:
        ImageNeeded: It does more than to choose a plain system, make folders, set variables and copy files.
    """
    layout = Layout()
    for number, instruction, rest in _instructions(path.read_text("utf-8")):
        reader = _READERS.get(instruction)
        if instruction in _WITHOUT_EFFECT:
            continue
        try:
            if reader is None:
                raise ImageNeeded("it is more than choosing a plain system, making folders, and copying files")
            reader(layout, rest, path.parent)
        except (ImageNeeded, ValueError) as error:
            shown = " ".join(f"{instruction} {rest}".split())
            raise ImageNeeded(f"line {number} of its Dockerfile, {shown[:100]!r}: {error}") from None
    return layout


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """The number of the first line, the name and the rest of each instruction."""
    begun: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        first = first if begun else number
        begun.append(line.rstrip().removesuffix("\\"))
        if not line.rstrip().endswith("\\"):
            name, _, rest = " ".join(begun).strip().partition(" ")
            yield first, name.upper(), rest.strip()
            begun = []


def _from(layout: Layout, rest: str, context: Path) -> None:
    name = rest.split("@")[0].split(":")[0].removeprefix("docker.io/").removeprefix("library/")
    if name not in _PLAIN_SYSTEMS:
        raise ImageNeeded(f"it is an image of its own; allowed: {', '.join(_PLAIN_SYSTEMS)}")


def _workdir(layout: Layout, rest: str, context: Path) -> None:
    layout.workdir = _absolute(layout, rest)
    layout.folders.append(layout.workdir)


def _env(layout: Layout, rest: str, context: Path) -> None:
    if "$" in rest:
        raise ImageNeeded("it refers to variables of the image")
    name, _, value = rest.partition(" ")
    words = shlex.split(rest) if "=" in name else [f"{name}={value.strip()}"]
    for word in words:
        key, _, value = word.partition("=")
        layout.variables[key] = value


def _run(layout: Layout, rest: str, context: Path) -> None:
    for command in rest.split("&&"):
        words = shlex.split(command)
        if words[:2] != ["mkdir", "-p"] or len(words) < 3 or re.search(r"[;|<>$`*?{}&]", command):
            raise ImageNeeded("it runs a program in the image; allowed: mkdir -p")
        layout.folders += [_absolute(layout, word) for word in words[2:]]


def _copy(layout: Layout, rest: str, context: Path) -> None:
    words: list[str] = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    options = [word for word in words if word.startswith("--")]
    *sources, target = words[len(options) :]
    if any(not option.startswith(("--chown=", "--chmod=")) for option in options):
        raise ImageNeeded("it takes an option that only an image has; allowed: --chown and --chmod")
    runs = any(option.startswith("--chmod=") and _makes_executable(option) for option in options)
    where = _absolute(layout, target)
    found = [path for source in sources for path in _beside(context, source)]
    into = target.endswith(("/", ".")) or len(found) > 1 or found[0].is_dir() or where in layout.folders
    if into:
        layout.folders.append(where)
    for path in found:
        layout.files += _copied(path, where, into, runs)


def _beside(context: Path, source: str) -> list[Path]:
    pattern = posixpath.normpath(source.lstrip("/") or ".")
    found = [context] if pattern == "." else sorted(context.glob(pattern))
    if not found or ".." in pattern.split("/"):
        raise ImageNeeded(f"there is no {source!r} beside it")
    return found


def _copied(path: Path, where: str, into: bool, runs: bool) -> Iterator[CopiedFile]:
    # A folder's content is copied, and never the folder itself.
    inside = [it for it in sorted(path.rglob("*")) if it.is_file()] if path.is_dir() else [path]
    for file in inside:
        relative = file.relative_to(path).as_posix() if path.is_dir() else file.name
        executable = runs or bool(file.stat().st_mode & 0o111)
        yield CopiedFile(file, posixpath.normpath(posixpath.join(where, relative) if into else where), executable)


def _makes_executable(option: str) -> bool:
    mode = option.partition("=")[2]
    return "x" in mode or any(digit in "1357" for digit in mode[-3:])


def _user(layout: Layout, rest: str, context: Path) -> None:
    if rest not in ("root", "0"):
        raise ImageNeeded("it is a user of the image")


def _entrypoint(layout: Layout, rest: str, context: Path) -> None:
    if rest.replace(" ", "") != "[]":
        raise ImageNeeded("it is a program that the image starts")


def _absolute(layout: Layout, path: str) -> str:
    if "$" in path:
        raise ImageNeeded("it refers to variables of the image")
    return posixpath.normpath(posixpath.join(layout.workdir, path))


_READERS: dict[str, Callable[[Layout, str, Path], None]] = {
    "FROM": _from,
    "WORKDIR": _workdir,
    "ENV": _env,
    "RUN": _run,
    "COPY": _copy,
    "USER": _user,
    "ENTRYPOINT": _entrypoint,
}
