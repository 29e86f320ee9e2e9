"""`envport build`."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from envport.cli import console
from envport.cli.building.contents import CLIENT, Contents, Package, contents_of
from envport.cli.building.distributions import wheel_of
from envport.cli.building.space import PORT, dockerfile, environment_file, ignored, image_name, page
from envport.cli.loading import load_environment, with_file
from envport.cli.options import Reference
from envport.definition import EnvironmentDefinition
from envport.environment_file import EnvironmentFile
from envport.errors import ConfigurationError
from envport.references import ParsedReference

__all__ = ["build"]

# The settings of [serve] that are copied: those that do not concern addresses and access.
_KEPT = (
    "max-episodes",
    "max-episodes-per-principal",
    "max-episodes-per-environment",
    "idle-seconds",
    "wait-seconds",
    "runtime",
    "drain-seconds",
    "shutdown-seconds",
    "log-level",
    "log-format",
)
_NAMES = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True)
class _Subject:
    """What is built.

    Attributes:
        name: Name of the environment.
        base: The folder that relative paths begin at.
        entry: Its table for an `envport.toml`.
        serve: Settings of the file that it comes from.
        source: The reference that is loaded here.
    """

    name: str | None
    base: Path
    entry: Mapping[str, Any]
    serve: Mapping[str, Any]
    source: str

    @classmethod
    def of(cls, reference: str) -> _Subject:
        """Read a reference, and the table of a file if it is the name of one."""
        whole = ParsedReference.parse(with_file(reference))
        target, _ = whole.plain()
        path, _, name = target.partition(":")
        if path.endswith(".toml"):
            file = EnvironmentFile.read(Path(path))
            # Also says what is wrong with it.
            file.environment(name)
            return cls(whole.alias or name, file.path.resolve().parent, file.tables[name], file.serve, reference)
        base, target = Path.cwd(), whole.target
        if path.endswith(".py"):
            base, target = _placed(Path(path), target.partition(":")[2])
        return cls(whole.alias, base, {"reference": target}, {}, reference)

    @property
    def texts(self) -> list[str]:
        """What may name files, beside the reference."""
        return [*_texts(self.entry.get("options")), *_texts(self.entry.get("score"))]


def _placed(file: Path, attribute: str) -> tuple[Path, str]:
    """The folder that holds a file's package, and the reference from there."""
    file, base = file.resolve(), Path.cwd().resolve()
    if not file.is_relative_to(base):
        base = file.parent
        while (base / "__init__.py").is_file():
            base = base.parent
    return base, f"./{file.relative_to(base).as_posix()}:{attribute}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for one in cast("Any", value.values() if isinstance(value, Mapping) else value):
            yield from _texts(one)


def build(
    reference: Reference,
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to make.", show_default=False)],
    include: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="A file or folder that it needs too, in the current one. May be repeated."),
    ] = None,
    requirement: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A further Python package, such as 'numpy>=2'. May be repeated."),
    ] = None,
    apt: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A further package of Debian. May be repeated.")
    ] = None,
    envport: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What installs envport: 'envport==0.1.0', or the path of a wheel. The same as here if not given: its "
            "version, or a wheel that is built now if it was installed from a folder.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty, and replace files of the same name.")
    ] = False,
) -> None:
    """Make a folder that is an image for Docker, and a Space of Hugging Face, with one environment."""
    for name in apt or ():
        if not _NAMES.fullmatch(name):
            raise typer.BadParameter(f"{name!r} is no name of a Debian package", param_hint="--apt")
    _check_output(output, force)
    subject = _Subject.of(reference)
    definition = load_environment(reference)
    included = [path.absolute() for path in include or ()]
    for path in included:
        if not path.exists():
            raise typer.BadParameter(f"there is no {path}", param_hint="--include")
    contents = contents_of(definition, subject.entry["reference"], subject.texts, subject.base, included)
    with tempfile.TemporaryDirectory(prefix="envport-build-") as made:
        folder = Path(made)
        _copy(contents, folder, output.resolve())
        installed = [*_requirements(contents, folder, envport), *(requirement or ())]
        secrets = _secrets(subject)
        texts = {
            "Dockerfile": dockerfile(contents, apt or ()),
            "README.md": page(definition, contents, secrets),
            "requirements.txt": "\n".join((*installed, "")),
            "envport.toml": environment_file(definition.name, *_tables(subject)),
            ".dockerignore": ignored(),
        }
        if any(folder.glob("*.whl")):
            # Hugging Face refuses binary files that Git holds itself.
            texts[".gitattributes"] = "*.whl filter=lfs diff=lfs merge=lfs -text\n"
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8", newline="\n")
        _place(folder, output)
    _tell(definition, output, contents, installed, [key for key in subject.serve if key not in _KEPT])


