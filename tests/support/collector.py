"""A collector of spans that speaks OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from patience import patient

SECONDS = patient(30)


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it was received."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    attributes: dict[str, Any]
    failed: bool
    service: str


class Collector:
    """Receives spans on a port of its own while it is entered."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._spans: list[CollectedSpan] = []
        self._more = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.receive(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def receive(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        with self._more:
            self.bodies.append(body)
            self._spans.extend(_spans(body))
            self._more.notify_all()

    @property
    def spans(self) -> list[CollectedSpan]:
        """What has come so far."""
        with self._more:
            return list(self._spans)

    def wait(self, *names: str) -> list[CollectedSpan]:
        """All spans, once as many of these names have come."""

        def complete() -> bool:
            left = [span.name for span in self._spans]
            return all(left.count(name) >= names.count(name) for name in names)

        return self.wait_until(complete, names)

    def wait_until(self, holds: Callable[[], bool], what: object) -> list[CollectedSpan]:
        with self._more:
            assert self._more.wait_for(holds, SECONDS), (what, [span.name for span in self._spans])
            return list(self._spans)


def _spans(body: bytes) -> list[CollectedSpan]:
    found: list[CollectedSpan] = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _attributes(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            found.extend(
                CollectedSpan(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    kind=span.kind,
                    attributes=_attributes(span.attributes),
                    failed=span.status.code == 2,
                    service=service,
                )
                for span in scope.spans
            )
    return found


def _attributes(pairs: Any) -> dict[str, Any]:
    return {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in pairs}
