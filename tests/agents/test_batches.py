"""How the requests of several agents come together in one batch."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from byte_chat import ByteChat, says
from desk_work import work_while
from scripted_sampler import ScriptedSampler

from envport_bridges.agents.apis.requests import ModelRequest
from envport_bridges.agents.model.contexts import ContextLimits
from envport_bridges.agents.model.desk import ModelDesk
from envport_bridges.agents.model.sessions import ModelSession

BATCH_SECONDS = 2.0
TOOL_SECONDS = 0.1


def test_an_agent_that_was_too_late_for_a_batch_is_in_the_next_one_with_the_others():
    began = threading.Event()

    def write(context: Sequence[int], room: int) -> list[int]:
        if not began.is_set():
            began.set()
            time.sleep(BATCH_SECONDS)
        return says("Hi!")(context, room)

    sampler = ScriptedSampler(write, gathers=True)
    desk = ModelDesk(ByteChat(), sampler, ContextLimits())

    async def ask(session: ModelSession, text: str) -> None:
        await desk.reply(session, ModelRequest([{"role": "user", "content": text}]), resent=None)

    async def early() -> None:
        session = ModelSession(max_calls=2)
        await ask(session, "Is anybody there?")
        await asyncio.sleep(TOOL_SECONDS)
        await ask(session, "And now?")

    async def late() -> None:
        await asyncio.to_thread(began.wait)
        await ask(ModelSession(max_calls=1), "I am.")

    async def play() -> None:
        await asyncio.gather(early(), late())

    work_while(desk, play, agents=2)
    assert sampler.batches == [1, 2]
