"""Where the requests of all agents meet what samples for them: asked in event loops, worked off in one thread."""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from envport_bridges.agents.apis.requests import ModelReply, ModelRequest, RequestRefused
from envport_bridges.agents.model.calls import Conversation, ModelCall
from envport_bridges.agents.model.chat import CannotRender, ChatFormat
from envport_bridges.agents.model.contexts import ContextLimits, ModelContext, context_of
from envport_bridges.agents.model.sampling import Sampled, Sampler, SampleRequest
from envport_bridges.agents.model.sessions import ModelSession
from envport_bridges.agents.model.written import written_call

__all__ = ["DeskFigures", "ModelDesk"]

logger = logging.getLogger(__name__)

_LEAST_LINGER = 0.02
_LINGER_SHARE = 0.25
"""A batch costs hardly more than a single request, so a request waits for others: by this share of the time of the
latest batch. A request that comes too late waits for a whole batch, and its agent stays late from then on."""

_RunningKey = tuple[ModelSession, Conversation, int | None, tuple[str, ...]]


@dataclass
class DeskFigures:
    """What a desk has done.

    Attributes:
        calls: Turns that were sampled.
        batches: How often the sampler was asked.
        extended: Turns whose request extends an earlier one.
        tokenized_differently: How many of those would have had another context if the agent's words had been tokenized
            again; counted only if asked for.
        sampling_seconds: Seconds in the sampler.
        tokenizing_seconds: Seconds of making contexts.
    """

    calls: int = 0
    batches: int = 0
    extended: int = 0
    tokenized_differently: int = 0
    sampling_seconds: float = 0.0
    tokenizing_seconds: float = 0.0


@dataclass(eq=False)
class _Asked:
    session: ModelSession
    request: ModelRequest
    conversation: Conversation
    resent: bool | None
    answer: Future[ModelReply] = field(default_factory=Future[ModelReply])

    @property
    def key(self) -> _RunningKey:
        return self.session, self.conversation, self.request.max_tokens, self.request.stop


@dataclass(eq=False)
class _Sampling:
    """A request that is being sampled, and all who wait for it."""

    context: ModelContext
    waiting: list[_Asked]

    @property
    def first(self) -> _Asked:
        return self.waiting[0]


