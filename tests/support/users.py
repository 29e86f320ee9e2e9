"""Runs a test's body as root, and as an ordinary user, where this machine can."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient

NOBODY = 65_534
SUPPORT = Path(__file__).parent
# What comes first, as the copy of the packages in which `make mutants` changes something, stays first.
PYTHONPATH = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(SUPPORT))))

USERS = (
    pytest.param("root", marks=pytest.mark.skipif(os.geteuid() != 0, reason="this user is not root")),
    "ordinary",
)


def run_without_namespaces(module: str, function: str) -> None:
    """Run an async function of a module of this folder where no further user namespace may be made."""
    python = shlex.join([sys.executable, "-c", f"import asyncio, {module}; asyncio.run({module}.{function}())"])
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-ec", f"echo 0 > /proc/sys/user/max_user_namespaces; exec {python}"],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]


def run_as_nobody(module: str, function: str, *arguments: str) -> None:
    """Run an async function of a module of this folder in a process of the user `nobody`, in a folder it can write to.

    The interpreter often lies in root's home. The process gets a view of the disk in which that is open to it.
    """
    # A gateway hides its memory; what it does has to work like that.
    source = "import asyncio; from envport.secrecy import hide_memory; hide_memory();"
    source += f"import {module}; asyncio.run({module}.{function}(*{arguments!r}))"
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all"]
    script = f"{_opening(sys.base_prefix)} exec {shlex.join([*command, sys.executable, '-c', source])}"
    folder = Path(f"/tmp/envport-nobody-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    os.chown(folder, NOBODY, NOBODY)
    try:
        done = subprocess.run(
            ["unshare", "--mount", "--propagation=private", "sh", "-ec", script],
            env={**os.environ, "PYTHONPATH": PYTHONPATH, "TMPDIR": str(folder), "HOME": str(folder)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=patient(120),
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr[-3_000:]


def _opening(folder: str) -> str:
    """Commands that make a folder reachable that lies in a closed one, with nothing beside it."""
    closed = [path for path in (*reversed(Path(folder).parents), Path(folder)) if not path.stat().st_mode & 0o001]
    if not closed:
        return ""
    aside = "$(mktemp -d)"
    return (
        f"aside={aside}; mount --bind {folder} $aside; mount -t tmpfs -o mode=755 none {closed[0]}; "
        f"mkdir -p {folder}; mount --bind $aside {folder};"
    )
