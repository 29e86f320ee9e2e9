"""Runs tasks that need no image of their own in the sandbox of players' code."""

from __future__ import annotations

import json
import math
import os
import posixpath
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from envport import PlayerCode, PlayerLimits, ToolError, Workspace
from envport_envs.harbor.dockerfile import ImageNeeded, Layout, read_dockerfile
from envport_envs.harbor.task_folder import HarborTask
from envport_envs.workspace.terminal import MOST_SHOWN, Terminal

__all__ = ["SandboxRuntime"]

_WORK = "/work"
_LOGS, _VERIFIER_LOGS = "/logs", "/logs/verifier"
_DEFAULT_WORKDIR = "/app"
# What the sandbox has already, with Python.
_SYSTEM = frozenset(
    ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "sys", "dev", "tmp", "work", "run")
) | {Path(sys.base_prefix).parts[1], Path(os.path.realpath(sys.base_prefix)).parts[1]}
_DEFAULT_MEMORY, _DEFAULT_DISK, _MOST_DISK = 2048.0, 256.0, 1024.0
_MOST_STATE = 48 * 2**20
_COPY_SECONDS = 60.0
_MOST_REWARD = 65_536
_STATE = "/tmp/state.tar"
# The logs are the verifier's: nothing that the player has put there may be taken for a reward.
_PACK = (
    f"cd {_WORK} && find . -mindepth 1 -maxdepth 1 ! -name logs ! -name solution -print0 | tar --null -T - -cf {_STATE}"
)


class SandboxRuntime:
    """Runs a task in a sandbox without network, which sees this machine's programs. See `HarborRuntime`.

    The folders of the task, such as `/app`, lie in the sandbox's working folder, and links lead to them.
    """

    def refusal(self, task: HarborTask) -> str | None:
        """See `HarborRuntime`."""
        if (reason := _needs(task)) is not None:
            return reason
        try:
            layout = _layout(task)
        except ImageNeeded as needed:
            return f"it needs an image of its own: {needed}"
        if system := [path for path in _paths(layout) if _top(path) in _SYSTEM]:
            return f"it needs an image of its own: it changes {system[0]}, which belongs to the system"
        return None

    def open(self, task: HarborTask, player_code: PlayerCode, seconds: float) -> SandboxMachine:
        """Make the sandbox of an episode."""
        return SandboxMachine(task, player_code, seconds)


class SandboxMachine:
    """The sandbox of one episode. See `Machine`."""

    def __init__(self, task: HarborTask, player_code: PlayerCode, seconds: float):
        self._task = task
        self._player_code = player_code
        self._layout = _layout(task)
        self._workspace = self._made(links={"/solution": f"{_WORK}/solution"})
        self._make(self._workspace, self._layout.folders)
        for file in self._layout.files:
            self._workspace.write({_inside(file.path): file.source.read_bytes()}, executable=file.executable)
        exports = {**self._layout.variables, **task.settings.environment.env}
        self._terminal = Terminal(self._workspace, seconds, folder=self._layout.workdir, variables=exports)

    def bash(self, command: str) -> str:
        """See `Machine`."""
        return self._terminal.bash(command)

    def python(self, code: str) -> str:
        """See `Machine`."""
        return self._terminal.python(code)

    def read(self, path: str) -> str:
        """See `Machine`."""
        return self._terminal.read(posixpath.join(self._layout.workdir, path))

    def write(self, path: str, content: str) -> str:
        """See `Machine`."""
        return self._terminal.write(posixpath.join(self._layout.workdir, path), content)

    def close(self) -> None:
        """See `Machine`."""
        self._workspace.close()

    def verify(self) -> float:
        """Copy what the player leaves into a new sandbox, in which the tests lie read-only, and run them.

        Whatever goes wrong there earns nothing, because code of the player may be the cause.
        """
        try:
            state = self._state()
        except ToolError:
            return 0.0
        self.close()
        with tempfile.TemporaryDirectory() as folder:
            tests = _copy_for_all(self._task.folder / "tests", Path(folder))
            with self._made(readable={"/tests": tests}) as fresh:
                try:
                    return self._verdict(fresh, state)
                except ToolError:
                    return 0.0

    def _state(self) -> bytes:
        """What is in the working folder, as an archive.

        Raises:
            ToolError: It cannot be copied, for example because it is too large.
        """
        packed = self._workspace.run(["sh", "-c", _PACK], timeout=_COPY_SECONDS)
        if not packed.ok:
            raise ToolError(f"what is left cannot be copied: {packed}")
        return self._workspace.read(_STATE, _MOST_STATE)

    def _verdict(self, fresh: Workspace, state: bytes) -> float:
        fresh.write({_STATE: state})
        unpacked = fresh.run(["tar", "-C", _WORK, "-xf", _STATE], timeout=_COPY_SECONDS)
        if not unpacked.ok:
            return 0.0
        fresh.run(["rm", "-f", _STATE])
        self._make(fresh, [_VERIFIER_LOGS])
        settings = self._task.settings
        variables = {**self._layout.variables, **settings.environment.env, **settings.verifier.env}
        script = 'cd "$1" && exec bash /tests/test.sh'
        run = fresh.run(
            ["bash", "-c", script, "bash", self._layout.workdir],
            variables=variables,
            timeout=settings.verifier.timeout_sec,
        )
        return 0.0 if run.exit_code is None else _reward(fresh)

    def _made(self, *, links: Mapping[str, str] | None = None, readable: Mapping[str, Path] | None = None) -> Workspace:
        settings = self._task.settings.environment
        disk = settings.storage_mb or settings.storage or _DEFAULT_DISK
        limits = PlayerLimits(
            memory_mb=settings.memory_mb or settings.memory or _DEFAULT_MEMORY,
            disk_mb=min(disk, _MOST_DISK),
            output_bytes=MOST_SHOWN,
        )
        tops = {f"/{_top(path)}": f"{_WORK}/{_top(path)}" for path in (*_paths(self._layout), _LOGS)}
        return self._player_code.workspace(limits=limits, readable=readable or {}, links={**tops, **(links or {})})

    def _make(self, workspace: Workspace, folders: Iterable[str]) -> None:
        workspace.run(["mkdir", "-p", *(f"{_WORK}/{_inside(it)}" for it in (*folders, _VERIFIER_LOGS, "/logs/agent"))])