class ModelDesk:
    """Answers requests with what a sampler writes; a `ReplySource`.

    Requests come in from any event loop. One thread calls `work`, and that thread alone tokenizes, samples, and records
    what was sampled: the trainer's, or the main one of a server.

    Attributes:
        figures: What was done.

    Args:
        chat: The model's chat format.
        sampler: What samples.
        limits: How long conversations may become.
        compare_tokenizing: Whether to count contexts that tokenizing the agent's words again would change. It doubles
            the work of making contexts.
        survives: Whether to go on when the sampler fails, as a server does. Otherwise, `work` raises what it raised.
    """

    def __init__(
        self,
        chat: ChatFormat,
        sampler: Sampler,
        limits: ContextLimits,
        compare_tokenizing: bool = False,
        survives: bool = False,
    ):
        self.figures = DeskFigures()
        self._chat = chat
        self._sampler = sampler
        self._limits = limits
        self._linger = _LEAST_LINGER
        self._compare = compare_tokenizing
        self._survives = survives
        self._inbox: queue.SimpleQueue[_Asked | tuple[_Sampling, Future[Sampled]] | None] = queue.SimpleQueue()
        self._sampling: dict[_RunningKey, _Sampling] = {}

    async def reply(self, session: ModelSession, request: ModelRequest, *, resent: bool | None) -> ModelReply:
        """The next turn of the model; see `ReplySource`.

        A request that the client sent before is not sampled again: it gets the answer that is recorded, or that is on
        its way. Where the client does not say whether it did, an equal request counts as sent before.
        """
        asked = _Asked(session, request, Conversation.of(request), resent)
        with session.answering():
            self._inbox.put(asked)
            return await asyncio.wrap_future(asked.answer)

    def wake(self) -> None:
        """Have `work` look again whether it is over. From any thread."""
        self._inbox.put(None)

    def work(self, over: Callable[[], bool], expected: Callable[[], int]) -> None:
        """Answer requests until it is over.

        Args:
            over: Whether it is over; asked whenever something happened, and after `wake`.
            expected: How many agents could ask now. A batch waits for no more requests than that.

        Raises:
            Exception: The sampler failed. The requests that waited for it were told so.
        """
        while not over():
            asked, sampled = self._collect(expected)
            for sampling, future in sampled:
                self._finish(sampling, future)
            self._sample([sampling for one in asked if (sampling := self._begin(one)) is not None])

    def _collect(self, expected: Callable[[], int]) -> tuple[list[_Asked], list[tuple[_Sampling, Future[Sampled]]]]:
        """What happened, at least one thing. Waits for further requests if it is worth it."""
        asked: list[_Asked] = []
        sampled: list[tuple[_Sampling, Future[Sampled]]] = []
        until: float | None = None
        while True:
            try:
                news = self._inbox.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                return asked, sampled
            if isinstance(news, _Asked):
                asked.append(news)
            elif news is not None:
                sampled.append(news)
            if self._sampler.gathers and 0 < len(asked) < expected():
                until = until or time.monotonic() + self._linger
            else:
                until = time.monotonic()

    def _begin(self, asked: _Asked) -> _Sampling | None:
        """What has to be sampled for a request, if it can be answered and nothing answers it already."""
        if asked.answer.cancelled():
            return None
        if not asked.session.open:
            _tell(asked.answer, RequestRefused(401, "invalid_api_key", "the episode is over"))
            return None
        repeats = asked.session.repeats if asked.resent is None else asked.resent
        if repeats and self._answered_before(asked):
            return None
        try:
            context = self._context(asked)
        except RequestRefused as refused:
            _tell(asked.answer, refused)
            return None
        except Exception as error:
            self._fail([asked], error)
            return None
        sampling = _Sampling(context, [asked])
        self._sampling[asked.key] = sampling
        return sampling

    def _answered_before(self, asked: _Asked) -> bool:
        if running := self._sampling.get(asked.key):
            running.waiting.append(asked)
            return True
        known = asked.session.calls.same(asked.conversation, asked.request)
        if known is not None and asked.answer.set_running_or_notify_cancel():
            known.seen = True
            asked.answer.set_result(known.reply)
        return known is not None

    def _context(self, asked: _Asked) -> ModelContext:
        began = time.perf_counter()
        context = context_of(asked.request, asked.conversation, asked.session.calls, self._chat, self._limits)
        self.figures.tokenizing_seconds += time.perf_counter() - began
        if context.parent is not None:
            # Nobody could go on from a turn without having seen it.
            context.parent.seen = True
            self.figures.extended += 1
            if self._compare:
                self.figures.tokenized_differently += self._differs(asked.request, context)
        return context

    def _differs(self, request: ModelRequest, context: ModelContext) -> bool:
        try:
            return self._chat.render(request.messages, request.tools) != context.prompt_ids
        except CannotRender:
            return True

    def _sample(self, samplings: Sequence[_Sampling]) -> None:
        if not samplings:
            return
        began = time.perf_counter()
        requests = [SampleRequest(one.context.prompt_ids, one.context.room) for one in samplings]
        try:
            futures = self._sampler.sample(requests)
        except BaseException as error:
            for sampling in samplings:
                self._forget(sampling)
            self._fail([asked for sampling in samplings for asked in sampling.waiting], error)
            return
        finally:
            taken = time.perf_counter() - began
            self.figures.sampling_seconds += taken
            self._linger = max(_LEAST_LINGER, _LINGER_SHARE * taken)
        self.figures.batches += 1
        self.figures.calls += len(samplings)
        for sampling, future in zip(samplings, futures, strict=True):
            if future.done():
                self._finish(sampling, future)
            else:
                future.add_done_callback(lambda done, sampling=sampling: self._inbox.put((sampling, done)))

    def _finish(self, sampling: _Sampling, future: Future[Sampled]) -> None:
        first = sampling.first
        self._forget(sampling)
        try:
            call = written_call(first.request, sampling.context, future.result(), self._chat)
        except BaseException as error:
            self._fail(sampling.waiting, error)
            return
        first.session.totals.add(call.reply.usage)
        first.session.failing = False
        if first.session.open:
            first.session.calls.add(call)
        call.seen = self._answer(sampling, call)

    def _forget(self, sampling: _Sampling) -> None:
        if self._sampling.get(sampling.first.key) is sampling:
            del self._sampling[sampling.first.key]

    def _answer(self, sampling: _Sampling, call: ModelCall) -> bool:
        """Answer all who wait, and say whether anybody did."""
        waiting = [asked for asked in sampling.waiting if asked.answer.set_running_or_notify_cancel()]
        for asked in waiting:
            asked.answer.set_result(call.reply)
        return bool(waiting)

    def _fail(self, waiting: Sequence[_Asked], error: BaseException) -> None:
        """Tell those who wait that there is no answer. Raises the error, unless work goes on."""
        for asked in waiting:
            asked.session.failed += 1
            asked.session.failing = True
            _tell(asked.answer, RuntimeError(f"the model failed: {type(error).__name__}"))
        if not self._survives or not isinstance(error, Exception):
            raise error
        logger.error("the model failed: %s", error, exc_info=error)


def _tell(answer: Future[ModelReply], error: Exception) -> None:
    if answer.set_running_or_notify_cancel():
        answer.set_exception(error)
