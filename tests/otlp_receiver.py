"""A real OTLP/HTTP server on loopback, so that a test sees what a program really exported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

T = TypeVar("T")

WAIT_S = 30.0


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came over the wire.

    Attributes:
        parent_id: Empty where it is a root.
        kind: `SPAN_KIND_` less.
        status: `STATUS_CODE_` less.
        start: Unix time (ns).
        end: Unix time (ns).
    """

    scope: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    status: str
    attributes: Mapping[str, Any]
    start: int
    end: int


@dataclass
class Received:
    """What has arrived, decoded, by path."""

    requests: dict[str, list[Any]] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    _arrival: threading.Condition = field(default_factory=threading.Condition)

    def add(self, path: str, message: Any, headers: dict[str, str]) -> None:
        """Keep one export request."""
        with self._arrival:
            self.requests.setdefault(path, []).append(message)
            self.headers.append(headers)
            self._arrival.notify_all()

    def wait_for(self, look: Callable[[Received], T], timeout: float = WAIT_S) -> T:
        """Return what `look` finds as soon as it finds something, or what it found last when the time (s) is over."""
        with self._arrival:
            return self._arrival.wait_for(lambda: look(self), timeout)

    def resources(self) -> dict[str, dict[str, str]]:
        """The resource attributes of the first request of each path."""
        found = {}
        for path, (first, *_) in self.requests.items():
            (message,) = [value for _, value in first.ListFields()]
            found[path] = {pair.key: pair.value.string_value for pair in message[0].resource.attributes}
        return found

    def spans(self) -> list[ReceivedSpan]:
        """Every span, in the order of arrival."""
        return [
            _span(scoped.scope.name, span)
            for request in self.requests.get("/v1/traces", ())
            for resource in request.resource_spans
            for scoped in resource.scope_spans
            for span in scoped.spans
        ]

    def events(self, name: str) -> list[dict[str, Any]]:
        """The attributes of each event of a name, in the order of arrival."""
        return [
            _attributes(record)
            for request in self.requests.get("/v1/logs", ())
            for resource in request.resource_logs
            for scoped in resource.scope_logs
            for record in scoped.log_records
            if record.event_name == name
        ]

    def latest(self, metric: str) -> list[tuple[dict[str, Any], float]]:
        """Labels and number of each point of a metric, as last received; of a histogram the number is its count."""
        newest: list[tuple[dict[str, Any], float]] = []
        for request in self.requests.get("/v1/metrics", ()):
            for resource in request.resource_metrics:
                for scoped in resource.scope_metrics:
                    for each in scoped.metrics:
                        if each.name == metric:
                            newest = [(_attributes(point), _number(point)) for point in _points(each)]
        return newest

    def as_json(self) -> list[dict[str, Any]]:
        """Every export request as OTLP JSON."""
        from google.protobuf.json_format import MessageToDict

        return [MessageToDict(request) for requests in self.requests.values() for request in requests]


@contextmanager
def _serve(handler: type[BaseHTTPRequestHandler], port: int) -> Iterator[str]:
    """Runs a loopback HTTP server; gives its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def otlp_receiver(port: int = 0, received: Received | None = None) -> Iterator[tuple[str, Received]]:
    """A real HTTP server that decodes OTLP/HTTP protobuf; gives its base URL and what arrives.

    Args:
        port: To listen on; 0 for one that is free.
        received: What had arrived before, to which more is added.
    """
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    messages = {
        "/v1/traces": ExportTraceServiceRequest,
        "/v1/metrics": ExportMetricsServiceRequest,
        "/v1/logs": ExportLogsServiceRequest,
    }
    received = received or Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = decompress(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            received.add(self.path, messages[self.path].FromString(body), headers)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with _serve(Handler, port) as url:
        yield url, received


def _span(scope: str, span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        scope=scope,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        status=span.status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        attributes=_attributes(span),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
    )


def _attributes(owner: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in owner.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def _points(metric: Any) -> Any:
    return getattr(metric, metric.WhichOneof("data")).data_points


def _number(point: Any) -> float:
    kind = point.WhichOneof("value") if "value" in point.DESCRIPTOR.oneofs_by_name else "count"
    return float(getattr(point, kind))
