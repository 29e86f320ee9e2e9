"""Having queries run in another process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envport import ToolError
from envport_envs.sqlite.server import READY

__all__ = ["run_query", "running_queries"]

# Only a machine that is stuck takes so long: children have limits of their own.
_STUCK_SECONDS = 300.0


@contextmanager
def running_queries(seconds: int) -> Generator[str]:
    """Run the process that runs queries, until the end.

    Args:
        seconds: CPU time of a query.

    Yields:
        Its address, for `run_query`.

    Raises:
        RuntimeError: The process ended at once.
    """
    with tempfile.TemporaryDirectory(prefix="envport-") as folder:
        address = str(Path(folder) / "queries")
        command = [sys.executable, "-m", "envport_envs.sqlite.server"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                if _first_line(process, json.dumps({"address": address, "seconds": seconds})) != READY:
                    raise RuntimeError("the process that runs queries did not start")
                yield address
            finally:
                process.terminate()


def _first_line(process: subprocess.Popen[str], given: str) -> str:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process that runs queries has no pipes")
    process.stdin.write(f"{given}\n")
    process.stdin.flush()
    return process.stdout.readline()


def run_query(address: str, number: int, sql: str) -> dict[str, Any]:
    """Run a query.

    Args:
        address: Where the process listens.
        number: The number of the task, whose database is meant.
        sql: One SELECT.

    Returns:
        `columns`, `rows`, and a `note` if rows were left out.

    Raises:
        ToolError: SQLite refuses the query, or it needs more CPU time or memory than there is.
        OSError: The process cannot be reached.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_STUCK_SECONDS)
        connection.connect(address)
        connection.sendall(json.dumps({"number": number, "sql": sql}).encode())
        connection.shutdown(socket.SHUT_WR)
        said = b"".join(iter(lambda: connection.recv(65_536), b""))
    if not said:
        raise ToolError("the query was stopped: it takes too much CPU time, or too much memory")
    reply = json.loads(said)
    if "error" in reply:
        raise ToolError(reply["error"])
    return {key: value for key, value in reply.items() if value != ""}
