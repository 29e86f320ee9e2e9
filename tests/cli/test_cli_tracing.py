"""Traces of `envport serve`: they go to a collector, join the caller's, and hold no secrets."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from command_line import Served, refused, refused_here
from harness import Era, Raw
from slow import slow

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed (extra otel)")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the exporter is not installed (extra otel)")

from collector import CollectedSpan, Collector
from patience import patient

HERE = Path(__file__).parent
SERVER, INTERNAL = 2, 1
# Spans are sent at once, not every five seconds.
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
SECRET = "hunter2"

CALLER, OTHER, THIRD = (digit * 32 for digit in "abc")


def traceparent(trace_id: str) -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-{'d' * 16}-01"}


@contextmanager
def traced(*words: str, **variables: str) -> Iterator[tuple[Served, Collector]]:
    with Collector() as collector:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **SOON}
        with Served("watched.py:Watched", *words, cwd=HERE, **{**endpoint, **variables}) as served:
            yield served, collector


def opened(served: Served, **headers: str) -> dict[str, str]:
    body = {"environment": "watched", "seed": 7}
    answer = httpx2.post(f"{served.url}/episodes", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


def of(spans: list[CollectedSpan], name: str) -> CollectedSpan:
    (found,) = (span for span in spans if span.name == name)
    return found


def highest(spans: list[CollectedSpan], span: CollectedSpan) -> CollectedSpan:
    """The span of the gateway's above all others: FastAPI's newer releases make one for each request."""
    above = {it.span_id: it for it in spans}
    while span.parent_id in above:
        span = above[span.parent_id]
    return span


def test_the_control_plane_joins_the_trace_of_the_header():
    with traced() as (served, collector):
        episode_id = opened(served, **traceparent(CALLER))["episode_id"]
        url = f"{served.url}/episodes/{episode_id}"
        assert httpx2.post(f"{url}/reset", json={"seed": 8}, headers=traceparent(OTHER)).status_code == 200
        assert httpx2.delete(url, headers=traceparent(THIRD)).status_code == 200
        collector.wait("episode.open", "episode.reset", "episode.close", "episode.close")
        served.stop()
        spans = collector.spans
    about = {"envport.environment": "watched", "envport.episode.id": episode_id}
    task = {"envport.task.id": "first", "envport.task.split": "train"}
    opening, resetting = of(spans, "episode.open"), of(spans, "episode.reset")
    closing = [span for span in spans if span.name == "episode.close"]
    for span, trace_id in ((opening, CALLER), (resetting, OTHER)):
        top = highest(spans, span)
        assert (top.trace_id, top.parent_id, top.kind) == (trace_id, "d" * 16, SERVER)
        assert (span.trace_id, span.service, span.failed) == (trace_id, "envport", False)
    assert opening.attributes == about | task | {"envport.seed": 7}
    assert resetting.attributes == about | task | {"envport.seed": 8}
    # The reset frees the first instance, the close the second.
    assert {(span.trace_id, span.attributes.get("envport.outcome")) for span in closing} == {
        (OTHER, None),
        (THIRD, "closed"),
    }
    assert closing[0].parent_id == resetting.span_id


def test_a_request_is_one_span_at_most_and_a_probe_is_none():
    """FastAPI's newer releases make them; ours begin with the episode."""
    with traced() as (served, collector):
        for path in ("healthz", "readyz", "metrics"):
            assert httpx2.get(f"{served.url}/{path}").status_code == 200
        opened(served)
        served.stop()
        spans = collector.wait("episode.open")
    requests = [span for span in spans if not span.name.startswith("episode.")]
    assert [span.name for span in requests] in ([], ["POST /episodes"])


@pytest.mark.parametrize(
    ("era", "where"),
    [
        ("modern", "header"),
        ("legacy", "meta"),
        ("modern", "both"),
        *slow([("legacy", "header"), ("modern", "meta"), ("legacy", "both")]),
    ],
)
def test_a_call_joins_the_trace_of_its_request(era: Era, where: str):
    with traced() as (served, collector):
        episode = opened(served)
        # The trace of whoever opened the session is not that of its calls.
        with Raw(episode["mcp_url"], era, traceparent(OTHER)) as raw:
            del raw.http.headers["traceparent"]
            params: dict[str, object] = {"name": "finish", "arguments": {}}
            if where != "meta":
                raw.http.headers.update(traceparent(CALLER if where == "header" else THIRD))
            if where != "header":
                params["_meta"] = traceparent(CALLER)
            assert "hunter2 at last" in raw.post("tools/call", params).text
        spans = collector.wait("episode.open", "tools/call finish", "episode.call", "episode.close")
    message, call = of(spans, "tools/call finish"), of(spans, "episode.call")
    assert (message.trace_id, message.parent_id, message.kind) == (CALLER, "d" * 16, SERVER)
    assert (call.trace_id, call.parent_id, call.kind) == (CALLER, message.span_id, INTERNAL)
    assert call.attributes == {
        "envport.environment": "watched",
        "envport.episode.id": episode["episode_id"],
        "envport.tool": "finish",
        "envport.step": 1,
        "envport.outcome": "terminated",
    }
    assert of(spans, "episode.close").parent_id == call.span_id
    assert of(spans, "episode.open").trace_id not in (CALLER, OTHER, THIRD)


