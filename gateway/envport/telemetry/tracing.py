"""OpenTelemetry spans. Without a tracer provider, no spans are made and no headers are read.

A span never contains arguments, observations or messages, because they may be secret.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry import context, propagate, trace

__all__ = ["TRACED_KEY", "OpenSpan", "annotate", "begin_span", "caller_joined", "current_ids", "traced"]

Attribute = str | int | float | bool

_tracer = trace.get_tracer("envport")
_NOT_JOINED = nullcontext()

_LOOK_SECONDS = 0.1

TRACED_KEY = "envport.traced"
"""In the ASGI scope of a request for which spans are collected."""


class _Look:
    """Whether a tracer provider is set, as it was a moment ago: OpenTelemetry reads the environment to tell."""

    def __init__(self) -> None:
        self._found = False
        self._again = 0.0

    def __call__(self) -> bool:
        if self._found or (now := time.monotonic()) < self._again:
            return self._found
        self._again = now + _LOOK_SECONDS
        self._found = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        return self._found


_look = _Look()


def traced() -> bool:
    """Whether a tracer provider is set. One that is set later is noticed within a tenth of a second."""
    return _look()


class OpenSpan:
    """A span that is the current span until it ends. It has to begin and end in the same task.

    Args:
        name: Name of the span.
        attributes: Attributes of the span; those that are `None` are left out.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, name: str, attributes: Mapping[str, Attribute | None]):
        asked_by = trace.get_current_span().get_span_context()
        kind = trace.SpanKind.SERVER if asked_by.is_remote else trace.SpanKind.INTERNAL
        self._span = _tracer.start_span(name, kind=kind, attributes=_known(attributes))
        self._token = context.attach(trace.set_span_in_context(self._span))

    def set(self, attributes: Mapping[str, Attribute | None]) -> None:
        """Add attributes; those that are `None` are left out."""
        self._span.set_attributes(_known(attributes))

    def end(self, error: str | None = None) -> None:
        """End the span.

        Args:
            error: The type of the error, if there was one.
        """
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(trace.StatusCode.ERROR)
        context.detach(self._token)
        self._span.end()


def begin_span(name: str, environment: str, episode_id: str | None, tool: str | None = None) -> OpenSpan | None:
    """Begin a span about an episode. Returns `None` if spans are not collected.

    Args:
        name: Name of the span.
        environment: Name of the environment.
        episode_id: The episode's handle, if it exists already.
        tool: Name of the tool, if the span is about a call.
    """
    if not traced():
        return None
    return OpenSpan(name, {"envport.environment": environment, "envport.episode.id": episode_id, "envport.tool": tool})


def annotate(attributes: Mapping[str, Attribute | None]) -> None:
    """Add attributes to the current span, if there is one; those that are `None` are left out."""
    if traced():
        trace.get_current_span().set_attributes(_known(attributes))


def caller_joined(scope: MutableMapping[str, Any]) -> AbstractContextManager[None]:
    """Continue the trace that a request's headers name (W3C Trace Context: `traceparent`).

    Args:
        scope: The ASGI scope of the request.
    """
    if not traced():
        return _NOT_JOINED
    scope[TRACED_KEY] = True
    return _joined(scope["headers"])


@contextmanager
def _joined(headers: Iterable[tuple[bytes, bytes]]) -> Generator[None]:
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    callers = propagate.extract(carrier)
    if not trace.get_current_span(callers).get_span_context().is_valid:
        yield
        return
    token = context.attach(callers)
    try:
        yield
    finally:
        context.detach(token)


def current_ids() -> tuple[str, str] | None:
    """The ids of the current trace and span, in hex; `None` if there is no current span."""
    current = trace.get_current_span().get_span_context()
    if not current.is_valid:
        return None
    return trace.format_trace_id(current.trace_id), trace.format_span_id(current.span_id)


def _known(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {name: value for name, value in attributes.items() if value is not None}
