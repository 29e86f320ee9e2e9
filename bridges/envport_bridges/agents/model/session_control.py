"""Sessions at a served model, for whoever has the control token: begun, looked at, ended, and expired."""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope

from envport_bridges.agents.apis.requests import RequestRefused
from envport_bridges.agents.model.calls import CallTree
from envport_bridges.agents.model.sessions import SESSION_TOKEN, ModelSession

__all__ = ["SessionControl", "SessionHolder"]

_MOST_CALLS = 10_000
_MOST_SESSIONS = 10_000
_KEPT_SHARED = 256
_MOST_LABELS = 16
_LONGEST_LABEL = 200


class SessionHolder(Protocol):
    """Where sessions are answered: the surface of the endpoint."""

    def open(self, session: ModelSession) -> None:
        """Answer the requests of a session."""
        ...

    def open_to_all(self, session: ModelSession) -> None:
        """Answer requests that have no session's token as those of this session."""
        ...

    async def end(self, session: ModelSession) -> None:
        """Answer a session no more."""
        ...

    def find(self, headers: Headers) -> ModelSession | None:
        """The session of a request."""
        ...


@dataclass(eq=False)
class _Held:
    session_id: str
    session: ModelSession
    labels: Mapping[str, str]
    used_at: float


class SessionControl:
    """The routes `/sessions` and `/model`, and the session of those who have no session.

    | route | answer |
    |---|---|
    | `POST /sessions` `{max_calls?, labels?}` | `{session_id, token}` |
    | `GET /sessions/ID` | what it has used |
    | `DELETE /sessions/ID` | ends it: its token is refused from now on; what it has used |
    | `GET /model` | what the model is |

    Requests to the model with the control token itself belong to a session of their own, of which only the latest turns
    are kept.

    Args:
        description: What the model is.
        token: The control token; without one, everybody may do everything.
        idle_seconds: Seconds after which a session ends that nobody uses or looks at.
        clock: Gives the time in seconds.
    """

    def __init__(
        self,
        description: Mapping[str, Any],
        *,
        token: str | None,
        idle_seconds: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._description = dict(description)
        self._token = token
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._of: dict[ModelSession, _Held] = {}
        self._shared = ModelSession(sys.maxsize, token or "", calls=CallTree(most=_KEPT_SHARED), repeats=False)

    @property
    def sessions(self) -> int:
        """How many sessions there are, with the shared one."""
        return len(self._held) + 1

    def attach(self, holder: SessionHolder) -> None:
        """Begin and end sessions there."""
        if self._token is None:
            holder.open_to_all(self._shared)
        else:
            holder.open(self._shared)

    async def answer(self, holder: SessionHolder, scope: Scope, receive: Receive) -> Response | None:
        """Answer a request; `None` if its path is none of these.

        Raises:
            RequestRefused: The token is wrong, or there is no such session.
        """
        await self._expire(holder)
        headers = Headers(scope=scope)
        session = holder.find(headers)
        if session is not None and session in self._of:
            self._of[session].used_at = self._clock()
        root, _, session_id = scope["path"].removeprefix("/").partition("/")
        if root not in ("sessions", "model"):
            return None
        self._require_token(headers)
        match scope["method"], root, session_id:
            case "GET", "model", "":
                return JSONResponse(self._description)
            case "POST", "sessions", "":
                return JSONResponse(self._begin(holder, await _body(scope, receive)), 201)
            case "GET", "sessions", _ if session_id:
                held = self._find(session_id)
                held.used_at = self._clock()
                return JSONResponse(_usage(held))
            case "DELETE", "sessions", _ if session_id:
                held = self._find(session_id)
                await self._end(holder, held)
                return JSONResponse(_usage(held))
            case _:
                raise RequestRefused(405, "method_not_allowed", f"{scope['path']} does not take {scope['method']}")

    def _require_token(self, headers: Headers) -> None:
        given = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if self._token is not None and not hmac.compare_digest(given.encode(), self._token.encode()):
            raise RequestRefused(401, "invalid_api_key", "sessions are begun and ended with the control token")

    def _begin(self, holder: SessionHolder, asked: Mapping[str, Any]) -> dict[str, Any]:
        if unknown := sorted(set(asked) - {"max_calls", "labels"}):
            raise _invalid(f"there is no field {unknown[0]!r}; there are max_calls and labels")
        max_calls, labels = asked.get("max_calls", _MOST_CALLS), asked.get("labels", {})
        if isinstance(max_calls, bool) or not isinstance(max_calls, int) or max_calls < 1:
            raise _invalid(f"max_calls is {max_calls!r}; it has to be a whole number of at least 1")
        if len(self._held) >= _MOST_SESSIONS:
            raise RequestRefused(429, "too_many_sessions", f"there are {_MOST_SESSIONS} sessions: end some")
        session = ModelSession(max_calls, f"{SESSION_TOKEN}{secrets.token_urlsafe(32)}")
        held = _Held(secrets.token_hex(8), session, _labels(labels), self._clock())
        self._held[held.session_id] = self._of[session] = held
        holder.open(session)
        return {"session_id": held.session_id, "token": session.token}

    def _find(self, session_id: str) -> _Held:
        found = self._held.get(session_id)
        if found is None:
            raise RequestRefused(404, "unknown_session", "there is no such session: it has ended, or has expired")
        return found

    async def _end(self, holder: SessionHolder, held: _Held) -> None:
        del self._held[held.session_id]
        del self._of[held.session]
        await holder.end(held.session)

    async def _expire(self, holder: SessionHolder) -> None:
        until = self._clock() - self._idle_seconds
        for held in [held for held in self._held.values() if held.used_at < until and not held.session.waiting]:
            await self._end(holder, held)


async def _body(scope: Scope, receive: Receive) -> Mapping[str, Any]:
    try:
        written = await Request(scope, receive).body()
    except ClientDisconnect as error:
        raise _invalid("the client has left") from error
    try:
        value: Any = json.loads(written or b"{}")
    except ValueError as error:
        raise _invalid(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _invalid("the body has to be a JSON object")
    return cast("dict[str, Any]", value)


def _labels(labels: Any) -> Mapping[str, str]:
    pairs = cast("dict[Any, Any]", labels) if isinstance(labels, dict) else None
    texts = pairs is not None and all(isinstance(text, str) and len(text) <= _LONGEST_LABEL for text in pairs.values())
    if pairs is None or not texts or len(pairs) > _MOST_LABELS:
        raise _invalid(
            f"labels have to be an object of at most {_MOST_LABELS} texts, each of at most {_LONGEST_LABEL} characters"
        )
    return cast("dict[str, str]", pairs)


def _usage(held: _Held) -> dict[str, Any]:
    session = held.session
    return {
        "session_id": held.session_id,
        "labels": dict(held.labels),
        "requests": session.totals.turns,
        "prompt_tokens": session.totals.prompt,
        "completion_tokens": session.totals.completion,
        "cached_tokens": session.totals.cached,
        "failed": session.failed,
        "failing": session.failing,
        "refused": dict(session.refused),
        "ignored": dict(session.ignored),
    }


def _invalid(message: str) -> RequestRefused:
    return RequestRefused(400, "invalid_request_error", message)
