"""A journal: the file in front of the database, to which a call is written before it is answered.

A line takes a microsecond, because the file is mapped into memory, and it survives the death of the process. Another
process fills the database from the journal, in groups (`drain_process.py`). If the database is away, the journal keeps
what it has not got. A gateway that was killed leaves its journal behind, and the next one on the same folder drains it.

A journal is a folder of segments, with a lock that its writer holds. A segment is a file of lines:

| line | fields, separated by tabs |
|---|---|
| `o` | key of the run, the opened episode as JSON |
| `s` | key, index, steps, errors, reward or nothing, seconds in the environment, 1 if it has images, the call as JSON |
| `r` | key, index, the snapshot of the environment in base64 or `-`, the id of the call as JSON |
| `e` | key, how the episode ended and what it came to, as JSON |
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from envport.errors import StoreUnavailable

__all__ = [
    "RESUMING",
    "AbandonedJournal",
    "Journal",
    "Position",
    "abandoned",
    "delete_before",
    "read_lines",
    "segments",
]

Position = tuple[int, int]
"""A place in a journal: number of the segment, and offset in bytes."""

RESUMING = "resuming-"
"""How the names of gateways begin whose live episodes are to be resumed after a restart."""

_SUFFIX = ".journal"
_SEGMENT_BYTES = 16 * 2**20
# Reserved ahead, so that a full disk is noticed before a call is played and not after it.
_RESERVE_BYTES = 4 * 2**20
_LOW_BYTES = 2**20


class Journal:
    """The journal of one gateway, for writing.

    Args:
        folder: Folder of all journals. It is made if it is missing.
        name: Its name, which no other journal has.

    Attributes:
        name: Its name.
        path: Its folder.
        end: The position after the last line.

    Raises:
        OSError: The folder cannot be written to.
    """

    def __init__(self, folder: Path, name: str):
        self.name = name
        self.path = folder / self.name
        self.path.mkdir(parents=True, mode=0o700)
        self._lock = _lock(self.path)
        self._segment = _Segment(self.path, 0, _SEGMENT_BYTES)
        self.end: Position = (0, 0)

    def check(self) -> None:
        """Check that there is room for another call.

        Raises:
            StoreUnavailable: There is none.
        """
        wanted = self.end[1] + _LOW_BYTES
        if wanted > self._segment.reserved:
            self._segment.reserve(min(wanted, self._segment.size))

    def write(self, line: bytes) -> None:
        """Write a line, which ends with a line break.

        Raises:
            StoreUnavailable: There is no room. Nothing was written.
        """
        number, offset = self.end
        after = offset + len(line)
        if after > self._segment.size:
            # A segment that is complete is deleted once it is in the database.
            segment = _Segment(self.path, number + 1, max(_SEGMENT_BYTES, len(line)))
            self._segment.close(offset)
            self._segment, self.end = segment, (number + 1, 0)
            number, offset, after = number + 1, 0, len(line)
        if after > self._segment.reserved:
            self._segment.reserve(after)
        self._segment.map[offset:after] = line
        self.end = (number, after)

    def close(self, *, delete: bool) -> None:
        """Stop writing.

        Args:
            delete: Whether everything is in the database, so that the journal is needed no more.
        """
        self._segment.close(self.end[1])
        if delete:
            _delete(self.path)
        os.close(self._lock)


class _Segment:
    """A segment that is written. It is in memory too, so that a line costs no system call.

    Args:
        path: Folder of the journal.
        number: Number of the segment.
        size: Its size in bytes.

    Attributes:
        map: Its content.
        reserved: Up to which offset there is room on the disk.

    Raises:
        StoreUnavailable: There is no room for it.
    """

    def __init__(self, path: Path, number: int, size: int):
        self.size = size
        self._path = path
        self.reserved = 0
        try:
            self._file = os.open(_segment(path, number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(self._file, size)
            self.map = mmap.mmap(self._file, size)
        except OSError as error:
            raise _unavailable(path, error) from None

    def reserve(self, least: int) -> None:
        """Reserve room on the disk up to an offset, and some more.

        Raises:
            StoreUnavailable: There is none. To write all the same would end the process.
        """
        if least <= self.reserved:
            return
        wanted = min(least + _RESERVE_BYTES, self.size)
        try:
            if sys.platform != "darwin":
                os.posix_fallocate(self._file, self.reserved, wanted - self.reserved)
        except OSError as error:
            raise _unavailable(self._path, error) from None
        self.reserved = wanted

    def close(self, end: int) -> None:
        """Stop writing, and give back what was not used."""
        self.map.close()
        os.ftruncate(self._file, end)
        os.close(self._file)


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

    @property
    def age(self) -> float:
        """About how many seconds ago its gateway wrote to it last."""
        times = [segment.stat().st_mtime for segment in segments(self.path)]
        return time.time() - max(times, default=0.0)

    def delete(self) -> None:
        """Delete it, because everything is in the database."""
        _delete(self.path)

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


def delete_before(path: Path, number: int) -> None:
    """Delete the segments of a journal before this one."""
    for segment in segments(path):
        if int(segment.stem) < number:
            segment.unlink(missing_ok=True)


def read_lines(
    path: Path, number: int, offset: int, most_bytes: int, end: int | None = None
) -> tuple[list[bytes], int]:
    """Complete lines of a segment.

    Args:
        path: Folder of the journal.
        number: Number of the segment.
        offset: Where to begin.
        most_bytes: About how many bytes to read. A longer line is read whole.
        end: Where to stop, if something is writing to the segment.

    Returns:
        The lines without line breaks, and the offset after them.
    """
    with _segment(path, number).open("rb") as file:
        file.seek(offset)
        left = sys.maxsize if end is None else end - offset
        data = file.read(min(most_bytes, left))
        # What was reserved and not written is zeros, which are no part of a line.
        while (last := data.rfind(b"\n")) < 0 and b"\0" not in data:
            more = file.read(min(most_bytes, left - len(data)))
            if not more:
                break
            data += more
    return data[:last].split(b"\n") if last > 0 else [], offset + last + 1


def _segment(path: Path, number: int) -> Path:
    return path / f"{number:08d}{_SUFFIX}"


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
