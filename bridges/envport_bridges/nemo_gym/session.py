"""A session of the protocol: the cookie that names an episode, and the row that it was opened for."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from envport.errors import InvalidRequest, UnknownEpisode
from envport_bridges.nemo_gym.messages import RowChoice

__all__ = ["COOKIE", "NemoGymSession", "SessionCookies", "set_cookie"]

COOKIE = "envport-nemo-gym"
"""Name of the cookie."""

_DIGEST_BYTES = 16
_VALUE = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class NemoGymSession:
    """A session. Nothing is kept of it here: its cookie has all, so that it may go on at another replica.

    Attributes:
        handle: Handle of its episode, which cannot be guessed.
        row: Digest of what its row says for envport. The agent of NeMo Gym takes the path of a call from its model, so
            that a model can reach `/verify`. It does not know its row, and so gets no answer there.
    """

    handle: str
    row: str

    @classmethod
    def begun(cls, handle: str, choice: RowChoice) -> NemoGymSession:
        """The session of an episode that was opened for a row."""
        return cls(handle, _digest(choice))

    @classmethod
    def of(cls, cookies: Mapping[str, str]) -> NemoGymSession:
        """The session that a request names.

        Raises:
            InvalidRequest: It names none.
            UnknownEpisode: Its cookie is malformed.
        """
        value = cookies.get(COOKIE)
        if value is None:
            raise InvalidRequest(f"there is no cookie {COOKIE}: begin with /seed_session, and send its cookie along")
        handle, _, row = value.rpartition(".")
        if not handle:
            raise UnknownEpisode
        return cls(handle, row)

    def require(self, choice: RowChoice) -> None:
        """Check that the session was begun for this row.

        Raises:
            InvalidRequest: It was begun for another.
        """
        if not hmac.compare_digest(self.row, _digest(choice)):
            raise InvalidRequest("verifier_metadata.envport has to be that of the row that this session was begun for")

    @property
    def cookie(self) -> str:
        """The value of its cookie."""
        return f"{self.handle}.{self.row}"


class SessionCookies:
    """Sets the cookie of a session in every answer to a request that bears it, also in refusals.

    Agents send the cookies of the last answer, and no others.

    Args:
        app: What answers.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        cookie = HTTPConnection(scope).cookies.get(COOKIE)

        async def send_with_cookie(message: Message) -> None:
            if cookie is not None and _VALUE.fullmatch(cookie) and message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("set-cookie", set_cookie(cookie))
            await send(message)

        await self._app(scope, receive, send_with_cookie)


def set_cookie(value: str) -> str:
    """The header that sets the cookie of a session. Agents also send it to servers of their own: its path is `/`."""
    return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict"


def _digest(choice: RowChoice) -> str:
    said = choice.model_dump_json(exclude_defaults=True).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(said).digest()[:_DIGEST_BYTES]).decode().rstrip("=")
