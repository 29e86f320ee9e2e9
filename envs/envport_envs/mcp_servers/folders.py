"""The working folder of an episode: what it starts with, and what is left of it for scoring."""

from __future__ import annotations

import base64
import logging
import os
import shutil
import stat
from pathlib import Path
from typing import Any

from envport_envs.mcp_servers.tasks import TaskEntry

__all__ = ["contents", "copy_final", "fill"]

logger = logging.getLogger(__name__)

_MOST_BYTES = 256 * 2**20
_MOST_FILES = 10_000
_MOST_SHOWN = 2**20


def fill(folder: Path, entry: TaskEntry) -> list[str]:
    """Put what a task starts with into the working folder.

    Returns:
        The paths of the files, in order.
    """
    if entry.folder is not None:
        shutil.copytree(entry.folder, folder, dirs_exist_ok=True)
    for path, text in entry.files.items():
        there = folder / path
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text, "utf-8")
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def copy_final(folder: Path, copy: Path) -> None:
    """Copy the folders and regular files of a working folder, at most 256 MiB and 10,000 of them.

    Links are left out: one that the player made could lead to files of this machine, such as the expected answer.
    """
    copy.mkdir()
    left, count = _MOST_BYTES, 0
    for root, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        there = copy / os.path.relpath(root, folder)
        folders.sort()
        count += len(folders) + len(files)
        for name in folders:
            if not os.path.islink(os.path.join(root, name)):
                (there / name).mkdir()
        for name in sorted(files):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                continue
            if count > _MOST_FILES or status.st_size > left:
                logger.warning("%s is too much to be scored: what is left is left out", os.path.join(root, name))
                return
            left -= status.st_size
            _copy(name, descriptor, there / name, status)


def _copy(name: str, descriptor: int, there: Path, status: os.stat_result) -> None:
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
    with open(opened, "rb") as source:
        # A file may grow meanwhile, but no more than this is copied.
        there.write_bytes(source.read(status.st_size))
    there.chmod(0o755 if status.st_mode & stat.S_IXUSR else 0o644)


def contents(folder: Path) -> dict[str, Any]:
    """The files of a folder by path: text, or base64 of what is not text; only the size of files above 1 MiB."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, size = str(path.relative_to(folder)), path.stat().st_size
        if size > _MOST_SHOWN:
            found[name] = {"bytes": size}
            continue
        data = path.read_bytes()
        try:
            found[name] = data.decode("utf-8")
        except UnicodeDecodeError:
            found[name] = {"base64": base64.b64encode(data).decode("ascii")}
    return found
