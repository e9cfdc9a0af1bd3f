"""Test that spans of requests and of background work reach an OpenTelemetry collector, in the caller's trace."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from config import Settings
from service.telemetry.tracing import TracingMissingError, make_tracer
from tests.clients.served import serving_handler
from tests.service.real_service import ROOT, Service, environment

XP = {"name": "xp", "merge": "sum"}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """A fake OTLP endpoint that keeps the received spans."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []

    async def answer(self, request: web.Request) -> web.Response:
        assert (request.method, request.path) == ("POST", "/v1/traces")
        for resource in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            told = [(each.key, each.value.string_value) for each in resource.resource.attributes]
            assert ("service.name", "rankcurve") in told
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response()


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    async with serving_handler(made.answer) as url:
        made.url = f"{url}/v1/traces"
        yield made


async def test_a_refresh_has_a_span_below_its_request_in_the_callers_trace(
    collector: Collector, tmp_path: Path
) -> None:
    async with Service(tmp_path, tracing_url=collector.url, tracing_ratio=0).running() as service:
        await service.board("b", XP)
        await service.post_xp("b", ada=1)
        sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "operator-1"}
        answer = await service.call("POST", "/v1/leaderboards/b/rankings/xp/refresh", headers=sent)
        assert answer.status == 200
        await service.call("GET", "/v1/leaderboards/nobody", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    # Only traces that the caller marked as sampled have spans.
    spans = {span.name: span for span in collector.spans}
    assert spans.keys() == {"POST /v1/leaderboards/{board}/rankings/{column}/refresh", "refresh"}
    request = spans["POST /v1/leaderboards/{board}/rankings/{column}/refresh"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert (spans["refresh"].trace_id, spans["refresh"].parent_span_id) == (request.trace_id, request.span_id)
    attributes = {each.key: each.value for each in request.attributes}
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["rankcurve.request_id"].string_value == "operator-1"
    assert "ada" not in str(spans)


async def test_without_a_callers_trace_a_share_of_requests_starts_one(collector: Collector, tmp_path: Path) -> None:
    async with Service(tmp_path, tracing_url=collector.url, tracing_ratio=1).running() as service:
        await service.call("GET", "/v1/leaderboards/nobody")
    [span] = collector.spans
    assert (span.name, span.parent_span_id) == ("GET /v1/leaderboards/{board}", b"")


def test_the_tracing_library_is_imported_only_with_tracing_on_and_its_absence_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = "import sys, service.serve; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment()).returncode == 0
    assert make_tracer(Settings()) is None
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TracingMissingError, match=r"rankcurve\[tracing\]"):
        make_tracer(Settings(tracing_url="http://127.0.0.1:4318/v1/traces"))
