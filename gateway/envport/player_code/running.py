"""Runs the player's code for an environment, and says while it is running."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

import anyio
import anyio.to_thread

from envport.errors import ConfigurationError, UpstreamLost
from envport.player_code.bubblewrap import PlayerLimits, Readable, SandboxView
from envport.player_code.channel import START_SECONDS
from envport.player_code.result import PlayerRun
from envport.player_code.workspace import DEFAULT_SECONDS, Files, Hooks, Workspace
from envport.sandboxing import ADVICE

__all__ = ["PlayerCode", "require_player_code"]


class PlayerCode:
    """Runs the player's code in sandboxes. An environment with `runs_player_code` has one as `self.player_code`.

    The code sees the system's programs and libraries and its own files, and nothing else of this machine: not the
    environment's memory, files or variables, no network, no other process.

    Args:
        notice: Told when code of the player begins to run, and when none is running any more.
    """

    def __init__(self, notice: Callable[[bool], None] | None = None):
        self._notice = notice
        self._lock = threading.Lock()
        self._running = 0
        self._workspaces: set[Workspace] = set()

    @property
    def running(self) -> bool:
        """Whether code of the player is running now."""
        return self._running > 0

    def workspace(
        self,
        *,
        limits: PlayerLimits = PlayerLimits(),  # noqa: B008
        readable: Readable = (),
        links: Mapping[str, str] | None = None,
    ) -> Workspace:
        """A sandbox with a working folder that stays from one run to the next.

        Args:
            limits: What all runs in it may use.
            readable: Files and folders of this machine that its code may read: at the same paths, or by their paths in
                the sandbox.
            links: Symbolic links in the sandbox: where each leads, by its path. With `{"/app": "/work/app"}`, a folder
                in the working folder is found at another path.

        Raises:
            UpstreamLost: This machine cannot make a sandbox now.
            ValueError: Something that is to be readable does not exist, or a path in the sandbox is not absolute.
        """
        try:
            made = Workspace(limits, SandboxView(readable, links or {}), Hooks(self._announced, self._forget))
        except (ConfigurationError, OSError) as error:
            raise UpstreamLost(str(error)) from error
        with self._lock:
            self._workspaces.add(made)
        return made

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = "",
        timeout: float = DEFAULT_SECONDS,
        files: Files | None = None,
        variables: Mapping[str, str] | None = None,
        limits: PlayerLimits = PlayerLimits(),  # noqa: B008
        readable: Readable = (),
    ) -> PlayerRun:
        """Run a program of the player in a new sandbox, which is gone at the end; see `Workspace.run` and `workspace`.

        Raises:
            UpstreamLost: This machine cannot make a sandbox now.
        """
        with self.workspace(limits=limits, readable=readable) as made:
            return made.run(argv, stdin=stdin, timeout=timeout, files=files, variables=variables)

    async def run_async(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = "",
        timeout: float = DEFAULT_SECONDS,  # noqa: ASYNC109
        files: Files | None = None,
        variables: Mapping[str, str] | None = None,
        limits: PlayerLimits = PlayerLimits(),  # noqa: B008
        readable: Readable = (),
    ) -> PlayerRun:
        """The same as `run`, for async tools."""
        made = await anyio.to_thread.run_sync(partial(self.workspace, limits=limits, readable=readable))
        try:
            return await made.run_async(argv, stdin=stdin, timeout=timeout, files=files, variables=variables)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(made.close)

    def close(self) -> None:
        """End all sandboxes. A run in another thread returns at once."""
        with self._lock:
            workspaces = list(self._workspaces)
        for one in workspaces:
            one.close()

    def _forget(self, workspace: Workspace) -> None:
        with self._lock:
            self._workspaces.discard(workspace)

    @contextlib.contextmanager
    def _announced(self) -> Generator[None]:
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            before, self._running = self._running, self._running + change
            if self._notice is not None and (before == 0 or self._running == 0):
                self._notice(self._running > 0)


def require_player_code() -> None:
    """Check that this machine can run code of the player.

    Raises:
        ConfigurationError: It cannot; the message says what to install or allow.
    """
    try:
        run = PlayerCode().run(["true"], timeout=START_SECONDS)
    except UpstreamLost as error:
        raise ConfigurationError(str(error)) from None
    if not run.ok:
        raise ConfigurationError(f"code of the player cannot be run here: {run}. {ADVICE}")