def _check_output(output: Path, force: bool) -> None:
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise ConfigurationError(f"{output} is there and is no folder: give another --output")
    if output.exists() and any(output.iterdir()) and not force:
        raise ConfigurationError(f"the folder {output} is not empty: give another --output, or --force to write there")


def _copy(contents: Contents, folder: Path, output: Path) -> None:
    """Copy the author's files. What tools left beside them stays there, and so does the output itself."""

    def left(where: str, names: list[str]) -> set[str]:
        unwanted = {name for name in names if name == "__pycache__" or name.startswith(".")}
        return unwanted | {name for name in names if Path(where, name).resolve() == output}

    for path, source in contents.files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=left, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)


def _requirements(contents: Contents, folder: Path, envport: str | None) -> Iterator[str]:
    """The lines of requirements.txt; wheels that they name are put into the folder."""
    ours, *others = contents.packages
    extras = f"[{','.join(ours.extras)}]" if ours.extras else ""
    if envport is None:
        yield _installed(ours, extras, folder)
    elif envport.endswith(".whl"):
        if not Path(envport).is_file():
            raise typer.BadParameter(f"there is no file {envport}", param_hint="--envport")
        yield f"./{Path(shutil.copy2(envport, folder)).name}{extras}"
    elif not envport.startswith("envport"):
        raise typer.BadParameter(f"{envport!r} is neither a wheel nor 'envport==VERSION'", param_hint="--envport")
    else:
        yield f"envport{extras}{envport.removeprefix('envport')}"
    for package in others:
        if package.name != CLIENT or envport is None or envport.endswith(".whl"):
            yield _installed(package, "", folder)


def _installed(package: Package, extras: str, folder: Path) -> str:
    origin = package.origin
    if origin.requirement is not None:
        return f"{package.name}{extras}{origin.requirement.removeprefix(package.name)}"
    return f"./{wheel_of(package.name, origin, folder)}{extras}"


def _tables(subject: _Subject) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return subject.entry, {key: value for key, value in subject.serve.items() if key in _KEPT}


def _secrets(subject: _Subject) -> list[str]:
    """The variables that its secrets come from."""
    sources: Mapping[str, Any] = subject.entry.get("secrets", {})
    for name, source in sources.items():
        if "variable" not in source:
            raise ConfigurationError(
                f"the secret {name!r} comes from a file, which an image must not hold: take it from a variable, "
                f'{name} = {{ variable = "NAME" }}'
            )
    return [source["variable"] for source in sources.values()]


def _place(made: Path, output: Path) -> None:
    try:
        shutil.copytree(made, output, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise ConfigurationError(f"{output} cannot be written: {error}") from None


def _tell(
    definition: EnvironmentDefinition, output: Path, contents: Contents, installed: list[str], dropped: list[str]
) -> None:
    console.heading(f"Made {output}: its README.md says how to start it, at Hugging Face and with Docker.")
    console.rows(
        [
            ("environment", definition.name),
            ("files", ", ".join(contents.files) or "none: it is in a package"),
            ("installs", ", ".join(installed)),
        ]
    )
    if contents.missing:
        names = ", ".join(contents.missing)
        console.note(f"Its files import {names}, of which nothing is installed here: --requirement adds packages.")
    if dropped:
        console.note(f"Of [serve], {', '.join(dropped)} stayed here: the container has its own address and tokens.")
    image = image_name(definition.name)
    console.command("docker", "build", "-t", image, str(output))
    console.command("docker", "run", "--rm", "-p", f"127.0.0.1:{PORT}:{PORT}", "-e", "ENVPORT_TOKEN", image)
