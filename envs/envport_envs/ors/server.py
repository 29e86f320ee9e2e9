"""An Open Reward Standard server: where it is, and what a session there is given."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx2

from envport.errors import ConfigurationError, InvalidOption
from envport_envs.mcp_servers.sources import filled
from envport_envs.upstream.address import ServerAddress
from envport_envs.upstream.http import UpstreamHttp

__all__ = ["WHAT", "OrsServer"]

WHAT = "Open Reward Standard server"

_KEY = "OPENREWARD_API_KEY"
_KEY_HEADER = "X-API-Key"
_NAME = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_CATALOGUE = "https://openreward.ai"
# Where environments of the catalogue use the key: the official client allows these beside the catalogue itself.
_SERVICES = {
    "OPENREWARD_WEB_SEARCH_URL": "https://search.openreward.ai/search",
    "OPENREWARD_WEB_FETCH_URL": "https://search.openreward.ai/fetch",
}


@dataclass(frozen=True)
class OrsServer:
    """A server, and one environment there.

    Attributes:
        address: How to reach it.
        deployment: The name in the catalogue; empty for a server of one's own.
        environment: The name of the environment at the server; empty for the first one.
        secrets: Secrets of each session by name, with placeholders.
        domains: The hosts that each secret may be sent to, by its name.
    """

    address: ServerAddress
    deployment: str = ""
    environment: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @classmethod
    def parse(
        cls,
        text: str,
        headers: Mapping[str, str],
        variables: tuple[str, ...],
        environment: str,
        secrets: Mapping[str, str],
        domains: Mapping[str, tuple[str, ...]],
    ) -> OrsServer:
        """Read a URL, or `OWNER/NAME` of the catalogue, which is found as the official client 0.1.167 finds it.

        Raises:
            ConfigurationError: It is a name of the catalogue, and there is no key.
            InvalidOption: It names no server, or a secret is not given as it has to be.
        """
        if unknown := [name for name in domains if name not in secrets]:
            raise InvalidOption(f"the option secret_domains names {unknown[0]!r}, which is none of the secrets")
        if _NAME.fullmatch(text) is None:
            address = ServerAddress.parse("ors", text)
            return cls(ServerAddress(address.url, tuple(headers.items()), variables), "", environment, secrets, domains)
        if without := [name for name in secrets if name not in domains]:
            raise InvalidOption(
                f"the secret {without[0]!r} needs the hosts that it may be sent to, in the option secret_domains: the "
                "catalogue lets environments send secrets nowhere else"
            )
        root = os.environ.get("OPENREWARD_URL") or _CATALOGUE
        url = os.environ.get("OPENREWARD_SESSION_URL") or _at_subdomain(root, "sessions")
        given, named = dict(headers), variables
        if not any(name.lower() == _KEY_HEADER.lower() for name in given):
            if not os.environ.get(_KEY):
                raise ConfigurationError(
                    f"ors:{text} is a name of the catalogue of OpenReward, which needs a key: set the environment "
                    f"variable {_KEY}. If a server is meant, write its URL: ors:http://..."
                )
            given[_KEY_HEADER], named = f"{{{_KEY}}}", (*variables, _KEY)
        services = [os.environ.get(name) or usual for name, usual in _SERVICES.items()]
        hosts = _hosts(url, os.environ.get("OPENREWARD_API_URL") or _at_subdomain(root, "api"), *services)
        key = next(text for name, text in given.items() if name.lower() == _KEY_HEADER.lower())
        # The official client gives the key to every session, because environments use services of the catalogue.
        keys = {"api_key": key, _KEY: key}
        return cls(
            ServerAddress(ServerAddress.parse("ors", url).url, tuple(given.items()), named),
            text,
            environment,
            {**secrets, **keys},
            {**domains, **dict.fromkeys(keys, hosts)},
        )

    @property
    def shown(self) -> str:
        """The server as everybody may see it."""
        return self.deployment or self.address.url

    def headers(self, secrets: Mapping[str, str]) -> dict[str, str]:
        """The HTTP headers of each request.

        Args:
            secrets: What placeholders may stand for, beside variables.

        Raises:
            InvalidOption: A placeholder names nothing.
        """
        headers = dict(self.address.filled(secrets).headers)
        return {**headers, "X-Deployment": self.deployment} if self.deployment else headers

    def session_headers(self, secrets: Mapping[str, str]) -> dict[str, str]:
        """The HTTP headers with which a session is created, which carry its secrets.

        Raises:
            InvalidOption: A placeholder names nothing.
        """
        return self._carried(self._given(secrets, strict=True))

    def hidden(self, secrets: Mapping[str, str]) -> list[str]:
        """What no message may contain: the secrets, and everything that carries them."""
        values, given = self.address.values(secrets), self._given(secrets, strict=False)
        carried = [value for _, value in self.address.filled(secrets).headers]
        hidden = {*values.values(), *carried, *given.values(), *self._carried(given).values()}
        # What contains another one is replaced first.
        return sorted(hidden, key=len, reverse=True)

    def _given(self, secrets: Mapping[str, str], *, strict: bool) -> dict[str, str]:
        values = self.address.values(secrets)
        return {name: filled(text, values, strict=strict) for name, text in self.secrets.items()}

    def _carried(self, given: Mapping[str, str]) -> dict[str, str]:
        if not given:
            return {}
        carried = {
            name: {"value": value, "allowed_domains": list(self.domains.get(name, ()))} for name, value in given.items()
        }
        return {"X-Secrets": base64.b64encode(json.dumps(carried).encode()).decode()}

    def requests(self, http: httpx2.AsyncClient, secrets: Mapping[str, str]) -> UpstreamHttp:
        """Requests to the server.

        Args:
            http: A client for its address.
            secrets: What placeholders may stand for, beside variables.

        Raises:
            InvalidOption: A placeholder names nothing.
        """
        return UpstreamHttp(http, WHAT, self.headers(secrets), self.hidden(secrets))

    @property
    def base(self) -> str:
        """Where paths of the environment begin. Servers lead from those without a name to their first environment."""
        return f"/{self.environment}" if self.environment else ""


def _at_subdomain(url: str, subdomain: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{subdomain}.{parts.netloc}").geturl()


def _hosts(*urls: str) -> tuple[str, ...]:
    """The hosts of some addresses, and their names within the catalogue's own network."""
    hosts = [host for url in urls if (host := urlsplit(url).hostname)]
    inside = [f"{host.split('.')[0]}.openreward.internal" for host in hosts if host.count(".") > 1]
    return tuple(dict.fromkeys([*hosts, *inside]))
