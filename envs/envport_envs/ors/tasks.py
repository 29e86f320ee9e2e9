"""The tasks of an Open Reward Standard server, read when they are asked for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, cast, overload

from envport import Task, ToolError, UpstreamLost
from envport_envs.lazy_tasks import LazyTasks
from envport_envs.ors.server import WHAT, OrsServer
from envport_envs.ors.session import OrsSession
from envport_envs.ors.stream import SESSION, begin_session
from envport_envs.ors.tools import OrsListing
from envport_envs.upstream.faults import CallRaised, ServerFull
from envport_envs.upstream.http import UpstreamHttp, http_client
from envport_envs.upstream.task_api import task_range

__all__ = ["RemoteTasks", "SplitTasks", "created_with", "first_spec", "looking", "task_of", "tools_of_task"]

SplitTasks = int | tuple[Any, ...]
"""How many tasks a split has; or what the server says of each, if it does not count them."""

_PAGE = 50
_KEPT = 1_000
_READ_SECONDS = 120.0
_END_SECONDS = 5.0


@asynccontextmanager
async def looking(server: OrsServer) -> AsyncGenerator[UpstreamHttp]:
    """Requests to a server outside an episode. The catalogue takes them in a session of their own.

    Raises:
        InvalidOption: A header names a secret that only episodes have.
        ServerFull: The catalogue has no room now.
        UpstreamLost: The catalogue cannot be reached.
    """
    async with http_client(server.address.url) as client:
        http = server.requests(client, {})
        if not server.deployment:
            yield http
            return
        try:
            await begin_session(http, {})
            yield http
        finally:
            if SESSION in http.headers:
                with suppress(TimeoutError, UpstreamLost, ServerFull):
                    async with asyncio.timeout(_END_SECONDS):
                        await http.post("/delete_session", {})


class RemoteTasks(Sequence[Task]):
    """The tasks of a split, which the server has. One is asked for alone, and those that follow in pages.

    Args:
        server: The server.
        split: The split.
        tasks: Its tasks, or how many it has.
        own_tools: Whether the tools of each task are read as well, in a session that is ended at once.
    """

    def __init__(self, server: OrsServer, split: str, tasks: SplitTasks, *, own_tools: bool = False):
        self._server = server
        self._split = split
        self._tasks = tasks
        self._number = tasks if isinstance(tasks, int) else len(tasks)
        self._own_tools = own_tools
        self._known: OrderedDict[int, Task] = OrderedDict()

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return LazyTasks(range(self._number)[index], self.__getitem__)
        index = range(self._number)[index]
        known = self._known.get(index)
        if known is not None:
            return known
        follows = index - 1 in self._known
        stop = min(self._number, index + _PAGE) if follows and not self._own_tools else index + 1
        found = _awaited(lambda: self._read(index, stop))
        self._known |= {task.metadata["index"]: task for task in found}
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found[0]

    async def _read(self, start: int, stop: int) -> list[Task]:
        try:
            specs = await self._specs(start, stop)
            tools = await tools_of_task(self._server, {"task_spec": specs[0]}) if self._own_tools else None
        except TimeoutError:
            raise UpstreamLost(f"the {WHAT} did not answer within {_READ_SECONDS:g} s") from None
        except (ServerFull, CallRaised) as error:
            raise UpstreamLost(f"the {WHAT} could not tell a task: {error}") from None
        return [task_of(self._split, start + number, spec, tools) for number, spec in enumerate(specs)]

    async def _specs(self, start: int, stop: int) -> Sequence[Any]:
        if not isinstance(self._tasks, int):
            return self._tasks[start:stop]
        async with asyncio.timeout(_READ_SECONDS), looking(self._server) as http:
            found = await task_range(http, self._server.base, self._split, start, stop) if stop - start > 1 else None
            return found or [await _spec(self._server, http, self._split, start)]


def _awaited(work: Callable[[], Coroutine[Any, Any, list[Task]]]) -> list[Task]:
    running = None
    with suppress(RuntimeError):
        running = asyncio.get_running_loop()
    if running is None:
        return asyncio.run(work())
    # The caller runs an event loop, in which no other can run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(work())).result()


def task_of(split: str, index: int, spec: Any, tools: OrsListing | None = None) -> Task:
    """A task as trainers and scorers get it.

    Args:
        split: Its split.
        index: Its index there.
        spec: What the server says of it.
        tools: Its tools, if tasks have tools of their own.
    """
    own = {} if tools is None else {"task_tools": tools}
    return Task(id=f"{split}/{index}", metadata={"split": split, "index": index, "spec": spec, **own})


def created_with(task: Task | None, splits: Mapping[str, SplitTasks]) -> dict[str, Any]:
    """What a session of a task is created with.

    Args:
        task: The task.
        splits: The splits that are served.

    Raises:
        ToolError: It is none of the server's tasks.
    """
    if task is None:
        raise ToolError("The server has no tasks to play: give the index of a task of a split.")
    split, index, spec = (task.metadata.get(key) for key in ("split", "index", "spec"))
    tasks = splits.get(split, 0) if isinstance(split, str) else 0
    number = tasks if isinstance(tasks, int) else len(tasks)
    if type(index) is not int or not 0 <= index < number:
        raise ToolError(f"The server has no task {task.id!r}: give the index of a task of a split.")
    # All servers take the task itself. It is the one that is recorded, whatever the server has at its index by now.
    return {"task_spec": cast("Any", spec)} if isinstance(spec, dict) else {"split": split, "index": index}


async def tools_of_task(server: OrsServer, created: Mapping[str, Any]) -> OrsListing:
    """The tools of a task, which only a session of it has. The session is ended at once.

    Raises:
        CallRaised: The environment raised an exception.
        InvalidOption: The session needs a secret that only episodes have.
        ServerFull: The server has no room now.
        UpstreamLost: It has failed.
    """
    session = OrsSession(server, {})
    try:
        async with asyncio.timeout(_READ_SECONDS):
            await session.open(created)
            return await session.tools()
    finally:
        await session.close()


async def first_spec(server: OrsServer, http: UpstreamHttp, split: str, tasks: SplitTasks) -> Any:
    """What the server says of the first task of a split; `None` if there is none.

    Raises:
        UpstreamLost: The server has failed.
    """
    if not isinstance(tasks, int):
        return next(iter(tasks), None)
    return await _spec(server, http, split, 0) if tasks else None


async def _spec(server: OrsServer, http: UpstreamHttp, split: str, index: int) -> Any:
    path = f"{server.base}/task"
    answer: Any = await http.post(path, {"split": split, "index": index})
    if not isinstance(answer, dict) or "task" not in answer:
        http.unexpected(path, f"has not the task {index} of the split {split!r}")
    return cast("dict[str, Any]", answer)["task"]
