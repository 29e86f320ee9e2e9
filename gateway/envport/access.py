"""Access control: bearer tokens, their scopes, and the allowed hosts and origins of requests."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import logging
import re
import secrets
import stat
import time
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from envport.errors import InvalidAccess, PermissionDenied, Unauthenticated

logger = logging.getLogger(__name__)

__all__ = ["ANYONE", "Access", "HostPolicy", "Principal", "Scope", "is_loopback"]

Scope = Literal["control", "play", "read", "metrics"]
"""What a token allows. `control` allows the control plane, including `/metrics`. `play` allows the MCP endpoints.
`read` allows to look at the page, with rewards; see `envport.web`. `metrics` allows `/metrics` only. No scope includes
`play` or `control`."""

_SCOPES: tuple[Scope, ...] = ("control", "play", "read", "metrics")
_SHORTEST_TOKEN = 16
_EPISODE_TOKEN = "epk_"
_SESSION = b"session of the page\0"
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request is authenticated as.

    Attributes:
        name: Name of the principal, which owns its episodes.
        scopes: The scopes that it has.
        episode: Handle of the only episode that it may play; `None` if it may play all of its episodes.
    """

    name: str
    scopes: frozenset[Scope]
    episode: str | None = None

    def require(self, *scopes: Scope) -> None:
        """Check that the principal has at least one of the scopes.

        Args:
            *scopes: The scopes. One of them is enough.

        Raises:
            PermissionDenied: The principal has none of them.
        """
        if self.scopes.isdisjoint(scopes):
            raise PermissionDenied(f"this token does not have the scope {' or '.join(map(repr, scopes))}")

    def require_episode(self, handle: str | None) -> None:
        """Check that the principal may use an MCP endpoint.

        Args:
            handle: The episode that the endpoint plays; `None` for an endpoint where the player starts episodes.

        Raises:
            PermissionDenied: The scope `play` is missing, or the token is for another episode.
        """
        self.require("play")
        if self.episode is not None and self.episode != handle:
            raise PermissionDenied("this token plays one episode, and this is not its address")


ANYONE = Principal("local", frozenset(_SCOPES))
"""The principal of every request to a gateway that has no tokens."""


_Token = tuple[bytes, Principal]


class _TokenFile:
    """A token file, which is read again when it has changed.

    Args:
        path: The file.

    Raises:
        InvalidAccess: The file is unusable.
    """

    def __init__(self, path: Path):
        self._path = path
        self._seen = _signature(path)
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._tokens = _read(path)
        if self._seen is not None and self._seen[0] & (stat.S_IROTH | stat.S_IWOTH):
            _warn_of_mode(path)

    def tokens(self) -> list[_Token]:
        """The tokens in the file, as it was at most a second ago. If it became unusable, as it was before."""
        if (now := time.monotonic()) < self._next_look:
            return self._tokens
        self._next_look = now + _LOOK_SECONDS
        if (signature := _signature(self._path)) == self._seen:
            return self._tokens
        self._seen = signature
        try:
            self._tokens = _read(self._path)
            logger.info("the token file %s was read again: %d tokens", self._path, len(self._tokens))
        except InvalidAccess as error:
            logger.error("%s; the tokens that were read before stay valid", error)
        return self._tokens


@cache
def _warn_of_mode(path: Path) -> None:
    logger.warning(
        "every user of this machine can read or change the token file %s. Let only its owner do so: chmod 600", path
    )


