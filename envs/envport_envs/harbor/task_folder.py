"""Reads task folders of Harbor: `task.toml`, `instruction.md`, `environment/`, `tests/` and `solution/`.

Source: Harbor's documentation of the format, https://harborframework.com/docs/tasks, and public task folders.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from envport.errors import ConfigurationError

__all__ = ["HarborTask", "TaskSettings", "find_tasks", "read_task"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


def _mebibytes(value: Any) -> Any:
    """A size as it was written before `memory_mb` and `storage_mb`: `2G`."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())) is not None:
        return float(match[1]) * _MIB[match[2].upper()]
    return value


_Size = Annotated[float, Field(gt=0), BeforeValidator(_mebibytes)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Section(BaseModel):
    # Harbor ignores what it does not know, too.
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Environment(_Section):
    docker_image: str | None = None
    cpus: float = 1
    memory_mb: _Size | None = None
    memory: _Size | None = None
    storage_mb: _Size | None = None
    storage: _Size | None = None
    gpus: int = 0
    env: dict[str, str] = {}
    mcp_servers: list[Any] = []
    healthcheck: dict[str, Any] | None = None
    os: str = "linux"


class _Verifier(_Section):
    timeout_sec: _Seconds = 600.0
    env: dict[str, str] = {}
    environment_mode: str = "shared"
    environment: dict[str, Any] | None = None


class _Agent(_Section):
    timeout_sec: _Seconds = 600.0


class _Solution(_Section):
    env: dict[str, str] = {}


class _Task(_Section):
    name: str | None = None


class TaskSettings(_Section):
    """What `task.toml` says, with Harbor's defaults. The fields have Harbor's names."""

    task: _Task = _Task()
    environment: _Environment = _Environment()
    verifier: _Verifier = _Verifier()
    agent: _Agent = _Agent()
    solution: _Solution = _Solution()
    steps: list[Any] = []


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task folder.

    Attributes:
        folder: Where it is.
        instruction: What the player reads.
        settings: What its `task.toml` says.
    """

    folder: Path
    instruction: str
    settings: TaskSettings

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def solution(self) -> Path | None:
        """The folder of the reference solution, if there is one."""
        folder = self.folder / "solution"
        return folder if (folder / "solve.sh").is_file() else None


def find_tasks(folder: Path) -> Sequence[Path]:
    """The task folders at a path: itself, or those directly in it, by name.

    Raises:
        ConfigurationError: There is none.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"harbor:{folder}: there is no such folder")
    if (folder / "task.toml").is_file():
        return [folder]
    if found := sorted(path.parent for path in folder.glob("*/task.toml")):
        return found
    raise ConfigurationError(
        f"harbor:{folder}: there is no task.toml in it, nor in a folder in it; a task folder of Harbor has task.toml, "
        "instruction.md, environment/ and tests/test.sh"
    )


def read_task(folder: Path) -> HarborTask:
    """Read a task folder.

    Raises:
        ConfigurationError: It is not complete, or its `task.toml` is wrong; the message says where.
    """
    wanted = ("instruction.md", "tests/test.sh")
    settings = _settings(folder / "task.toml")
    # A task of several steps has these for each step. The runtime says that it has steps.
    if missing := [] if settings.steps else [name for name in wanted if not (folder / name).is_file()]:
        raise ConfigurationError(f"harbor:{folder}: it has no {' and no '.join(missing)}")
    instruction = folder / "instruction.md"
    return HarborTask(folder, instruction.read_text("utf-8").strip() if instruction.is_file() else "", settings)


def _settings(path: Path) -> TaskSettings:
    try:
        return TaskSettings.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in error.errors())
        raise ConfigurationError(f"{path}: {wrong}") from None
