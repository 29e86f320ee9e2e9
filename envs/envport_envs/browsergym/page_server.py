"""The server of a folder of pages. It is also the proxy of the browsers, and refuses whatever else they ask for."""

from __future__ import annotations

import mimetypes
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envport_envs.browsergym.origins import HOST

__all__ = ["serving"]

_IDLE_SECONDS = 30.0
_WAITING = 128


class _Server(ThreadingHTTPServer):
    request_queue_size = _WAITING
    daemon_threads = True

    def __init__(self, folder: Path | None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder.resolve() if folder is not None else None
        self.users = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser that closes a connection is no fault."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """Send a file."""
        url = urlsplit(self.path)
        if url.scheme != "http" or url.netloc != HOST:
            self._refuse()
            return
        path = self._file(unquote(url.path))
        if path is None:
            self._send(HTTPStatus.NOT_FOUND, b"There is no such page.", "text/plain")
            return
        kind, _ = mimetypes.guess_type(path.name)
        self._send(HTTPStatus.OK, path.read_bytes(), kind or "application/octet-stream")

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._send(HTTPStatus.FORBIDDEN, b"The task does not allow this address.", "text/plain")

    do_CONNECT = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = _refuse

    def _file(self, path: str) -> Path | None:
        folder = self.server.folder
        if folder is None or "\0" in path:
            return None
        found = (folder / path.lstrip("/")).resolve()
        if path.endswith("/"):
            found /= "index.html"
        return found if found.is_relative_to(folder) and found.is_file() else None

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        text = kind.startswith("text/") or kind in ("application/javascript", "application/json")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if text else kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


# All environments of a gateway that use the same folder share a server.
_servers: dict[Path | None, _Server] = {}
_lock = threading.Lock()


@contextmanager
def serving(folder: Path | None) -> Generator[str]:
    """Serve a folder on this machine's loopback until the end, once for all that use it at the same time.

    Args:
        folder: The folder; `None` if there is none, and everything is refused.

    Yields:
        Host and port of the server.
    """
    with _lock:
        if (server := _servers.get(folder)) is None:
            server = _servers[folder] = _Server(folder)
            threading.Thread(target=server.serve_forever, name="envport pages", daemon=True).start()
        server.users += 1
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        with _lock:
            server.users -= 1
            if not server.users:
                del _servers[folder]
                server.shutdown()
                server.server_close()
