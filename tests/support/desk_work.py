"""Agents that play in an event loop of their own, while the test's thread samples for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from envport_bridges.agents.model.desk import ModelDesk


def work_while(desk: ModelDesk, play: Callable[[], Coroutine[Any, Any, None]], agents: int = 1) -> None:
    """Answer the requests of so many agents until they have played; raises what they raised."""
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(play())
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()
            desk.wake()

    thread = threading.Thread(target=run)
    thread.start()
    desk.work(over.is_set, lambda: agents)
    thread.join()
    if failed:
        raise failed[0]
