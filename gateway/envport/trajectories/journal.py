"""A journal: the file in front of the database, to which a call is written before it is answered.

A `write` of a few hundred bytes takes a microsecond, and what is written survives the death of the process. The
database is filled from the journal, in groups, by a thread (`drain.py`). If the database is away, the journal keeps
what it has not got. A gateway that was killed leaves its journal behind, and the next one on the same folder drains it.

A journal is a folder of segments, with a lock that its writer holds. A segment is a file of lines:

| line | fields, separated by tabs |
|---|---|
| `o` | key of the run, the opened episode as JSON |
| `s` | key, index, steps, errors, reward or nothing, seconds in the environment, 1 if it has images, the call as JSON |
| `e` | key, the ended episode as JSON |
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from envport.errors import StoreUnavailable

__all__ = ["AbandonedJournal", "Journal", "Position", "abandoned", "read_lines", "segments"]

Position = tuple[int, int]
"""A place in a journal: number of the segment, and offset in bytes."""

_SUFFIX = ".journal"
_SEGMENT_BYTES = 16 * 2**20
# Reserved ahead, so that a full disk is noticed before a call is played and not after it.
_RESERVE_BYTES = 4 * 2**20
_LOW_BYTES = 2**20


class Journal:
    """The journal of one gateway, for writing.

    Args:
        folder: Folder of all journals. It is made if it is missing.

    Attributes:
        name: Its name, which no other journal has.
        path: Its folder.
        end: The position after the last line.

    Raises:
        OSError: The folder cannot be written to.
    """

    def __init__(self, folder: Path):
        self.name = secrets.token_hex(8)
        self.path = folder / self.name
        self.path.mkdir(parents=True, mode=0o700)
        self._lock = _lock(self.path)
        self.end: Position = (0, 0)
        self._reserved = 0
        self._file = self._begin_segment()

    def check(self) -> None:
        """Check that there is room for another call.

        Raises:
            StoreUnavailable: There is none.
        """
        if self._reserved - self.end[1] < _LOW_BYTES:
            self._reserve(self.end[1] + _LOW_BYTES)

    def write(self, line: bytes) -> None:
        """Write a line, which ends with a line break.

        Raises:
            StoreUnavailable: There is no room. Nothing was written.
        """
        number, offset = self.end
        if offset >= _SEGMENT_BYTES:
            # A segment that is complete is deleted once it is in the database.
            file = self._begin_segment(number + 1)
            os.ftruncate(self._file, offset)
            os.close(self._file)
            self._file, self._reserved, self.end = file, 0, (number + 1, 0)
            number, offset = self.end
        if offset + len(line) > self._reserved:
            self._reserve(offset + len(line))
        written = 0
        try:
            while written < len(line):
                written += os.pwrite(self._file, line[written:] if written else line, offset + written)
        except OSError as error:
            raise _unavailable(self.path, error) from None
        self.end = (number, offset + len(line))

    def delete_before(self, number: int) -> None:
        """Delete the segments before this one."""
        for segment in segments(self.path):
            if _number(segment) < number:
                segment.unlink(missing_ok=True)

    def close(self, *, delete: bool) -> None:
        """Stop writing.

        Args:
            delete: Whether everything is in the database, so that the journal is needed no more.
        """
        os.ftruncate(self._file, self.end[1])
        os.close(self._file)
        if delete:
            _delete(self.path)
        os.close(self._lock)

    def _begin_segment(self, number: int = 0) -> int:
        try:
            return os.open(_segment(self.path, number), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unavailable(self.path, error) from None

    def _reserve(self, least: int) -> None:
        """Reserve room up to an offset of the segment, and some more."""
        try:
            if sys.platform != "darwin":
                os.posix_fallocate(self._file, self._reserved, least + _RESERVE_BYTES - self._reserved)
        except OSError as error:
            raise _unavailable(self.path, error) from None
        self._reserved = least + _RESERVE_BYTES


class AbandonedJournal:
    """The journal of a gateway that is gone. It is locked until `delete` or `release`.

    Args:
        path: Its folder.
        lock: Descriptor of its lock.
    """

    def __init__(self, path: Path, lock: int):
        self.name = path.name
        self.path = path
        self._lock = lock

    def delete(self) -> None:
        """Delete it, because everything is in the database."""
        _delete(self.path)
        self.release()

    def release(self) -> None:
        """Leave it to the next gateway."""
        os.close(self._lock)


def abandoned(folder: Path) -> Iterator[AbandonedJournal]:
    """The journals in a folder whose gateways are gone."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        try:
            lock = _lock(path)
        except (BlockingIOError, NotADirectoryError):
            continue
        yield AbandonedJournal(path, lock)


def segments(path: Path) -> list[Path]:
    """The segments of a journal, in order."""
    return sorted(path.glob(f"*{_SUFFIX}"))


def read_lines(path: Path, number: int, offset: int, most_bytes: int) -> tuple[list[bytes], int]:
    """Complete lines of a segment.

    Args:
        path: Folder of the journal.
        number: Number of the segment.
        offset: Where to begin.
        most_bytes: About how many bytes to read. A longer line is read whole.

    Returns:
        The lines without line breaks, and the offset after them.
    """
    with _segment(path, number).open("rb") as file:
        file.seek(offset)
        data = file.read(most_bytes)
        # What was reserved and not written is zeros, which are no part of a line.
        while (end := data.rfind(b"\n")) < 0 and b"\0" not in data and (more := file.read(most_bytes)):
            data += more
    return data[: max(end, 0)].split(b"\n") if end > 0 else [], offset + end + 1


def _segment(path: Path, number: int) -> Path:
    return path / f"{number:08d}{_SUFFIX}"


def _number(segment: Path) -> int:
    return int(segment.stem)


def _lock(path: Path) -> int:
    """Lock a journal, and return the descriptor that holds the lock until it is closed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _delete(path: Path) -> None:
    for segment in segments(path):
        segment.unlink(missing_ok=True)
    path.rmdir()


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"Nothing can be recorded now: {error.strerror} ({path}). Make room, then try again.")
