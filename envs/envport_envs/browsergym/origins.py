"""Where a browser may go: the pages that the gateway serves, and the origins that a task allows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from envport.errors import InvalidOption

__all__ = ["HOST", "SITE", "Origins"]

HOST = "pages.localhost"
"""The name under which a browser finds the pages that the gateway serves. No port is in it, so that observations do
not depend on one. Browsers treat names below `localhost` as they treat `https`."""

SITE = f"http://{HOST}/"

_PORTS = {"http": 80, "https": 443}
# Python and browsers read other characters, and a user's name, in different ways.
_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+([/?#][!-~]*)?")


@dataclass(frozen=True)
class Origins:
    """The origins that a browser may reach: scheme, host and port.

    Attributes:
        others: Origins besides the pages that the gateway serves, such as `https://example.com`.
    """

    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, origins: Sequence[str]) -> Self:
        """Read origins.

        Raises:
            InvalidOption: One is no origin.
        """
        for origin in origins:
            if _origin(origin) is None or urlsplit(origin).path not in ("", "/") or re.search("[?#]", origin):
                raise InvalidOption(
                    f"{origin!r} is no origin; it has to be http:// or https://, a host and perhaps a port, such as "
                    "'https://example.com' or 'http://127.0.0.1:3000'"
                )
        return cls(tuple(origins))

    def allows(self, url: str) -> bool:
        """Whether a player may go to an address."""
        found = _origin(url)
        return found is not None and found in {_origin(origin) for origin in (SITE, *self.others)}

    def named(self) -> str:
        """The origins, for messages."""
        return ", ".join([SITE.rstrip("/"), *(origin.rstrip("/") for origin in self.others)])

    def arguments(self, address: str) -> list[str]:
        """Chromium's arguments that keep to these origins whatever a page does: redirects, frames, scripts, workers.

        Everything goes to the page server as a proxy, which answers for its own pages alone. Only the other origins
        are reached without it.

        Args:
            address: Host and port of the page server.
        """
        past: list[str] = []
        for scheme, host, port in filter(None, map(_origin, self.others)):
            shown = f"[{host}]" if ":" in host else host
            past += [f"{kind}://{shown}:{port}" for kind in (scheme, "ws" if scheme == "http" else "wss")]
        return [
            f"--proxy-server=http://{address}",
            # Without the first rule, Chromium reaches this machine and its cloud's metadata without a proxy.
            f"--proxy-bypass-list={';'.join(['<-loopback>', *past])}",
            # WebRTC sends packets past a proxy.
            "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
            "--webrtc-ip-handling-policy=disable_non_proxied_udp",
            "--disable-quic",
            "--dns-prefetch-disable",
        ]


def _origin(url: str) -> tuple[str, str, int] | None:
    if _URL.fullmatch(url) is None:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port or _PORTS[parts.scheme]) if parts.hostname else None
