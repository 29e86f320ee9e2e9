"""Does what a Dockerfile says, in a folder and a virtual environment: there is no Docker where the tests run."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from command_line import Served, command, environment
from patience import patient

__all__ = ["Image", "Started", "instructions"]

# What belongs to the image's system, and not to the virtual environment.
_SYSTEM = ("useradd ", "apt-get ")


def instructions(file: Path) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile, each with its text in one line."""
    text = file.read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return ((line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines if line)


class Image:
    """What a Dockerfile makes.

    Args:
        context: The folder that is built.
        root: Where the file system of the image is made.
        own_python: Make a virtual environment and run the `RUN` steps in it; else use that of the tests, and run none.
        file: The Dockerfile, if it is elsewhere.
        arguments: Build arguments, in place of those of the Dockerfile.
    """

    def __init__(
        self, context: Path, root: Path, *, own_python: bool = False, file: Path | None = None, **arguments: str
    ):
        self.root = root
        self.variables: dict[str, str] = {}
        self.arguments = arguments
        self.entry: list[str] = []
        self.start = ""
        self.exposed = ""
        self.health: list[str] = []
        self._programs = root / "programs"
        self._context = context
        self._own_python = own_python
        root.mkdir()
        if own_python:
            venv.create(root / "venv", with_pip=True)
            self._programs = root / "venv/bin"
        else:
            self._programs.mkdir()
            shim = self._programs / "envport"
            shim.write_text(f'#!/bin/sh\nexec {" ".join(command())} "$@"\n')
            shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
        self.folder = root
        for what, text in instructions(file or context / "Dockerfile"):
            self._do(what, text)

    def _do(self, what: str, text: str) -> None:
        match what:
            case "FROM":
                assert text == f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
            case "WORKDIR":
                self.folder = self.root / text.lstrip("/")
                self.folder.mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(*text.split())
            case "RUN":
                self._run(text)
            case "ENV":
                name, _, value = text.partition("=")
                self.variables[name] = value.replace("/app", str(self.folder))
            case "ARG":
                name, _, value = text.partition("=")
                self.arguments.setdefault(name, value)
            case _:
                self._describe(what, text)

    def _describe(self, what: str, text: str) -> None:
        """What an instruction says of the container that the image is started in."""
        match what:
            case "EXPOSE":
                self.exposed = text
            case "HEALTHCHECK":
                self.health = json.loads(text.partition("CMD ")[2])
            case "ENTRYPOINT":
                self.entry = json.loads(text)
            case "CMD":
                self.start = shlex.join([*self.entry, *json.loads(text)]) if self.entry else text
            case _:
                assert what == "USER", what
                assert text not in ("root", "0")

    def _run(self, text: str) -> None:
        if text.startswith(_SYSTEM) or not self._own_python:
            assert text.startswith((*_SYSTEM, "pip install ")), text
            return
        done = subprocess.run(
            ["sh", "-c", text],
            cwd=self.folder,
            env=self.environ(**self.arguments),
            timeout=patient(900),
            check=False,
        )
        assert done.returncode == 0, text

    def _copy(self, *words: str) -> None:
        *sources, target = words
        file = self._context / ".dockerignore"
        ignored = file.read_text().split() if file.is_file() else []
        where = self.folder / target
        for pattern in sources:
            found = [self._context] if pattern == "." else [*self._context.glob(pattern)]
            # As Docker has it: a pattern may match nothing, a name may not.
            assert found or "*" in pattern, pattern
            for path in found:
                if path.is_dir():
                    shutil.copytree(path, where, dirs_exist_ok=True, ignore=lambda _, names: _of(names, ignored))
                elif not _of([path.name], ignored):
                    shutil.copy2(path, where)

    def environ(self, **variables: str) -> dict[str, str]:
        """The variables of its processes."""
        path = f"{self._programs}:{os.environ['PATH']}"
        return {**environment(), **self.variables, "PATH": path, **variables}


def _of(names: list[str], patterns: list[str]) -> set[str]:
    return {name for name in names if any(fnmatch.fnmatch(name, it.removeprefix("**/")) for it in patterns)}


class Started(Served):
    """What the `CMD` of an image starts, at a free port."""

    def __init__(self, image: Image, **variables: str):
        super().__init__(cwd=image.folder, **{**image.environ(), **variables})
        self._image = image

    def _command(self) -> list[str]:
        start, at = self._image.start, f"--port {self._image.exposed}"
        # A container has its ports for itself.
        start = start.replace(at, "--port 0") if at in start else f"{start} --port 0"
        return ["sh", "-c", start]
