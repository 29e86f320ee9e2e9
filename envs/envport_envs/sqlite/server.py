"""The process that runs queries: `python -m envport_envs.sqlite.server`.

It reads from its standard input where it is to listen, as one line of JSON, and writes a line when it is ready. Each
query runs in a child of its own with limits of CPU time and memory, because SQLite 3.40 may work for long where nothing
can interrupt it: in `printf`, in `LIKE`, and before it begins, if common table expressions name each other often. The
process ends when its parent does.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import socketserver
import sqlite3
import sys
from typing import Any

from envport_envs.sqlite.data import database

__all__ = ["MOST_BYTES", "MOST_ROWS", "READY"]

READY = "ready\n"
MOST_ROWS = 200
"""Rows of a result that are shown."""
MOST_BYTES = 20_000
"""Size of a result, as JSON."""

_MEMORY = 2**29
_MOST_QUERIES = 40
_LONGEST_VALUE = 1_000_000
_LONGEST_SHOWN = 2_000
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
# The same call has to give the same result again.
_CHANCE = ("random", "randomblob", "current_date", "current_time", "current_timestamp")
_FORBIDDEN = ("load_extension", "fts3_tokenizer", *_CHANCE)


class _Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    max_children = _MOST_QUERIES

    def __init__(self, address: str, seconds: int):
        super().__init__(address, _Handler)
        self.seconds = seconds
        self._parent = os.getppid()

    def service_actions(self) -> None:
        """Reap children, and end with the gateway."""
        super().service_actions()
        if os.getppid() != self._parent:
            raise SystemExit


class _Handler(socketserver.StreamRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        asked = json.loads(self.rfile.read())
        with database(asked["number"]) as connection:
            _limit(self.server.seconds)
            # Nothing is written if a limit ends this process.
            with contextlib.suppress(MemoryError):
                self.wfile.write(json.dumps(_reply(connection, asked["sql"])).encode())


def _limit(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))


def _reply(connection: sqlite3.Connection, sql: str) -> dict[str, Any]:
    refused: list[str] = []

    def authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
        if action in _READING or (action == sqlite3.SQLITE_FUNCTION and second not in _FORBIDDEN):
            return sqlite3.SQLITE_OK
        refused.append(f"the function {second}" if action == sqlite3.SQLITE_FUNCTION else f"{first or 'this'}")
        return sqlite3.SQLITE_DENY

    connection.execute("PRAGMA temp_store = MEMORY")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.text_factory = _text
    connection.set_authorizer(authorize)
    try:
        return _shown(connection.execute(sql))
    except MemoryError:
        return {"error": f"the query needs more than {_MEMORY // 2**20} MiB of memory"}
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if refused:
            return {"error": f"{refused[0][:100]} is not allowed: a query reads the tables with SELECT"}
        return {"error": f"SQLite: {error}"}


def _text(given: bytes) -> str:
    return given.decode("utf-8", "replace")


def _shown(cursor: sqlite3.Cursor) -> dict[str, Any]:
    if cursor.description is None:
        return {"error": "this is no query: it has to be one SELECT"}
    columns = [str(column[0])[:_LONGEST_SHOWN] for column in cursor.description]
    rows: list[list[Any]] = []
    size, note = len(json.dumps(columns)), ""
    for row in cursor:
        shown = [_value(value) for value in row]
        size += len(json.dumps(shown))
        if len(rows) == MOST_ROWS or size > MOST_BYTES:
            limit = f"{MOST_ROWS} rows" if len(rows) == MOST_ROWS else f"{MOST_BYTES} bytes"
            note = f"The first {len(rows)} rows. There are more, but a result is cut at {limit}."
            break
        rows.append(shown)
    columns = columns if size <= MOST_BYTES or rows else columns[:20]
    return {"columns": columns, "rows": rows, "note": note}


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        value = f"x'{value[:_LONGEST_SHOWN].hex()}'"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str) and len(value) > _LONGEST_SHOWN:
        return f"{value[:_LONGEST_SHOWN]}... ({len(value)} characters)"
    return value


def _main() -> None:
    given = json.loads(sys.stdin.readline())
    with _Server(given["address"], given["seconds"]) as server:
        os.write(sys.stdout.fileno(), READY.encode())
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        server.serve_forever()


if __name__ == "__main__":
    _main()
