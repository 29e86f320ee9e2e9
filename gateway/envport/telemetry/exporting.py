"""Exports spans to an OTLP collector over HTTP, configured by OpenTelemetry's standard environment variables."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry import trace

from envport.errors import ConfigurationError, MissingExtra

__all__ = ["exporting_traces"]

_EXPORTER = "OTEL_TRACES_EXPORTER"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"
_END_SECONDS = 3.0


@contextmanager
def exporting_traces(environ: Mapping[str, str]) -> Generator[None]:
    """Export spans, if the environment variables ask for it and no tracer provider is set already.

    An endpoint in `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` turns the export on, and so
    does `OTEL_TRACES_EXPORTER=otlp`. `OTEL_TRACES_EXPORTER=none` and `OTEL_SDK_DISABLED=true` turn it off. The SDK
    reads the other variables itself. At the end, the remaining spans are sent, with a time limit of 3 s.

    Args:
        environ: The process's environment variables.

    Raises:
        MissingExtra: The export is turned on, but the SDK is not installed.
        ConfigurationError: The variables name an unsupported exporter or protocol.
    """
    if not _wanted(environ) or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingExtra(f"Exporting traces ({_EXPORTER}=none turns it off)", "otel") from None
    provider = TracerProvider(resource=Resource.create(_names(environ)), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        # The SDK waits until the export times out. If the collector is gone, this takes longer than a process has
        # before it is killed.
        leaving = threading.Thread(target=provider.shutdown, daemon=True)
        leaving.start()
        leaving.join(_END_SECONDS)


def _wanted(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get(_EXPORTER, "").strip()
    if exporter == "none" or not (exporter or any(environ.get(name) for name in _ENDPOINTS)):
        return False
    if exporter not in ("", "otlp"):
        raise ConfigurationError(f"{_EXPORTER} is {exporter!r}; it has to be otlp or none")
    named = next((name for name in _PROTOCOLS if environ.get(name)), None)
    if named is not None and environ[named].strip() != _SPOKEN:
        raise ConfigurationError(f"{named} is {environ[named]!r}; traces are exported by {_SPOKEN} only")
    return True


def _names(environ: Mapping[str, str]) -> dict[str, str]:
    """The service's name, unless the variables set it, and its version. Attributes given here override variables."""
    said = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    names = {"service.version": version("envport")}
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in said:
        names["service.name"] = "envport"
    return names
