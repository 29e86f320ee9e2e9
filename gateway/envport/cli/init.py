"""`envport init`."""

from __future__ import annotations

import importlib.util
import json
import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from envport.classes import installed
from envport.cli import console
from envport.cli.attachment import envport_command
from envport.cli.building.container import SANDBOX_PACKAGES, Container
from envport.errors import ConfigurationError

__all__ = ["init"]

_TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_LEFT_BY_TOOLS = re.compile(r"\..*_cache")
# The other folder of every package.
_TAKEN = ("tests",)
_PORT = 8000


class ProjectKind(Enum):
    """What a new package has in it."""

    GAME = "game"
    MCP = "mcp"
    WORKSPACE = "workspace"


@dataclass(frozen=True)
class _Template:
    """Files that are a package under a name of their own, so that they can be read, linted and tested as they are.

    Attributes:
        folder: Where the files are.
        package: The name of their package.
        copied: The files that its container needs, beside the package.
        packages: The Debian packages that its container needs.
    """

    folder: Path
    package: str
    copied: tuple[str, ...] = ()
    packages: tuple[str, ...] = SANDBOX_PACKAGES

    def files(self, name: str) -> Iterator[tuple[str, str]]:
        """The path and the text of each file, under another name."""
        new = {self.package: name, _camel(self.package): _camel(name)}
        names = re.compile("|".join(new))
        for path in sorted(self.folder.rglob("*")):
            where = path.relative_to(self.folder)
            if path.is_file() and not _LEFT_BY_TOOLS.fullmatch(where.parts[0]) and "__pycache__" not in where.parts:
                texts = (where.as_posix(), path.read_text("utf-8"))
                renamed = [names.sub(lambda found: new[found[0]], text) for text in texts]
                yield renamed[0], renamed[1]
        yield "Dockerfile", self._container(name).dockerfile()

    def _container(self, name: str) -> Container:
        copied = " ".join(("pyproject.toml", "README.md", *self.copied, "*.whl"))
        return Container(
            _PORT,
            (
                "# Wheels beside this file are found too, such as one of envport itself.",
                f"COPY {copied} ./",
                f"COPY {name} {name}",
                "RUN pip install --no-cache-dir --find-links . .",
            ),
            (
                f"ENTRYPOINT {json.dumps(['envport', 'serve', name, '--host', '0.0.0.0'])}",
                "# The name that clients call it by; arguments of docker run replace it.",
                'CMD ["--allowed-host", "localhost"]',
            ),
            self.packages,
        )


_KINDS = {
    ProjectKind.GAME: _Template(_TEMPLATES / "game", "my_game", packages=()),
    ProjectKind.MCP: _Template(_TEMPLATES / "mcp", "my_server", ("envport.toml", "tasks.toml")),
    ProjectKind.WORKSPACE: _Template(_TEMPLATES / "workspace", "my_workspace"),
}


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the folder, of its Python package and of the environment.")
    ],
    kind: Annotated[
        ProjectKind,
        typer.Option(
            help="A game; an MCP server of your own with tasks; or a workspace in which players run code against "
            "hidden tests."
        ),
    ] = ProjectKind.GAME,
) -> None:
    """Make a package with an environment of your own: it can be served, checked and tested at once."""
    _check_name(name)
    folder = Path(name)
    _write(folder, _KINDS[kind].files(name))
    program = envport_command()
    console.heading(f"Made {name}: its README.md says what is where.")
    console.command("cd", name)
    console.command(program, "check", name)
    console.command(program, "play", name)
    console.command(program, "serve")
    console.line("Its tests are run by pytest, in that folder. Install it with: pip install -e '.[dev]'")


def _check_name(name: str) -> None:
    def refuse(why: str) -> typer.BadParameter:
        return typer.BadParameter(f"{name!r} cannot be the name: {why}", param_hint="NAME")

    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise refuse(
            "it names a Python package, so it has to begin with a letter, to hold only letters, digits and '_', at "
            "most 64 of them, and to be no word of Python's own; my_game is one that works"
        )
    if name in installed():
        raise refuse("an installed environment has it; choose another one")
    if name in _TAKEN or name in sys.stdlib_module_names or _is_module(name):
        raise refuse("a Python module has it, which would be imported in its place; choose another one")


def _is_module(name: str) -> bool:
    found = importlib.util.find_spec(name)
    # An empty folder of that name in the current one is no module, though Python could import it.
    return found is not None and found.origin is not None


def _write(folder: Path, files: Iterator[tuple[str, str]]) -> None:
    """Write the files into a folder that is new or empty."""
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise ConfigurationError(f"{folder} is there and is no folder: choose another name, or move it away")
        if folder.exists() and any(folder.iterdir()):
            raise ConfigurationError(f"the folder {folder} is not empty: choose another name, or an empty folder")
        for path, text in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            # Fails where something appeared meanwhile: nothing is overwritten.
            with (folder / path).open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or folder} cannot be written: {error.strerror}") from None


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
