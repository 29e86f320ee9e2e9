"""The scheme `harbor:`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field

from envport.errors import ConfigurationError
from envport.registry import EnvironmentDefinition
from envport_envs.harbor.environment import DEFAULT_SECONDS, HarborEnvironment
from envport_envs.harbor.runtime import GROUP, refusal
from envport_envs.harbor.task_folder import find_tasks, read_task

__all__ = ["harbor"]


def harbor(
    rest: str,
    /,
    *,
    seconds: Annotated[float, Field(gt=0, le=3600)] = DEFAULT_SECONDS,
    skip: bool = False,
) -> EnvironmentDefinition:
    """Task folders of Harbor: `harbor:DIR`.

    Args:
        rest: A task folder, or a folder of task folders.
        seconds: Seconds that a call may take; see `HarborEnvironment`.
        skip: Leave out tasks that cannot be run here. Otherwise they are refused, with the reasons.

    Raises:
        ConfigurationError: There are no task folders, one is wrong, or one cannot be run here.
    """
    folder = Path(rest).expanduser().absolute()
    tasks = [read_task(path) for path in find_tasks(folder)]
    refused = {task.name: reason for task in tasks if (reason := refusal(task)) is not None}
    names = [task.name for task in tasks if task.name not in refused]
    if refused and not (skip and names):
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in refused.items())
        others = f"; skip=true leaves them out, and {len(names)} are left" if names else ""
        raise ConfigurationError(
            f"harbor:{rest}: {len(refused)} of {len(tasks)} tasks cannot be run here{others}. A package can register "
            f"a container runtime by the entry point group {GROUP}.\n{reasons}"
        )
    name = re.sub("[^A-Za-z0-9._-]+", "-", folder.name).strip("-.") or "harbor"
    settings = [task.settings for task in tasks if task.name in names]
    found = {
        "folder": str(tasks[0].folder.parent),
        "names": names,
        "agent_seconds": max(it.agent.timeout_sec for it in settings),
        "verifier_seconds": max(it.verifier.timeout_sec for it in settings),
    }
    options = {} if seconds == DEFAULT_SECONDS else {"seconds": seconds}
    return EnvironmentDefinition(name, HarborEnvironment, options, found)
