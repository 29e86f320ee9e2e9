"""A session of the protocol: the cookie that names an episode, and the row that it was opened for."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from envport.errors import InvalidRequest, UnknownEpisode
from envport_bridges.nemo_gym.messages import RowChoice

__all__ = ["COOKIE", "NemoGymSession"]

COOKIE = "envport-nemo-gym"
"""Name of the cookie."""

_DIGEST_BYTES = 16


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

    def mark(self, response: Response) -> None:
        """Set the cookie in an answer.

        Every answer needs it, because agents send the cookies of the last one. They also send the cookie through
        servers of their own, so its path is `/`.
        """
        response.set_cookie(COOKIE, f"{self.handle}.{self.row}", path="/", httponly=True, samesite="strict")


def _digest(choice: RowChoice) -> str:
    said = choice.model_dump_json(exclude_defaults=True).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(said).digest()[:_DIGEST_BYTES]).decode().rstrip("=")
