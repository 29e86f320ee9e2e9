"""A sandbox for a program of this machine: it sees no other process, and of the files only those of an allow-list.

| of its own | what it sees |
|---|---|
| PID namespace | its own processes; all of them end with it |
| mount namespace | the allow-list, read-only, and the folders that it is given, which it may write to |
| IPC and user namespace | nothing of others, and no capability; where root makes it, it is another user |
| network namespace | nothing, unless it is to share this machine's network |
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from envport import newcomer
from envport.errors import ConfigurationError, InvalidOption
from envport.sandboxing import (
    ADVICE,
    ETC,
    SYSTEM,
    find_bubblewrap,
    shown,
    system_folders,
    unused_user,
    without_doubles,
)

__all__ = ["CERTIFICATES", "ProgramSandbox", "installation"]

CERTIFICATES = ("CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE")
"""Environment variables that name certificates."""

_NETWORK_SETTINGS = ("gai.conf", "host.conf", "hosts", "nsswitch.conf", "resolv.conf")
_TRIAL_SECONDS = 30.0


class ProgramSandbox:
    """Makes sandboxes that all show the same files of this machine.

    Args:
        what: What is run in it, for messages: `the sandbox of an agent`.
        otherwise: What else may be done, for messages.
        name: Name of the user in it.
        home: The home of the user in it.
        network: Whether it shares the network of this machine.
        seen: Files and folders of this machine that it shows, beside the system's programs. What does not exist is
            left out.
        reads: The same, as a user named them.
        own: Folders of its own, which `reads` must not hold.

    Raises:
        ConfigurationError: There is no bubblewrap here.
        InvalidOption: A path of `reads` does not exist, holds a folder of `own`, or is closed to the program.
    """

    def __init__(
        self,
        what: str,
        otherwise: str,
        *,
        name: str,
        home: str,
        network: bool,
        seen: Iterable[str] = (),
        reads: Sequence[str] = (),
        own: Sequence[str] = (),
    ):
        self._what = what
        self._otherwise = otherwise
        self._bwrap = find_bubblewrap(f"the sandbox of {what}", f". {otherwise}")
        self._name = name
        self._home = home
        self._network = network
        self._user = unused_user()
        settings = (*ETC, *_NETWORK_SETTINGS) if network else ETC
        wanted = [*SYSTEM, *(f"/etc/{name}" for name in settings), sys.base_prefix]
        wanted += [*_program_folders(), *seen, *(self._allowed(path, own) for path in reads)]
        self._seen = tuple(path for path in without_doubles(wanted) if path not in SYSTEM)

    def require(self) -> None:
        """Check that sandboxes can be made here.

        Raises:
            ConfigurationError: They cannot; the message says what to allow.
        """
        with tempfile.TemporaryDirectory(prefix="envport-sandbox-") as root, open(os.devnull, "wb") as status:
            settings, work = Path(root, "etc"), Path(root, "work")
            work.mkdir()
            self.write_settings(settings)
            self.hand_over(settings, work)
            try:
                done = subprocess.run(
                    self.words(["true"], {str(work): work}, settings, str(work), status.fileno()),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_TRIAL_SECONDS,
                    check=False,
                    pass_fds=[status.fileno()],
                )
            except subprocess.TimeoutExpired:
                raise self._impossible("it did not start") from None
        if done.returncode != 0:
            raise self._impossible(done.stderr.strip().rpartition("\n")[2] or "it ended")

    def write_settings(self, folder: Path) -> None:
        """Write the files of `/etc` that name users into a folder."""
        folder.mkdir(exist_ok=True)
        user, group = (os.getuid(), os.getgid()) if self._user is None else (self._user, self._user)
        others = "root:x:0:0::/root:/bin/sh\n" if user else ""
        (folder / "passwd").write_text(f"{others}{self._name}:x:{user}:{group}::{self._home}:/bin/sh\n")
        (folder / "group").write_text(f"{self._name}:x:{group}:\n")

    def hand_over(self, *folders: Path) -> None:
        """Make the sandbox's user the owner of folders with all that is in them."""
        if self._user is not None:
            for path in (found for folder in folders for found in (folder, *folder.rglob("*"))):
                os.chown(path, self._user, self._user, follow_symlinks=False)

    def words(
        self,
        words: Sequence[str],
        folders: Mapping[str, Path],
        settings: Path,
        into: str,
        status: int | None = None,
        reads: Iterable[str] = (),
    ) -> list[str]:
        """The command that runs a command in a sandbox.

        Args:
            words: The program and its arguments.
            folders: Folders of this machine that it may write to, by the paths at which it sees them.
            settings: Folder with what `write_settings` wrote.
            into: The folder that it begins in.
            status: Descriptor to which bubblewrap writes what became of the sandbox; see `was_made`.
            reads: Further folders that this sandbox shows.
        """
        made = [
            self._bwrap,
            "--unshare-pid",
            "--unshare-ipc",
            "--die-with-parent",
            "--new-session",
            "--cap-drop",
            "ALL",
        ]
        if status is not None:
            made += ["--json-status-fd", f"{status}"]
        if not self._network:
            made += ["--unshare-net"]
        if self._user is None:
            made += ["--unshare-user"]
        else:
            made += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
            source = Path(newcomer.__file__).read_text("utf-8")
            words = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", source, f"{self._user}", *words]
        return [*made, *self._root(folders, settings, reads), "--chdir", into, "--", *words]

    @staticmethod
    def was_made(status: bytes) -> bool:
        """Whether the command was run, given all that bubblewrap wrote to `status`. The program cannot write to it."""
        return b'"exit-code"' in status

    def _root(self, folders: Mapping[str, Path], settings: Path, reads: Iterable[str]) -> Iterator[str]:
        mounts = {path: list(shown(path)) for path in (*self._seen, *reads)}
        mounts["/proc"] = ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
        mounts["/dev"] = ["--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]
        for path, folder in folders.items():
            mounts[path] = list(shown(path, "--bind", str(folder)))
        for name in ("passwd", "group"):
            mounts[f"/etc/{name}"] = list(shown(f"/etc/{name}", source=str(settings / name)))
        yield from system_folders()
        # Sorted, so that a folder is mounted before the paths inside it.
        for path in sorted(mounts):
            yield from mounts[path]

    def _allowed(self, path: str, owned: Sequence[str]) -> str:
        there = os.path.abspath(os.path.expanduser(path))
        if not os.path.exists(there):
            raise InvalidOption(f"{self._what} is to read {there}, which does not exist")
        for own in owned:
            if Path(own).is_relative_to(there):
                raise InvalidOption(
                    f"{self._what} cannot read {there}: it has its own {own}. Name what it needs in there"
                )
        needed = 0o005 if os.path.isdir(there) else 0o004
        if self._user is not None and os.stat(there).st_mode & needed != needed:
            raise InvalidOption(
                f"{self._what} cannot read {there}: root's sandboxes have another user, and it is closed to others "
                f"(allow it: chmod -R o+rX {shlex.quote(there)})"
            )
        return there

    def _impossible(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"the sandbox of {self._what} cannot be made here: {why}. {ADVICE} {self._otherwise}."
        )


def installation(program: str) -> Iterator[str]:
    """A program, what is installed with it, and the interpreter that its first line names. Nothing if there is none."""
    found = shutil.which(program)
    if found is None:
        return
    real = os.path.realpath(found)
    for path in map(Path, (os.path.abspath(found), real)):
        yield str(path)
        if "node_modules" in path.parts:
            yield str(Path(*path.parts[: path.parts.index("node_modules") + 1]))
        elif path.parent.name == "bin":
            yield from (str(path.parent.parent / name) for name in ("bin", "lib", "lib64", "libexec", "pyvenv.cfg"))
    try:
        with open(real, "rb") as file:
            first = file.readline(256)
    except OSError:
        # It may be executed only.
        return
    if first.startswith(b"#!"):
        for word in first[2:].decode(errors="replace").split():
            yield from installation(word)


def _program_folders() -> Iterator[str]:
    """The folders in which programs are searched."""
    yield from filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))
