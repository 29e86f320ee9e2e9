"""The process of one episode: answers the gateway's messages until its socket is closed."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import inspect
import os
import random
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pydantic_core import to_jsonable_python

from envport.blocks import text_block
from envport.definition import EnvironmentDefinition
from envport.environment import Environment, tool
from envport.errors import AtCapacity, InvalidArguments, ToolError, UpstreamLost
from envport.runtimes.base import StepResult, first_observation, legal_calls_of, reward_of
from envport.runtimes.frames import Frames, encode
from envport.runtimes.instance import Instance, Work
from envport.runtimes.sandbox import confine
from envport.runtimes.sandbox_plan import SandboxPlan
from envport.runtimes.snapshots import text_of, untold
from envport.runtimes.syscalls import die_with_parent, set_subreaper
from envport.tools.content import observe
from envport.types import Task

__all__ = ["rehearse", "settle_in", "work"]

_NICENESS = 10
# Raise the score, so that the kernel kills episodes before the gateway if the machine runs out of memory.
_OOM_SCORE = 500
_SOCKET = 3
_REHEARSALS = 64
_CHUNK = 65_536


def settle_in(sock: int, stderr: int, sandbox: SandboxPlan | None) -> socket.socket:
    """Give a forked process its own group, standard streams, descriptors, priority and random numbers.

    Args:
        sock: Descriptor of the episode's end of the socketpair.
        stderr: Descriptor that takes the place of standard output and standard error.
        sandbox: The sandbox that it goes into; `None` for none.
    """
    os.setpgid(0, 0)
    die_with_parent(signal.SIGKILL)
    set_subreaper()
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    os.dup2(sock, _SOCKET)
    os.closerange(_SOCKET + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(_SOCKET, False)
    os.nice(_NICENESS)
    if sandbox is not None:
        confine(sandbox)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable(2)
    gc.enable()
    _reseed()
    return socket.socket(fileno=_SOCKET)


def _reseed() -> None:
    random.seed()
    # Reseed the libraries that are imported; otherwise all episodes would draw the same random numbers.
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.seed()


def work(sock: socket.socket, spec: EnvironmentDefinition, prepared: Any) -> NoReturn:
    """Answer messages until the socket is closed, then end the process."""
    worker = _Worker(sock, spec, prepared)
    try:
        if spec.is_async:
            asyncio.run(worker.answer_in_loop())
        else:
            worker.answer()
    except BaseException:
        traceback.print_exc()
        worker.leave(1)
    worker.leave(0)


class _Rehearsal(Environment):
    """The environment that `rehearse` plays."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return ""

    @tool
    def echo(self, message: str) -> str:
        return message


def rehearse() -> None:
    """Answer some messages before the first fork, so that Python specialises this code only once.

    Python 3.11 rewrites bytecode as it runs (PEP 659). Without this, every forked process would repeat that work and
    copy the memory pages.
    """
    ours, theirs = socket.socketpair()
    call = encode({"op": "call", "tool": "echo", "arguments": {"message": ""}, "progress": False})
    with ours, theirs:
        ours.sendall(encode({"op": "reset", "seed": 1, "task": None, "secrets": {}}) + _REHEARSALS * call)
        ours.shutdown(socket.SHUT_WR)
        _Worker(theirs, EnvironmentDefinition("rehearsal", _Rehearsal)).answer()


