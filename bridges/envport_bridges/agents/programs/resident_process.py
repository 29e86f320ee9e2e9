"""One process of a program that plays one mission after another."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path

import anyio

from envport.errors import ConfigurationError
from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.deadlines import Deadline
from envport_bridges.agents.programs.output import ProgramOutput, read_there
from envport_bridges.agents.programs.processes import SUPERVISED, Ended
from envport_bridges.agents.programs.resident_lines import Done, Lines, done_in
from envport_bridges.agents.programs.rooms import Rooms
from envport_bridges.agents.programs.sandbox import AgentSandbox

__all__ = ["ResidentProcess"]

_MOST_OUTPUT = 400
# A process ends a moment after it has closed its standard output.
_ENDING_SECONDS = 2.0
_ENDING_STEP = 0.01
# A process that is about to end, because it has been idle, gets no mission.
_MARGIN_SECONDS = 5.0


class ResidentProcess:
    """A process of an agent, in its own folders. It ends when this process does.

    Args:
        agent: The agent.
        sandbox: Its sandbox; `None` for none.
        idle_seconds: It ends after so many seconds without a mission.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, agent: Agent, sandbox: AgentSandbox | None, idle_seconds: float):
        self._folder = tempfile.TemporaryDirectory(prefix="envport-agent-", ignore_cleanup_errors=True)
        self._sandbox = sandbox
        self._idle_seconds = idle_seconds
        self._idle_since: float | None = None
        self._lines = Lines()
        # A second answer for a mission changes nothing.
        self._answered: set[str] = set()
        self._said: deque[bytes] = deque()
        rooms = Rooms(Path(self._folder.name))
        rooms.work.mkdir()
        words, variables, self._status = agent.resident_words(), agent.shared_variables(), rooms.root / "status"
        if sandbox is not None:
            sandbox.prepare(rooms)
            variables |= sandbox.variables
        reads, self._missions = os.pipe()
        try:
            with self._status.open("wb") as status:
                if sandbox is not None:
                    words = sandbox.words(words, rooms, status.fileno())
                self._process = subprocess.Popen(
                    [*SUPERVISED, "--resident", f"{idle_seconds}", f"{reads}", *words],
                    cwd=rooms.work,
                    env=variables,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                    pass_fds=[reads] if sandbox is None else [reads, status.fileno()],
                )
        except BaseException:
            os.close(self._missions)
            self._folder.cleanup()
            raise
        finally:
            os.close(reads)
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._control, self._answers = stdin.fileno(), stdout.fileno()
        self._output = ProgramOutput(stderr.fileno())
        for descriptor in (self._missions, self._answers):
            os.set_blocking(descriptor, False)

    def ready(self) -> bool:
        """Whether it can take the next mission. Not if it has ended, is about to, or has answered without a mission."""
        if self._idle_since is not None:
            idle = time.monotonic() - self._idle_since
            if idle > self._idle_seconds - min(_MARGIN_SECONDS, self._idle_seconds / 2):
                return False
        self._output.read()
        if self._process.poll() is not None or not self._read_lines():
            return False
        answers = [done for line in self._said if (done := done_in(line))]
        self._said.clear()
        return all(done.id in self._answered for done in answers)

    async def play(self, name: str, line: bytes, deadline: Deadline) -> tuple[Ended, bool]:
        """Have a mission played.

        Args:
            name: Its id.
            line: The line for the process.
            deadline: Its time limit.

        Returns:
            How it ended, and whether the process can take another one. If not, or if this is cancelled, stop it.

        Raises:
            ConfigurationError: The sandbox could not be made.
        """
        self._output.clear()
        answer: Done | None = None
        over = False
        if not self._say(b"b"):
            return await self._died(), False
        async with anyio.create_task_group() as tasks:

            async def expire() -> None:
                nonlocal over
                await deadline.used_up()
                over = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(expire)
            tasks.start_soon(self._send, line)
            tasks.start_soon(self._output.follow)
            answer = await self._answer()
            tasks.cancel_scope.cancel()
        self._output.read()
        if over:
            return Ended(None, self._output.text), False
        if answer is None:
            return await self._died(), False
        if answer.id != name:
            return Ended(
                1, self._output.text, f"it answered for the mission {answer.id[:64]!r}, which is not this one"
            ), False
        self._answered.add(name)
        self._idle_since = time.monotonic()
        return Ended(1 if answer.error is not None else 0, self._output.text, answer.error), self._say(b"i")

    async def stop(self) -> None:
        """Kill it with all that it has started, and remove its folders."""
        await anyio.to_thread.run_sync(self.kill)

    def kill(self) -> None:
        """Kill it with all that it has started, wait for that, and remove its folders."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._process.wait()
        if self._missions >= 0:
            os.close(self._missions)
            self._missions = -1
        self._folder.cleanup()

    def _say(self, state: bytes) -> bool:
        """Tell the supervisor whether it is busy or idle."""
        try:
            os.write(self._control, state)
        except OSError:
            return False
        return True

    async def _send(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self._missions, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._missions)
            except OSError:
                # It reads no missions. It may still answer, and otherwise its end or the time limit is the answer.
                return

    async def _answer(self) -> Done | None:
        """The first answer; `None` if standard output ends."""
        while True:
            more = self._read_lines()
            while self._said:
                line = self._said.popleft()
                done = done_in(line)
                if done is None:
                    self._output.add(line + b"\n")
                elif done.id not in self._answered:
                    return done
            if not more:
                return None
            await anyio.wait_readable(self._answers)

    def _read_lines(self) -> bool:
        return read_there(self._answers, lambda received: self._said.extend(self._lines.of(received)))

    async def _died(self) -> Ended:
        deadline = Deadline(_ENDING_SECONDS)
        # There is no event: the supervisor is no child of asyncio's.
        while self._process.poll() is None and deadline.left():  # noqa: ASYNC110
            await anyio.sleep(_ENDING_STEP)
        self._output.read()
        code = self._process.poll()
        if code is None:
            return Ended(1, self._output.text, "it closed its standard output before it was done")
        if self._sandbox is not None and not self._sandbox.was_made(self._status.read_bytes()):
            raise ConfigurationError(f"the sandbox of the agent could not be made: {self._output.text[-_MOST_OUTPUT:]}")
        return Ended(code, self._output.text, f"it ended with exit code {code} before it was done")