def _signature(path: Path) -> tuple[int, ...] | None:
    """What changes with the content of a file; `None` if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns


class Access:
    """The tokens of a gateway.

    Args:
        tokens: SHA-256 digest of each token, and the principal that it authenticates. Without tokens, every client
            may do everything.
        secret: Key that signs the tokens of single episodes. Replicas have to share it. Random if not given.
        file: TOML file with more tokens. It is read again when it changes. A token that is no longer there is refused
            from then on, and so are the tokens of single episodes of a principal that has no token left.

    Raises:
        InvalidAccess: The file is unusable.
    """

    def __init__(
        self, tokens: Iterable[tuple[bytes, Principal]] = (), secret: bytes | None = None, file: Path | None = None
    ):
        self._own = list(tokens)
        self._secret = secret or secrets.token_bytes(32)
        self._file = _TokenFile(file) if file is not None else None

    @property
    def required(self) -> bool:
        """Whether requests have to carry a token."""
        return self._file is not None or bool(self._own)

    @property
    def _tokens(self) -> list[_Token]:
        return self._own if self._file is None else [*self._file.tokens(), *self._own]

    @classmethod
    def load(cls, environ: Mapping[str, str], file: Path | None = None) -> Access:
        """Read the tokens from a file and from the environment.

        Args:
            environ: `ENVPORT_TOKENS_FILE` names a file, unless `file` does; `ENVPORT_TOKEN` is one token with all
                scopes, of the principal `default`; `ENVPORT_SECRET` signs the tokens of single episodes.
            file: A TOML file with a `[[tokens]]` table for each token: `name`, `scopes`, and `token` or `sha256`.

        Raises:
            InvalidAccess: The settings are unusable. The message says why, and never contains a token.
        """
        tokens: list[tuple[bytes, Principal]] = []
        if file is None and (named := environ.get("ENVPORT_TOKENS_FILE")):
            file = Path(named)
        if (token := environ.get("ENVPORT_TOKEN")) is not None:
            tokens.append((_digest(_usable(token, "ENVPORT_TOKEN")), Principal("default", frozenset(_SCOPES))))
        secret = environ.get("ENVPORT_SECRET")
        return cls(tokens, _usable(secret, "ENVPORT_SECRET").encode() if secret is not None else None, file)

    def authenticate(self, authorization: str | None) -> Principal | None:
        """The principal of a request with this `Authorization` header; `None` if a token is needed and missing.

        Raises:
            Unauthenticated: There is a token, but it is not valid.
        """
        if authorization is None:
            return None if self.required else ANYONE
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() == "basic":
            return self._authenticate_by_url(token)
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("the Authorization header has to be: Bearer TOKEN")
        principal = self._episode_principal(token) if token.startswith(_EPISODE_TOKEN) else self._find(token)
        if principal is None:
            raise Unauthenticated("the token is not valid")
        return principal

    def _authenticate_by_url(self, credentials: str) -> Principal:
        """HTTP Basic, by which a URL carries a token. Only a token of one episode, as a URL is often shown."""
        try:
            _, _, token = base64.b64decode(credentials, validate=True).decode("ascii").partition(":")
        except ValueError:
            token = ""
        principal = self._episode_principal(token) if token.startswith(_EPISODE_TOKEN) else None
        if principal is None:
            raise Unauthenticated("HTTP Basic takes a token of a single episode as the password, and this is none")
        return principal

    def mint(self, principal: Principal, handle: str) -> str:
        """Make a token that can only play one episode of the principal."""
        payload = json.dumps([principal.name, handle], separators=(",", ":")).encode()
        return f"{_EPISODE_TOKEN}{_encode(payload)}.{_encode(self._sign(payload))}"

    def session(self, token: str, seconds: float) -> str:
        """A text that authenticates as a token does, for the cookie of a browser. The token cannot be read from it.

        It is valid as long as the token is, with the scopes that the token has then.

        Args:
            token: The token. One of a single episode has no session.
            seconds: How long the text is valid.

        Raises:
            Unauthenticated: The token is not valid.
        """
        if token.startswith(_EPISODE_TOKEN) or self._find(token) is None:
            raise Unauthenticated("the token is not valid")
        payload = json.dumps([self._mark(_digest(token)), time.time() + seconds], separators=(",", ":")).encode()
        return f"{_encode(payload)}.{_encode(self._sign(_SESSION + payload))}"

    def of_session(self, session: str) -> Principal | None:
        """The principal of a session; `None` if the session is over, or its token is no longer valid."""
        payload_text, _, signature_text = session.partition(".")
        try:
            payload, signature = _decode(payload_text), _decode(signature_text)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(self._sign(_SESSION + payload), signature):
            return None
        mark, until = json.loads(payload)
        if time.time() > until:
            return None
        return next((it for digest, it in self._tokens if hmac.compare_digest(self._mark(digest), mark)), None)

    def name_of(self, purpose: str) -> str:
        """A name for a purpose that is the same for all replicas of this gateway, and differs from other gateways'."""
        return self._sign(purpose.encode()).hex()[:8]

    def _mark(self, digest: bytes) -> str:
        return self._sign(_SESSION + digest).hex()

    def _find(self, token: str) -> Principal | None:
        digest = _digest(token)
        found: Principal | None = None
        # Compare with every token, so that the time reveals nothing about which one matched.
        for known, principal in self._tokens:
            if hmac.compare_digest(known, digest):
                found = principal
        return found

    def _episode_principal(self, token: str) -> Principal | None:
        payload_text, _, signature_text = token.removeprefix(_EPISODE_TOKEN).partition(".")
        try:
            payload, signature = _decode(payload_text), _decode(signature_text)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(self._sign(payload), signature):
            return None
        name, handle = json.loads(payload)
        if self.required and all(principal.name != name for _, principal in self._tokens):
            return None
        return Principal(name, frozenset({"play"}), episode=handle)

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, "sha256")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _usable(token: str, where: str) -> str:
    if len(token) < _SHORTEST_TOKEN:
        raise InvalidAccess(f"{where} is too short: use at least {_SHORTEST_TOKEN} characters")
    if token.startswith(_EPISODE_TOKEN):
        raise InvalidAccess(f"{where} must not begin with {_EPISODE_TOKEN!r}: tokens of single episodes do")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidAccess(f"{where} has to be printable ASCII without spaces")
    return token


