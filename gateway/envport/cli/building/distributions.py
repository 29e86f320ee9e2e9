"""Where an installed distribution came from, and how a container installs the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from envport.errors import ConfigurationError

__all__ = ["InstallSource", "source_of", "wheel_of"]


@dataclass(frozen=True)
class InstallSource:
    """Where a distribution came from.

    Attributes:
        requirement: What installs it, if pip can find it anywhere: from an index, or from a repository.
        folder: The folder of its source, if it was installed from one.
        wheel: Its wheel, if it was installed from a file.
    """

    requirement: str | None = None
    folder: Path | None = None
    wheel: Path | None = None


def source_of(distribution: Distribution, imported: Path | None) -> InstallSource:
    """Where a distribution came from, as the installer recorded it (PEP 610).

    Args:
        distribution: The distribution.
        imported: A file of it that was imported. One that lies elsewhere than the distribution is a source.
    """
    name, version = distribution.metadata["Name"], distribution.version
    recorded: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
    where = urlsplit(str(recorded.get("url", "")))
    if "vcs_info" in recorded:
        info = recorded["vcs_info"]
        return InstallSource(f"{name} @ {info['vcs']}+{recorded['url']}@{info['commit_id']}")
    if "archive_info" in recorded:
        return (
            InstallSource(f"{name} @ {recorded['url']}")
            if where.scheme != "file"
            else InstallSource(wheel=_path(where.path))
        )
    if "dir_info" in recorded:
        return InstallSource(folder=_path(where.path))
    installed = Path(str(distribution.locate_file(""))).resolve()
    if imported is not None and not imported.resolve().is_relative_to(installed) and (found := _project(imported)):
        return InstallSource(folder=found)
    return InstallSource(f"{name}=={version}")


def _path(url_path: str) -> Path:
    return Path(unquote(url_path))


def _project(file: Path) -> Path | None:
    """The nearest folder above that is a project which can be built."""
    return next((parent for parent in file.resolve().parents if (parent / "pyproject.toml").is_file()), None)


def wheel_of(name: str, origin: InstallSource, folder: Path) -> str:
    """Put the wheel of a distribution into a folder, and return its file name.

    Args:
        name: Name of the distribution.
        origin: Where it came from: a wheel, or the folder of its source.
        folder: Where to put it.

    Raises:
        ConfigurationError: It cannot be built, or the file that it was installed from is gone.
    """
    if origin.wheel is not None:
        if not origin.wheel.is_file():
            raise ConfigurationError(f"{name} was installed from {origin.wheel}, which is gone: put it there again")
        shutil.copy2(origin.wheel, folder)
        return origin.wheel.name
    if origin.folder is None or not origin.folder.is_dir():
        raise ConfigurationError(f"{name} was installed from {origin.folder}, which is gone: install it again")
    # A hidden folder of its own: the wheel that is wanted is then the only one there.
    made = folder / ".wheel"
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        done = subprocess.run(
            [*words, "--wheel-dir", str(made), str(origin.folder)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            why = re.sub(r"\s+", " ", done.stderr.strip())[-500:]
            raise ConfigurationError(f"the wheel of {name} cannot be built from {origin.folder}: {why}")
        (wheel,) = made.glob("*.whl")
        return wheel.replace(folder / wheel.name).name
    finally:
        shutil.rmtree(made, ignore_errors=True)