def _needs(task: HarborTask) -> str | None:
    """What a task needs that a sandbox has not, beside what its Dockerfile says."""
    settings = task.settings
    environment, verifier = settings.environment, settings.verifier
    folder = task.folder / "environment"
    given = {**environment.env, **verifier.env, **settings.solution.env}
    needs = {
        "it has several steps": bool(settings.steps),
        f"it needs the image {environment.docker_image}": environment.docker_image is not None,
        "it needs several containers (docker-compose.yaml)": any(folder.glob("docker-compose.y*ml")),
        "it needs GPUs": environment.gpus > 0,
        "it needs MCP servers of its own": bool(environment.mcp_servers),
        "it needs a service that is healthy first": environment.healthcheck is not None,
        f"it needs {environment.os}": environment.os != "linux",
        "its tests need an environment of their own": verifier.environment_mode != "shared"
        or verifier.environment is not None
        or (task.folder / "tests" / "Dockerfile").is_file(),
        "it takes variables of this machine (${...})": any("${" in value for value in given.values()),
        "its files are chosen by .dockerignore": (folder / ".dockerignore").is_file(),
    }
    return next((reason for reason, needed in needs.items() if needed), None)


def _layout(task: HarborTask) -> Layout:
    path = task.folder / "environment" / "Dockerfile"
    layout = read_dockerfile(path) if path.is_file() else Layout()
    if layout.workdir == "/":
        layout.workdir = _DEFAULT_WORKDIR
        layout.folders.append(_DEFAULT_WORKDIR)
    return layout


def _paths(layout: Layout) -> list[str]:
    return [*layout.folders, *(file.path for file in layout.files)]


def _top(path: str) -> str:
    return path.strip("/").partition("/")[0]


def _inside(path: str) -> str:
    """Where a path of the task's machine is, from the sandbox's working folder on."""
    return path.lstrip("/")


def _copy_for_all(folder: Path, into: Path) -> Path:
    """A copy that the sandbox's user may read."""
    copy = Path(shutil.copytree(folder, into / "tests"))
    into.chmod(0o755)
    for root, _, names in os.walk(copy):
        os.chmod(root, 0o755)
        for name in names:
            os.chmod(os.path.join(root, name), 0o755)
    return copy


def _reward(workspace: Workspace) -> float:
    """The reward that the tests have written: `reward.txt`, else `reward.json`.

    Source: https://harborframework.com/docs/tasks, section Tests.
    """
    folder = f"{_WORK}{_VERIFIER_LOGS}"
    try:
        text = workspace.read(f"{folder}/reward.txt", _MOST_REWARD).decode("utf-8", "replace")
        return _finite(text)
    except ToolError:
        pass
    try:
        found: Any = json.loads(workspace.read(f"{folder}/reward.json", _MOST_REWARD))
        values = cast("dict[str, Any]", found) if isinstance(found, dict) else {"reward": found}
        return _finite(values["reward"] if "reward" in values or len(values) != 1 else next(iter(values.values())))
    except (ToolError, ValueError, KeyError, RecursionError):
        return 0.0


def _finite(value: object) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0