class _Worker:
    def __init__(self, sock: socket.socket, spec: EnvironmentDefinition, prepared: Any = None):
        self._sock = sock
        self._spec = spec
        self._prepared = prepared
        self._frames = Frames()
        self._instance: Instance | None = None
        # Tools may report progress from other threads.
        self._sending = threading.Lock()

    def leave(self, code: int) -> NoReturn:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    def answer(self) -> None:
        """Answer messages one at a time."""
        while data := self._sock.recv(_CHUNK):
            for message in self._frames.feed(data):
                self._send_answer(message["op"], partial(self._play, message))

    async def answer_in_loop(self) -> None:
        """Answer messages in one event loop. It keeps running between messages, so background tasks go on."""
        loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        while data := await loop.sock_recv(self._sock, _CHUNK):
            for message in self._frames.feed(data):
                await self._answer_awaiting(message)

    async def _answer_awaiting(self, message: dict[str, Any]) -> None:
        try:
            result = self._play(message)
            value = await result if inspect.isawaitable(result) else result
        except BaseException as error:
            self._send_answer(message["op"], partial(_raise, error))
        else:
            self._send_answer(message["op"], partial(_identity, value))

    def _play(self, message: dict[str, Any]) -> Any:
        return self._begin(message)()

    def _begin(self, message: dict[str, Any]) -> Work:
        match message["op"]:
            case "reset":
                self._instance = Instance(self._spec, self._prepared, self._notice)
                task = message["task"]
                return self._instance.reset(
                    seed=message["seed"],
                    # The gateway has checked it. To check a prompt's images again would import the MCP SDK's types.
                    task=Task.model_construct(**task) if task is not None else None,
                    secrets=message["secrets"],
                )
            case "call":
                assert self._instance is not None
                progress = self._progress if message["progress"] else None
                return self._instance.call(message["tool"], message["arguments"], progress)
            case "legal":
                assert self._instance is not None
                return self._instance.legal_calls()
            case "score":
                assert self._instance is not None
                return self._instance.score()
            case "final_state":
                assert self._instance is not None
                return self._instance.final_state()
            case "snapshot":
                assert self._instance is not None
                return self._instance.snapshot()
            case "restore":
                assert self._instance is not None
                return self._instance.restore(untold(message["snapshot"]))
            case _:
                return self._instance.close() if self._instance is not None else _nothing

    def _send_answer(self, op: str, work: Work) -> None:
        broken: BaseException | None = None
        try:
            value = work()
            if inspect.isawaitable(value):
                value = asyncio.run(_awaiting(value))
            answer = encode(_said(op, value))
        except InvalidArguments as error:
            answer = encode({"refused": "arguments", "message": str(error)})
        except ToolError as error:
            answer = _refusal(error)
        except AtCapacity as error:
            answer = encode({"refused": "full", "message": str(error), "retry_after": error.retry_after})
        except UpstreamLost as error:
            answer = encode({"upstream": str(error), "broken": _told(error)})
        except BaseException as error:
            broken = error
            answer = encode({"broken": _told(error)})
        self._send(answer)
        if isinstance(broken, KeyboardInterrupt):
            raise broken

    def _notice(self, running: bool) -> None:
        self._send(encode({"player": running}))

    def _progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._send(encode({"progress": [progress, total, message]}))

    def _send(self, frame: bytes) -> None:
        with self._sending:
            left = memoryview(frame)
            while left:
                try:
                    left = left[self._sock.send(left) :]
                except BlockingIOError:
                    # Progress is sent from sync code, which cannot await: wait until the socket is writable.
                    # That cannot take for ever, because the gateway always keeps reading.
                    select.select([], [self._sock], [])


def _said(op: str, value: Any) -> dict[str, Any]:
    if op == "call" and type(value) is str:
        # Fast path for the most common result, plain text.
        return {"content": (text_block(value),)}
    match op:
        case "call":
            return _stepped(StepResult.of(value))
        case "reset":
            value = first_observation(value)
            return {"content": value.content, "structured": value.structured_content}
        case "legal":
            return {"calls": legal_calls_of(value)}
        case "score":
            return {"reward": reward_of(value)}
        case "final_state":
            return {"state": to_jsonable_python(value)}
        case "snapshot":
            return {"snapshot": text_of(value)}
        case "restore":
            return {"restored": True}
        case _:
            return {"closed": True}


def _stepped(result: StepResult) -> dict[str, Any]:
    said: dict[str, Any] = {"content": result.observation.content}
    # Omit fields that have their default: most steps have no reward and no info.
    if result.observation.structured_content is not None:
        said["structured"] = result.observation.structured_content
    if result.reward is not None:
        said["reward"] = result.reward
    if result.terminated:
        said["terminated"] = True
    if result.truncated:
        said["truncated"] = True
    if result.info:
        said["info"] = result.info
    return said


def _refusal(error: ToolError) -> bytes:
    said: dict[str, Any] = {"refused": "tool", "message": str(error)}
    try:
        if error.content is not None:
            said["content"] = observe(error.content).content
        return encode(said)
    except Exception as broken:
        return encode({"broken": _told(broken)})


def _told(error: BaseException) -> str:
    """The traceback for the gateway's log, shortened if it is long."""
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= 20_000 else f"{text[:10_000]}\n...\n{text[-10_000:]}"


async def _awaiting(value: Awaitable[Any]) -> Any:
    return await value


def _raise(error: BaseException) -> NoReturn:
    raise error


def _identity(value: Any) -> Any:
    return value


def _nothing() -> None:
    """Do nothing: no instance was made, so there is nothing to close."""
