"""Programs of npm packages, as `npx` runs them: installed once, then started without `npx`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from envport.errors import ConfigurationError

__all__ = ["run_by_npx"]

_INSTALL_SECONDS = 240.0
_YES = ("-y", "--yes")
_PACKAGE = ("-p", "--package")


def run_by_npx(npx: str, words: Sequence[str]) -> list[str]:
    """The command that `npx` would run, with the path of its program.

    `npx` takes a second to find out what it did before, and wants to write to its cache, which a sandbox forbids.

    Args:
        npx: The program `npx`.
        words: Its arguments: options, the package, and the arguments of the package's program.

    Raises:
        ConfigurationError: The package cannot be installed, or it is not clear which program is meant.
    """
    package, program, arguments = _parsed(words)
    try:
        done = subprocess.run(
            [npx, "--yes", f"--package={package}", "-c", 'printf "%s" "$PATH"'],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"npx did not install {package} within {_INSTALL_SECONDS:g} s") from None
    if done.returncode != 0:
        raise ConfigurationError(f"npx could not install {package}:\n{done.stderr.strip()[-2000:]}")
    name = _name(package)
    for folder in map(Path, done.stdout.split(os.pathsep)):
        manifest = folder.parent / name / "package.json"
        if folder.name == ".bin" and manifest.is_file():
            return [str(folder / (program or _program(manifest, name))), *arguments]
    raise ConfigurationError(f"npx installed {package}, but its folder was not found: give the path of its program")


def _parsed(words: Sequence[str]) -> tuple[str, str | None, list[str]]:
    """The package, the program if it is named, and the program's arguments."""
    left, package = [*words], None
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if option in _PACKAGE and left:
            package = left.pop(0)
        elif option.startswith("--package="):
            package = option.partition("=")[2]
        elif option == "--":
            break
        elif option not in _YES:
            raise ConfigurationError(
                f"npx {option} is not known here; allowed: -y, --yes, -p PACKAGE, --package=PACKAGE"
            )
    if not left:
        raise ConfigurationError("npx needs a package to run")
    first, *arguments = left
    return (first, None, arguments) if package is None else (package, first, arguments)


def _name(package: str) -> str:
    """The name of a package without its version: `@scope/name@1.2`."""
    scope, slash, rest = package.rpartition("/") if package.startswith("@") else ("", "", package)
    return f"{scope}{slash}{rest.partition('@')[0]}"


def _program(manifest: Path, name: str) -> str:
    """The program of a package that has one, or one of the package's own name."""
    short = name.rpartition("/")[2]
    declared: Any = json.loads(manifest.read_text("utf-8")).get("bin")
    if isinstance(declared, str):
        return short
    programs = [*cast("dict[str, str]", declared)] if isinstance(declared, dict) else []
    if len(programs) == 1:
        return programs[0]
    if short in programs:
        return short
    raise ConfigurationError(
        f"the npm package {name} has the programs {', '.join(programs) or 'none'}: choose one with "
        f"npx -y --package={name} PROGRAM"
    )
