"""The sandbox of an agent: it sees no other process, and of this machine's files only those of an allow-list.

| of its own | what it sees |
|---|---|
| PID namespace | its own processes; all of them end with it |
| mount namespace | the allow-list, read-only; its own home, `/tmp` and working folder, which are gone at the end |
| IPC and user namespace | nothing of others, and no capability; where root evaluates, it is another user |

The network is this machine's: an agent has to reach its model and its episode.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from envport.errors import ConfigurationError, InvalidOption
from envport.sandboxing import (
    ADVICE,
    ETC,
    SYSTEM,
    find_bubblewrap,
    importable,
    imported,
    interpreter,
    shown,
    system_folders,
    unused_user,
    without_doubles,
)
from envport_bridges.evaluation.players import newcomer
from envport_bridges.evaluation.players.agents import Agent
from envport_bridges.evaluation.players.rooms import Rooms

__all__ = ["AgentSandbox"]

_OR = "Or trust the agent, and give --no-sandbox"
_NETWORK_SETTINGS = ("gai.conf", "host.conf", "hosts", "nsswitch.conf", "resolv.conf")
_CERTIFICATES = ("CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE")
_TMP = "/tmp"
_ELSEWHERE = "/home/agent"
_TRIAL_SECONDS = 30.0


class AgentSandbox:
    """Makes the sandboxes of an agent, one for each episode.

    Args:
        agent: The agent.
        reads: Files and folders that it may read, beside the system's programs and its own.

    Raises:
        ConfigurationError: There is no bubblewrap here.
        InvalidOption: A path of `reads` does not exist, holds the folders that every agent has of its own, or is
            closed to the agent.
    """

    def __init__(self, agent: Agent, reads: Sequence[str] = ()):
        self._bwrap = find_bubblewrap("the sandbox of an agent", f". {_OR}")
        home = os.path.expanduser("~")
        self._home = home if os.path.isabs(home) and home != "/" else _ELSEWHERE
        self._user = unused_user()
        wanted = [*SYSTEM, *(f"/etc/{name}" for name in (*ETC, *_NETWORK_SETTINGS)), sys.base_prefix]
        named = (word for word in shlex.split(agent.command)[1:] if os.path.isabs(word) and os.path.isfile(word))
        wanted += [*_programs(), *_of_agent(agent), *(self._allowed(path) for path in (*named, *reads))]
        self._seen = tuple(path for path in without_doubles(wanted) if path not in SYSTEM)
        self._copied = agent.home

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that name its folders."""
        return {"HOME": self._home, "TMPDIR": _TMP}

    def require(self) -> None:
        """Check that sandboxes can be made here.

        Raises:
            ConfigurationError: They cannot; the message says what to allow.
        """
        with tempfile.TemporaryDirectory(prefix="envport-agent-") as root, open(os.devnull, "wb") as status:
            rooms = Rooms(Path(root))
            self.prepare(rooms)
            try:
                done = subprocess.run(
                    self.words(["true"], rooms, status.fileno()),
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

    def prepare(self, rooms: Rooms) -> None:
        """Make what is missing of the folders of an episode, and hand all that is in them over to the agent's user."""
        for folder in (rooms.work, rooms.notes, rooms.home, rooms.scratch, rooms.settings):
            folder.mkdir(exist_ok=True)
        for name in self._copied:
            there = Path(self._home, name)
            if there.is_file():
                (rooms.home / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(there, rooms.home / name)
        user, group = (os.getuid(), os.getgid()) if self._user is None else (self._user, self._user)
        entry = f"{user}:{group}::{self._home}:/bin/sh\n"
        others = "root:x:0:0::/root:/bin/sh\n" if user else ""
        (rooms.settings / "passwd").write_text(f"{others}{os.environ.get('USER', 'agent')}:x:{entry}")
        (rooms.settings / "group").write_text(f"agent:x:{group}:\n")
        if self._user is not None:
            for path in (found for folder in rooms.root.iterdir() for found in (folder, *folder.rglob("*"))):
                os.chown(path, user, group, follow_symlinks=False)

    def words(self, words: Sequence[str], rooms: Rooms, status: int) -> list[str]:
        """The command that runs a command in the sandbox.

        Args:
            words: The program and its arguments.
            rooms: The folders of the episode.
            status: Descriptor to which bubblewrap writes what became of the sandbox; see `was_made`.
        """
        made = [self._bwrap, "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session"]
        made += ["--json-status-fd", f"{status}", "--cap-drop", "ALL"]
        if self._user is None:
            made += ["--unshare-user"]
        else:
            made += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
            source = Path(newcomer.__file__).read_text("utf-8")
            words = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", source, f"{self._user}", *words]
        return [*made, *self._root(rooms), "--chdir", str(rooms.work), "--", *words]

    @staticmethod
    def was_made(status: bytes) -> bool:
        """Whether the command was run, given all that bubblewrap wrote to `status`. The agent cannot write to it."""
        return b'"exit-code"' in status

    def _root(self, rooms: Rooms) -> Iterator[str]:
        mounts = {path: list(shown(path)) for path in self._seen}
        mounts["/proc"] = ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
        mounts["/dev"] = ["--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]
        for path, room in ((_TMP, rooms.scratch), (self._home, rooms.home), (str(rooms.work), rooms.work)):
            mounts[path] = list(shown(path, "--bind", str(room)))
        mounts[str(rooms.notes)] = list(shown(str(rooms.notes)))
        for name in ("passwd", "group"):
            mounts[f"/etc/{name}"] = list(shown(f"/etc/{name}", source=str(rooms.settings / name)))
        yield from system_folders()
        # What lies in another one comes after it.
        for path in sorted(mounts):
            yield from mounts[path]

    def _allowed(self, path: str) -> str:
        there = os.path.abspath(os.path.expanduser(path))
        if not os.path.exists(there):
            raise InvalidOption(f"the agent is to read {there}, which does not exist")
        for own in (self._home, _TMP):
            if Path(own).is_relative_to(there):
                raise InvalidOption(f"the agent cannot read {there}: it has its own {own}. Name what it needs in there")
        needed = 0o005 if os.path.isdir(there) else 0o004
        if self._user is not None and os.stat(there).st_mode & needed != needed:
            raise InvalidOption(
                f"the agent cannot read {there}: where root evaluates, agents are another user, and it is closed to "
                f"others (allow it: chmod -R o+rX {shlex.quote(there)})"
            )
        return there

    @staticmethod
    def _impossible(why: str) -> ConfigurationError:
        return ConfigurationError(f"the sandbox of an agent cannot be made here: {why}. {ADVICE} {_OR}.")


def _programs() -> Iterator[str]:
    """The folders in which programs are searched."""
    yield from filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))


def _of_agent(agent: Agent) -> Iterator[str]:
    """What belongs to an agent: its program, and certificates."""
    if "{python}" in agent.command:
        yield from (*interpreter(), *importable(), *imported())
    yield from _installation(shlex.split(agent.command)[0])
    yield from (os.environ[name] for name in _CERTIFICATES if os.path.isabs(os.environ.get(name, "")))


def _installation(program: str) -> Iterator[str]:
    """A program, what is installed with it, and the interpreter that its first line names."""
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
            yield from _installation(word)
