"""The gateway's side of a zygote: starts it, asks it to fork, and passes on its reports about its children."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import IO, Any

import anyio
import anyio.to_thread

from envport.definition import EnvironmentDefinition
from envport.errors import ConfigurationError, InvalidEnvironment, WorkerLost
from envport.runtimes.episode_process import EpisodeProcess
from envport.runtimes.frames import MAX_PACKET
from envport.runtimes.origin import Origin
from envport.runtimes.sandbox_plan import SandboxPlan, sandbox_variables
from envport.secrecy import without_secrets

__all__ = ["ForkServer"]

logger = logging.getLogger(__name__)

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
        variables: Environment variables that the zygote has beside those of this process.

    Raises:
        ConfigurationError: The environment cannot run in its own process on this system.
    """

    def __init__(self, spec: EnvironmentDefinition, variables: Mapping[str, str]):
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
        self._sandbox = SandboxPlan.of(spec, self._origin) if spec.cls.sandbox else None
        self._sock, self._zygote = _start(spec, variables)
        self._loop.add_reader(self._sock.fileno(), self._read)

    @property
    def processes(self) -> list[EpisodeProcess]:
        """The processes that are not gone."""
        return list(self._processes.values())

    async def load(self, prepared: Any = None) -> None:
        """Let the zygote load the environment.

        Args:
            prepared: What the environment's `prepare` yielded.

        Raises:
            ConfigurationError: The environment cannot be loaded in the zygote.
        """
        message = {
            "load": self._origin.data(),
            "sandbox": self._sandbox.data() if self._sandbox is not None else None,
            # A sandboxed environment's programs must not look for modules where there are none.
            "pythonpath": os.environ.get("PYTHONPATH") if self._sandbox is None else None,
        }
        packet = json.dumps(message).encode("ascii")
        if len(packet) > MAX_PACKET:
            raise ConfigurationError(f"the options of environment {self.spec.name!r} are too large")
        try:
            with _pickled(self.spec, prepared) as file:
                socket.send_fds(self._sock, [packet], [file.fileno()])
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
            case {"forbidden": why}:
                self._loaded.set_exception(ConfigurationError(f"environment {self.spec.name!r} cannot be run: {why}"))
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


def _pickled(spec: EnvironmentDefinition, prepared: Any) -> IO[bytes]:
    """A file with a value, which may be larger than a packet. A zygote trusts the gateway, so pickle is safe here."""
    try:
        data = pickle.dumps(prepared)
    except Exception as error:
        raise ConfigurationError(
            f"environment {spec.name!r}: what its prepare() yields has to reach another process and cannot be pickled: "
            f"{type(error).__name__}: {error}. Yield plain data, such as an address."
        ) from None
    file = os.fdopen(os.memfd_create("envport-prepared", os.MFD_CLOEXEC), "w+b")
    file.write(data)
    file.flush()
    file.seek(0)
    return file


def _lost() -> WorkerLost:
    return WorkerLost("The process from which the environment's processes are made was lost.", fault="infrastructure")


def _unmade(why: str) -> WorkerLost:
    return WorkerLost(f"The environment's process could not be made: {why}.", fault="infrastructure")


def _start(spec: EnvironmentDefinition, variables: Mapping[str, str]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    # The environment must not see the gateway's tokens and keys.
    environ = sandbox_variables(spec.cls, os.environ) if spec.cls.sandbox else without_secrets(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    environ |= variables
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A new session keeps terminal signals away: they end the gateway, and the gateway then ends the zygote.
    with theirs, ExitStack() as on_error:
        on_error.callback(ours.close)
        zygote = subprocess.Popen(
            [sys.executable, "-P", "-m", "envport.runtimes.zygote", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=[theirs.fileno()],
            env=environ,
            start_new_session=True,
        )
        on_error.pop_all()
    ours.setblocking(False)
    return ours, zygote
