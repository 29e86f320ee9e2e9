"""The gateway's side of a zygote: starts it, asks it to fork, and passes on its reports about its children."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from envport.errors import ConfigurationError, InvalidEnvironment, WorkerLost
from envport.registry import EnvironmentDefinition
from envport.runtimes.episode_process import EpisodeProcess
from envport.runtimes.frames import MAX_PACKET
from envport.runtimes.origin import Origin
from envport.secrecy import without_secrets

__all__ = ["ForkServer"]

logger = logging.getLogger(__name__)

_HIDDEN = ("/tmp/", "/dev/")
_LOAD_SECONDS = 300.0
_END_SECONDS = 10.0
# A fork takes milliseconds, also on a busy machine. A zygote that does not answer for so long was stopped, or hangs.
_FORK_SECONDS = 20.0
# Limit on concurrent forks. More would only wait in the socket, where a packet with a descriptor takes much room.
_FORKS_AT_ONCE = 8


class ForkServer:
    """The zygote of one environment, and the processes that it has forked.

    Args:
        spec: The environment.

    Raises:
        ConfigurationError: The environment cannot run in its own process on this system.
    """

    def __init__(self, spec: EnvironmentDefinition):
        self.spec = spec
        self.alive = True
        self.base_memory = 0
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._processes: dict[int, EpisodeProcess] = {}
        self._forks: dict[int, asyncio.Future[int]] = {}
        self._loaded: asyncio.Future[int] = self._loop.create_future()
        self._turn = asyncio.Semaphore(_FORKS_AT_ONCE)
        self._origin = Origin.of(spec)
        self._sock, self._zygote = _start(spec, self._origin)
        self._loop.add_reader(self._sock.fileno(), self._read)

    @property
    def processes(self) -> list[EpisodeProcess]:
        """The processes that are not gone."""
        return list(self._processes.values())

    async def load(self) -> None:
        """Let the zygote load the environment.

        Raises:
            ConfigurationError: The environment cannot be loaded in the zygote.
        """
        message = {"load": self._origin.data(), "pythonpath": os.environ.get("PYTHONPATH")}
        packet = json.dumps(message).encode("ascii")
        if len(packet) > MAX_PACKET:
            raise ConfigurationError(f"the options of environment {self.spec.name!r} are too large")
        try:
            self._sock.send(packet)
            async with asyncio.timeout(_LOAD_SECONDS):
                self.base_memory = await self._loaded
        except (OSError, TimeoutError):
            raise InvalidEnvironment(
                f"environment {self.spec.name!r} could not be loaded in a process of its own: the process ended, "
                f"or took longer than {_LOAD_SECONDS:g} s"
            ) from None

    async def fork(self) -> EpisodeProcess:
        """Make a process for an episode.

        Raises:
            WorkerLost: The process could not be made.
        """
        async with self._turn:
            if not self.alive:
                raise _lost()
            number = next(self._numbers)
            ours, theirs = socket.socketpair()
            process = EpisodeProcess(ours, partial(self._forget, number))
            self._processes[number] = process
            self._forks[number] = born = self._loop.create_future()
            try:
                with theirs:
                    socket.send_fds(self._sock, [json.dumps({"fork": number}).encode("ascii")], [theirs.fileno()])
                async with asyncio.timeout(_FORK_SECONDS):
                    await born
            except TimeoutError:
                self._give_up()
                raise _lost() from None
            except BaseException as error:
                process.kill()
                if isinstance(error, OSError):
                    process.died(None, "")
                    raise _unmade(str(error.strerror)) from None
                raise
            finally:
                del self._forks[number]
            return process

    async def stop(self) -> None:
        """End the zygote and every process that it forked."""
        for process in self.processes:
            process.on_lost = None
        self._end()
        with anyio.move_on_after(_END_SECONDS):
            await anyio.to_thread.run_sync(self._zygote.wait, abandon_on_cancel=True)
        if self._zygote.returncode is None:
            self._zygote.kill()
            self._zygote.wait()

    def _forget(self, number: int) -> None:
        self._processes.pop(number, None)

    def _read(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, MAX_PACKET, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if data:
            self._take(json.loads(data), descriptors)
        else:
            self._end()

    def _take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        match message:
            case {"forked": number}:
                self._born(number, descriptors[0])
            case {"unforked": number, "why": why}:
                self._unborn(number, _unmade(why))
            case {"died": number, "status": status, "stderr": stderr}:
                if (process := self._processes.get(number)) is not None:
                    process.died(status, stderr)
            case {"loaded": memory}:
                self._loaded.set_result(memory)
            case {"failed": why}:
                self._loaded.set_exception(
                    InvalidEnvironment(
                        f"environment {self.spec.name!r} cannot be loaded in a process of its own:\n{why}"
                    )
                )
            case _:
                raise AssertionError(message)

    def _born(self, number: int, pidfd: int) -> None:
        process, born = self._processes.get(number), self._forks.get(number)
        if process is None:
            # The fork was abandoned in the meantime. Kill the process, so that the zygote does not keep it.
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            return
        process.born(pidfd)
        if born is not None and not born.done():
            born.set_result(pidfd)

    def _unborn(self, number: int, error: WorkerLost) -> None:
        if (born := self._forks.get(number)) is not None and not born.done():
            born.set_exception(error)
        if (process := self._processes.get(number)) is not None:
            process.died(None, "")

    def _give_up(self) -> None:
        """End a zygote that does not answer. The next episode gets a new one."""
        if not self.alive:
            return
        logger.error(
            "environment %s: the process from which its episodes' processes are made did not answer for %g s. It is "
            "killed with its %d processes, and started again for the next episode.",
            self.spec.name,
            _FORK_SECONDS,
            len(self._processes),
        )
        # A stopped process ends by this signal only.
        self._zygote.kill()
        self._end()

    def _end(self) -> None:
        """Close the socket of the zygote: it then kills its children. If it is dead, they died with it."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        if not self._loaded.done():
            self._loaded.set_exception(ConnectionResetError())
        for born in self._forks.values():
            if not born.done():
                born.set_exception(_lost())
        for process in self.processes:
            process.kill(_lost())
            process.died(None, "")


