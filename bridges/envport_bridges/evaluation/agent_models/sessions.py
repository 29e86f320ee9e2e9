"""A served model as evaluations use it: a session for each episode, with what it used up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

import httpx2

from envport.client.certificates import trusted
from envport.client.reasons import reason_of
from envport.errors import EnvportError, InvalidAccess

__all__ = ["AgentModelUnreachable", "ModelSessions", "RemoteSession", "UsedTokens"]

_SECONDS = 20.0
_UNAUTHORIZED, _UNKNOWN = 401, 404
_QUOTED = 300


class AgentModelUnreachable(EnvportError):
    """The server of an agent's model gave no usable answer. This says nothing about the agent."""

    code = "agent_model_unreachable"


@dataclass(frozen=True)
class UsedTokens:
    """What a session has used.

    Attributes:
        requests: Turns that the model wrote.
        prompt: Tokens of their contexts.
        completion: Tokens that the model wrote.
        cached: Tokens of contexts that were taken over from an earlier turn.
        failed: Requests that failed by a fault of the server.
        failing: Whether the last request did.
        refused: Requests that were refused, by the code of the refusal.
        ignored: Requests with a setting that is not honoured, by the setting.
    """

    requests: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    failed: int = 0
    failing: bool = False
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    ignored: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read what the server tells of a session."""
        return cls(
            requests=int(document["requests"]),
            prompt=int(document["prompt_tokens"]),
            completion=int(document["completion_tokens"]),
            cached=int(document["cached_tokens"]),
            failed=int(document["failed"]),
            failing=bool(document["failing"]),
            refused=document["refused"],
            ignored=document["ignored"],
        )


@dataclass(frozen=True)
class RemoteSession:
    """A session of one episode's agent.

    Attributes:
        session_id: Its id, for whoever has the control token.
        token: The bearer token of the agent's requests.
    """

    session_id: str
    token: str = field(repr=False)


class ModelSessions:
    """Begins and ends sessions at a served model. To be used with `async with`.

    Args:
        url: Address of the server, without `/v1`.
        token: Its control token.
    """

    def __init__(self, url: str, token: str):
        self._url = url
        self._http = httpx2.AsyncClient(base_url=url, headers=_headers(token), timeout=_SECONDS, verify=trusted())

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._http.__aexit__(*error)

    async def begin(self, labels: Mapping[str, str]) -> RemoteSession:
        """Begin a session.

        Args:
            labels: What the session is for, for whoever looks at the server.

        Raises:
            AgentModelUnreachable: There is no usable answer.
        """
        found = await self._ask("POST", "/sessions", {"labels": dict(labels)})
        return RemoteSession(found["session_id"], found["token"])

    async def used(self, session: RemoteSession) -> UsedTokens:
        """What a session has used until now.

        Raises:
            AgentModelUnreachable: There is no usable answer, or the server does not know the session.
        """
        return UsedTokens.read(await self._ask("GET", f"/sessions/{session.session_id}"))

    async def end(self, session: RemoteSession) -> UsedTokens:
        """End a session. Its token is refused from now on.

        Returns:
            What it has used.

        Raises:
            AgentModelUnreachable: There is no usable answer, or the server does not know the session.
        """
        return UsedTokens.read(await self._ask("DELETE", f"/sessions/{session.session_id}"))

    async def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, json=body)
        except httpx2.HTTPError as error:
            raise _unreachable(self._url, error) from error
        return _document(response, self._url)


def describe(url: str, token: str) -> dict[str, Any]:
    """What a served model is: its name, the fingerprint of its weights, and how it is sampled from.

    Args:
        url: Address of the server, without `/v1`.
        token: Its control token.

    Raises:
        AgentModelUnreachable: There is no usable answer.
        InvalidAccess: The token is wrong, or the server has none, so that what an agent uses would not be known.
    """
    try:
        with httpx2.Client(base_url=url, timeout=_SECONDS, verify=trusted()) as http:
            open_to_all = http.get("/model").is_success
            response = http.get("/model", headers=_headers(token))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _unreachable(url, error) from error
    described = _document(response, url)
    if not {"name", "weights", "settings"} <= described.keys():
        raise AgentModelUnreachable(f"{url} is no `envport model serve`: it does not say which model it serves")
    if open_to_all:
        raise InvalidAccess(
            f"the model's server at {url} has no token, so an agent could use it outside of its session: start "
            "`envport model serve` with ENVPORT_MODEL_TOKEN set, or give a folder, and a server is started for it"
        )
    return described


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _document(response: httpx2.Response, url: str) -> dict[str, Any]:
    if response.status_code == _UNAUTHORIZED:
        raise InvalidAccess(f"the model's server at {url} does not accept the token in ENVPORT_MODEL_TOKEN")
    if response.status_code == _UNKNOWN and "/sessions/" in response.url.path:
        raise AgentModelUnreachable(f"the model's server at {url} does not know the session: it was started again")
    if not response.is_success:
        said = response.text[:_QUOTED]
        raise AgentModelUnreachable(
            f"{url} is no `envport model serve`: it answers {response.request.method} {response.url.path} with "
            f"{response.status_code}: {said}"
        )
    try:
        return cast("dict[str, Any]", response.json())
    except ValueError as error:
        raise AgentModelUnreachable(f"{url} is no `envport model serve`: it does not answer with JSON") from error


def _unreachable(url: str, error: Exception) -> AgentModelUnreachable:
    return AgentModelUnreachable(f"the model's server does not answer at {url}: {reason_of(error)}")