def test_what_went_wrong_is_told_by_its_kind_and_never_in_words():
    with traced() as (served, collector):
        with Raw(opened(served)["mcp_url"], "modern") as raw:
            for name, arguments in (
                ("say", {"text": f"{SECRET} in an argument"}),
                ("say", {"text": [f"{SECRET} in a wrong argument"]}),
                ("refuse", {}),
                ("crash", {}),
                ("say", {"text": f"{SECRET} too late"}),
            ):
                assert raw.post("tools/call", {"name": name, "arguments": arguments}).status_code == 200
        spans = collector.wait(*["episode.call"] * 5, "tools/call crash")
        errors = [span.attributes.get("error.type") for span in spans if span.name == "episode.call"]
        assert errors == [None, "invalid_arguments", "tool_error", "episode_failed", "episode_over"]
        assert [span.failed for span in spans if span.name == "episode.call"] == [False, True, True, True, True]
        served.stop()
        for body in collector.bodies:
            assert SECRET.encode() not in body
        assert "episode.open" in {span.name for span in collector.spans}


def test_what_is_left_is_sent_when_the_gateway_stops():
    with traced(OTEL_BSP_SCHEDULE_DELAY="3600000", OTEL_SERVICE_NAME="gym") as (served, collector):
        opened(served)
        assert not collector.spans
        assert served.stop() == 0
        names = {span.name: span.service for span in collector.spans}
    assert names.items() >= {"episode.open": "gym", "episode.close": "gym"}.items()
    assert set(names.values()) == {"gym"}


def test_who_watches_the_gateway_is_not_traced():
    with traced() as (served, collector):
        for path in ("healthz", "readyz", "metrics"):
            assert httpx2.get(f"{served.url}/{path}", headers=traceparent(CALLER)).status_code == 200
        opened(served)
        served.stop()
        assert "episode.open" in {span.name for span in collector.spans}
        assert not [span for span in collector.spans if span.trace_id == CALLER]


def test_a_collector_that_is_not_there_holds_the_end_up_for_three_seconds_at_most():
    with Collector() as gone:
        url = gone.url
    limited = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
    with Served("watched.py:Watched", cwd=HERE, **limited, **SOON) as served:
        opened(served)
        begin = time.monotonic()
        assert served.stop() == 0
        # The exporter itself would try for ten seconds and more.
        assert time.monotonic() - begin < 3 + patient(4)


@pytest.mark.parametrize("forbidden", [{"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}, {}])
def test_nothing_is_traced_unless_it_is_asked_for(forbidden: dict[str, str]):
    endpoint = {} if forbidden else {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}
    with traced("--log-format", "json", **forbidden, **endpoint) as (served, collector):
        with Raw(opened(served, **traceparent(CALLER))["mcp_url"], "modern", traceparent(CALLER)) as raw:
            raw.post("tools/call", {"name": "crash", "arguments": {}})
        served.stop()
        assert not collector.bodies
        assert "trace_id" not in served.log


def test_log_lines_name_the_trace():
    with traced("--log-format", "json") as (served, collector):
        with Raw(opened(served)["mcp_url"], "modern", traceparent(CALLER)) as raw:
            raw.post("tools/call", {"name": "crash", "arguments": {}})
        call = of(collector.wait("episode.call"), "episode.call")
        # Another line says what keeps the limits of processes.
        (line,) = (line for line in served.log.splitlines() if "limits on memory" not in line)
    entry = json.loads(line)
    assert (entry["trace_id"], entry["span_id"]) == (CALLER, call.span_id)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert "pip install 'envport[otel]'" in refused_here("serve", "counter", "--port", "0")


@pytest.mark.parametrize(
    ("variables", "allowed"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "otlp or none"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf"),
    ],
)
def test_what_cannot_be_exported_to_is_refused(variables: dict[str, str], allowed: str):
    line = refused("serve", "counter", "--port", "0", **variables)
    assert allowed in line
    assert next(iter(variables.values())) in line or "grpc" in line