def _lost() -> WorkerLost:
    return WorkerLost("The process from which the environment's processes are made was lost.", fault="infrastructure")


def _unmade(why: str) -> WorkerLost:
    return WorkerLost(f"The environment's process could not be made: {why}.", fault="infrastructure")


def _start(spec: EnvironmentDefinition, origin: Origin) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    paths = [os.path.abspath(path) for path in sys.path]
    command = [sys.executable, "-P", "-m", "envport.runtimes.zygote"]
    if spec.cls.sandbox:
        command = [*_sandbox([*paths, os.path.dirname(origin.file)]), *command]
    # The environment must not see the gateway's tokens and keys.
    environ = without_secrets(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join(paths)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A new session keeps terminal signals away: they end the gateway, and the gateway then ends the zygote.
    with theirs, ExitStack() as on_error:
        on_error.callback(ours.close)
        zygote = subprocess.Popen(
            [*command, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=[theirs.fileno()],
            env=environ,
            start_new_session=True,
        )
        on_error.pop_all()
    ours.setblocking(False)
    return ours, zygote


def _sandbox(paths: list[str]) -> list[str]:
    """The command prefix that runs a command without network, where only a private `/tmp` is writable.

    Args:
        paths: Folders with code. Those under `/tmp` are mounted into the private `/tmp`.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise ConfigurationError(
            "a sandboxed environment needs bubblewrap, which is not installed: apt-get install bubblewrap"
        )
    code = {path for path in (*paths, sys.prefix, sys.base_prefix) if path.startswith(_HIDDEN)}
    return [
        bwrap,
        *("--unshare-all", "--die-with-parent", "--new-session"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
        *(word for path in sorted(code) for word in ("--ro-bind-try", path, path)),
        "--",
    ]
