"""A PostgreSQL server of the tests' own, where the machine has PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from patience import patient

__all__ = ["Server", "running_server", "why_not"]


def _programs() -> Path | None:
    """The folder of its programs, which Debian has outside of the path."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda it: int(it.parts[-3]))
    return versions[-1].parent if versions else None


def why_not() -> str | None:
    """Why there can be no server here; `None` if there can."""
    if _programs() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    if find_spec("psycopg") is None:
        return "psycopg is not installed (pip install 'envport[postgresql]')"
    return None


class Server:
    """A server with one database, which can be stopped and started."""

    def __init__(self, folder: Path):
        programs = _programs()
        assert programs is not None
        self._programs = programs
        self._data = folder / "data"
        # It refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(folder, pwd.getpwnam(self._user).pw_uid, -1)
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
            self._port = free.getsockname()[1]
        self._folder = folder
        self._run("initdb", "-D", self._data, "-U", "envport", "--auth=trust", "--no-sync", "-E", "UTF8")
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def _run(self, program: str, *words: object) -> None:
        command = [str(self._programs / program), *map(str, words)]
        subprocess.run(command, user=self._user, cwd="/", check=True, capture_output=True, timeout=patient(60))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # Imported only here: it is an extra, without which the tests skip.
        import psycopg

        self._process = subprocess.Popen(
            [
                str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self._port), "-k", str(self._folder),
                "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB",
            ],
            user=self._user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + patient(30)
        while True:
            try:
                psycopg.connect(self._url("postgres")).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "PostgreSQL does not start"
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once, as if the machine had failed."""
        assert self._process is not None
        self._run("pg_ctl", "stop", "-D", self._data, "-m", "immediate", "-w")
        self._process.wait(patient(30))

    def database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self._databases += 1
        name = f"store{self._databases}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self._url(name)

    def _url(self, name: str) -> str:
        return f"postgresql://envport:a-password-of-the-tests@127.0.0.1:{self._port}/{name}"


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """A server that runs."""
    folder = Path(tempfile.mkdtemp(prefix="envport-postgresql-"))
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