def _read(file: Path) -> list[tuple[bytes, Principal]]:
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InvalidAccess(f"the token file {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidAccess(f"the token file {file} is not TOML: it is not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        # The rest of the message may quote the file.
        where = re.search(r"\((at [^()]*)\)$", str(error))
        raise InvalidAccess(f"the token file {file} is not TOML{f', {where[1]}' if where else ''}") from None
    entries = document.get("tokens")
    if not isinstance(entries, list) or not entries or set(document) != {"tokens"}:
        raise InvalidAccess(f"the token file {file} has to hold [[tokens]] tables and nothing else")
    return [_entry(entry, f"{file}, token {number}") for number, entry in enumerate(cast("list[Any]", entries), 1)]


def _entry(entry: Any, where: str) -> tuple[bytes, Principal]:
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    if unknown := sorted(set(fields) - {"name", "scopes", "token", "sha256"}):
        # A longer one may be a token that was written in the wrong place.
        said = f"unknown key {unknown[0]!r}" if len(unknown[0]) < _SHORTEST_TOKEN else "unknown key (not shown)"
        raise InvalidAccess(f"{where}: {said}; allowed: name, scopes, token, sha256")
    name, scopes = fields.get("name"), fields.get("scopes")
    if not isinstance(name, str) or not name:
        raise InvalidAccess(f"{where}: it needs a name")
    if not isinstance(scopes, list) or not scopes or any(scope not in _SCOPES for scope in cast("list[Any]", scopes)):
        raise InvalidAccess(f"{where}: scopes has to be a list of {', '.join(map(repr, _SCOPES))}")
    principal = Principal(name, frozenset(cast("list[Scope]", scopes)))
    token, digest = fields.get("token"), fields.get("sha256")
    if isinstance(token, str) and digest is None:
        return _digest(_usable(token, where)), principal
    if isinstance(digest, str) and token is None:
        try:
            raw = bytes.fromhex(digest)
        except ValueError:
            raw = b""
        if len(raw) == hashlib.sha256().digest_size:
            return raw, principal
    raise InvalidAccess(f"{where}: it needs either token, or sha256 with the token's SHA-256 in hex")


def is_loopback(host: str) -> bool:
    """Whether a server that is bound to this host can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class HostPolicy:
    """Which `Host` and `Origin` headers are answered. Protects against DNS rebinding and against foreign web pages.

    Attributes:
        hosts: Allowed host names, without ports; `*` allows any.
        origins: Allowed origins, in addition to those of the allowed hosts.
    """

    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()

    @classmethod
    def for_binding(cls, host: str, extra_hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> HostPolicy:
        """The policy of a gateway that is bound to `host`.

        Raises:
            InvalidAccess: The gateway is bound to every address, and no host name is given.
        """
        hosts = {_bare(name) for name in extra_hosts}
        everywhere = host in ("0.0.0.0", "::", "")
        if everywhere and not hosts:
            raise InvalidAccess(
                f"bound to {host or 'every address'}, the gateway has to be told the host names that clients use: "
                "--allowed-host NAME (or --allowed-host '*' to answer any)"
            )
        if everywhere or is_loopback(host):
            hosts |= {"127.0.0.1", "localhost", "::1"}
        if not everywhere:
            hosts.add(_bare(host))
        return cls(frozenset(hosts), frozenset(origins))

    def allows_host(self, header: str | None) -> bool:
        """Whether a `Host` header is answered."""
        return header is not None and bool(header) and ("*" in self.hosts or _host_of(header) in self.hosts)

    def allows_origin(self, header: str | None) -> bool:
        """Whether an `Origin` header is answered. A request without one is answered too."""
        if header is None or header in self.origins:
            return True
        scheme, separator, host = header.partition("://")
        return (
            scheme in ("http", "https") and bool(separator) and "*" not in self.hosts and _host_of(host) in self.hosts
        )


def _bare(name: str) -> str:
    return name.lower().strip("[]")


def _host_of(header: str) -> str:
    if header.startswith("["):
        host, _, rest = header[1:].partition("]")
        return host.lower() if not rest or (rest[0] == ":" and rest[1:].isdecimal()) else header.lower()
    host, _, port = header.lower().rpartition(":")
    return host if host and port.isdecimal() else header.lower()
