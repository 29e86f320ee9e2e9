"""Does what a Dockerfile says, in a folder and a virtual environment: there is no Docker where the tests run."""

from __future__ import annotations

import fnmatch
import json
import os
import re
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


def instructions(folder: Path) -> Iterator[tuple[str, str]]:
    """The instructions of the Dockerfile in a folder, each with its text in one line."""
    text = (folder / "Dockerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return ((line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines if line)


class Image:
    """What a Dockerfile makes.

    Args:
        context: The folder with the Dockerfile.
        root: An empty folder, for the file system of the image.
        own_python: Make a virtual environment and run the `RUN` steps in it; else use that of the tests, and run none.
    """

    def __init__(self, context: Path, root: Path, *, own_python: bool = False):
        self.root = root
        self.variables: dict[str, str] = {}
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
        for what, text in instructions(context):
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
            case "RUN" if not text.startswith(_SYSTEM) and self._own_python:
                done = subprocess.run(
                    ["sh", "-c", text], cwd=self.folder, env=self.environ(), timeout=patient(900), check=False
                )
                assert done.returncode == 0, text
            case "RUN":
                assert text.startswith((*_SYSTEM, "pip install ")), text
            case "ENV":
                name, _, value = text.partition("=")
                self.variables[name] = value.replace("/app", str(self.folder))
            case "EXPOSE":
                self.exposed = text
            case "HEALTHCHECK":
                self.health = json.loads(text.partition("CMD ")[2])
            case "CMD":
                self.start = text
            case _:
                assert what == "USER", what
                assert text not in ("root", "0")

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
                    whole = where if target.endswith(".") else where.parent / where.name
                    shutil.copytree(path, whole, dirs_exist_ok=True, ignore=lambda _, names: _of(names, ignored))
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
        at = f"--port {self._image.exposed}"
        assert at in self._image.start
        return ["sh", "-c", self._image.start.replace(at, "--port 0")]
