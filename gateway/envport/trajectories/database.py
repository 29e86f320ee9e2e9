"""The database of a trajectory store: SQLite in a folder, or PostgreSQL by its URL."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from envport.errors import ConfigurationError, MissingExtra, StoreUnavailable
from envport.trajectories.schema import metadata

__all__ = ["Database"]

ResultT = TypeVar("ResultT")

REVISION = "0002"
"""The newest migration."""

_FILE = "episodes.db"
_POSTGRESQL = "postgresql"
_CONNECT_SECONDS = 10
# Another gateway on the same file may be writing.
_BUSY_SECONDS = 30
_READERS = 4
_CHECKPOINT_PAGES = 8_000
_WRITES = {"envport_writes": True}


class Database:
    """A database with the tables of a trajectory store.

    Args:
        where: A folder, or the URL of a PostgreSQL database, such as `postgresql://user:password@host/name`.
        readonly: Whether the tables have to be there already.

    Attributes:
        folder: The folder, if it is SQLite.
        shown: The folder or the URL, for people to read. It contains no password.
        identity: The same for the same database, as the name of a folder.

    Raises:
        ConfigurationError: It cannot be opened, or a newer version of envport wrote it.
    """

    def __init__(self, where: str | Path, *, readonly: bool = False):
        url, self.folder = _located(where)
        self.shown = str(self.folder) if self.folder is not None else url.render_as_string(hide_password=True)
        if self.folder is not None and readonly and not (self.folder / _FILE).is_file():
            raise ConfigurationError(f"there is no trajectory store in {self.folder}: it has no file {_FILE}")
        self.identity = hashlib.sha256(url.set(password=None).render_as_string().encode()).hexdigest()[:16]
        self.engine = self._engine(url)
        self._readers: anyio.CapacityLimiter | None = None
        try:
            self._migrate(readonly=readonly)
        except ConfigurationError:
            self.engine.dispose()
            raise
        except SQLAlchemyError as error:
            self.engine.dispose()
            raise ConfigurationError(f"the trajectory store {self.shown} cannot be opened: {said(error)}") from None

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of this machine."""
        return self.folder is not None

    def write(self) -> AbstractContextManager[Connection]:
        """A connection with a transaction, which is committed at the end."""
        return self.engine.execution_options(**_WRITES).begin()

    async def read(self, query: Callable[[Connection], ResultT], *, write: bool = False) -> ResultT:
        """Run a query in a thread.

        Args:
            query: The query.
            write: Whether it changes something.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        if self._readers is None:
            self._readers = anyio.CapacityLimiter(_READERS)
        return await anyio.to_thread.run_sync(self._answer, query, write, limiter=self._readers)

    def _answer(self, query: Callable[[Connection], ResultT], write: bool) -> ResultT:
        try:
            with self.write() if write else self.engine.begin() as connection:
                return query(connection)
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"The trajectory store cannot be read now: {said(error)}") from None

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _engine(self, url: URL) -> Engine:
        if self.folder is None:
            try:
                return create_engine(url, connect_args={"connect_timeout": _CONNECT_SECONDS}, pool_pre_ping=True)
            except ModuleNotFoundError:
                raise MissingExtra("a trajectory store in PostgreSQL", "postgresql") from None
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"the folder {self.folder} cannot hold a trajectory store: {error.strerror}"
            ) from None
        try:
            # For its owner only. SQLite gives its other files the mode of this one.
            os.close(os.open(self.folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise ConfigurationError(f"{self.folder / _FILE} cannot be written to: {error.strerror}") from None
        engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _migrate(self, *, readonly: bool) -> None:
        with self.engine.begin() as connection:
            revision = _revision(connection)
        if revision == REVISION:
            return
        if revision is not None and not revision < REVISION:
            raise ConfigurationError(
                f"the trajectory store {self.shown} was written by a newer version of envport (its revision is "
                f"{revision}, this version knows {REVISION}): update envport, or give another store"
            )
        if readonly and revision is None:
            raise ConfigurationError(f"{self.shown} is no trajectory store: it has no tables of envport's")
        with self.write() as connection:
            # Two gateways may begin at the same time. SQLite lets one of them in.
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(20261123)"))
            found = _revision(connection)
            if found is None:
                # The same tables as all migrations make, without the time that it takes to import Alembic.
                metadata.create_all(connection)
                connection.exec_driver_sql(
                    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
                )
                connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISION})
            elif found != REVISION:
                _upgrade(connection)


def said(error: BaseException) -> str:
    """What an error of the database says, in one line and without the statement."""
    origin = getattr(error, "orig", None) or error
    return " ".join(str(origin).split()) or type(origin).__name__


def _located(where: str | Path) -> tuple[URL, Path | None]:
    if isinstance(where, str) and "://" in where:
        try:
            url = make_url(where)
        except ArgumentError:
            raise ConfigurationError("the URL of the trajectory store is malformed") from None
        if url.get_backend_name() not in (_POSTGRESQL, "postgres"):
            raise ConfigurationError(
                f"a trajectory store is a folder or a postgresql:// URL, and no {url.get_backend_name()}:// URL"
            )
        return url.set(drivername=f"{_POSTGRESQL}+psycopg"), None
    folder = Path(where).expanduser().absolute()
    return URL.create("sqlite", database=str(folder / _FILE)), folder


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    cursor = connection.cursor()
    # Only for a new file: what is deleted can then be given back to the disk.
    cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
    cursor.execute("PRAGMA journal_mode = WAL")
    # A commit then survives the death of the process, and an error of the machine costs the latest ones.
    cursor.execute("PRAGMA synchronous = NORMAL")
    # Each checkpoint waits for the disk.
    cursor.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    cursor.close()
    # SQLAlchemy then begins the transactions, and the tables are made in one.
    connection.isolation_level = None


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("envport_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _upgrade(connection: Connection) -> None:
    # Imported only here: a store is migrated once, and the import takes a while.
    from alembic import command
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)
    with as_file(files("envport.trajectories") / "migrations") as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
