"""HTTP requests to an engine's own server, as the HTTP conventions want them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Final

from opentelemetry.context import attach, detach
from opentelemetry.propagate import extract
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context

from otel_specdecode.generation.faults import report_fault, warn_once
from otel_specdecode.generation.observer import HttpRequest
from otel_specdecode.generation.record import NANOSECONDS
from otel_specdecode.telemetry.instruments import Instruments
from otel_specdecode.telemetry.names import Attr, Metrics

EXCLUDED_URLS = ("OTEL_PYTHON_MLX_LM_EXCLUDED_URLS", "OTEL_PYTHON_EXCLUDED_URLS")
"""Environment variables, of which the first that is set counts: regular expressions, separated by commas.

A request in whose URL, such as `http://localhost:8080/health`, one of them is found has no span and no metric of its
own.
"""

OTHER_METHOD: Final = "_OTHER"
METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"))

MAX_PORT = 65535

_SCHEME: Final = "http"
_HOST = re.compile(r"(?P<address>\[[^\]]*\]|[^:]*)(?::(?P<port>\d{1,5}))?")

Attributes = Mapping[str, str | int | None]


class _Headers(Getter[Mapping[str, str]]):
    """Finds headers whatever case a propagator writes their names in."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        """Return the header of a name."""
        value = carrier.get(key.lower())
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        """Return the names of all headers."""
        return list(carrier)


_HEADERS = _Headers()


class Exclusions:
    """Which requests nobody wants to hear of, such as those of health checks; read from the environment once."""

    def __init__(self) -> None:
        """Read the environment; an expression that is none is warned of and excludes nothing."""
        chosen = next((os.environ[name] for name in EXCLUDED_URLS if name in os.environ), "")
        parts = [part.strip() for part in chosen.split(",") if part.strip()]
        self._pattern: re.Pattern[str] | None = None
        try:
            self._pattern = re.compile("|".join(parts)) if parts else None
        except re.error:
            warn_once(f"{' or '.join(EXCLUDED_URLS)} holds no regular expression, so no request is excluded")

    def hold(self, request: HttpRequest) -> bool:
        """Tell whether a request is excluded."""
        return self._pattern is not None and self._pattern.search(_url(request)) is not None


class HttpExchange:
    """One HTTP request from its head to the end of its answer, with its span as the context of its thread."""

    def __init__(self, tracer: Tracer, instruments: Instruments, request: HttpRequest) -> None:
        """Begin the span, under the parent that the client names, and make it the context of this thread.

        Args:
            tracer: Begins spans.
            instruments: Take the duration.
            request: What is asked for.
        """
        self._began, self._wall = time.perf_counter_ns(), time.time_ns()
        self._instruments = instruments
        self._labels = _labels(request)
        parent = extract(request.headers, getter=_HEADERS)
        self._span = tracer.start_span(
            _name(request), parent, SpanKind.SERVER, _known(_start_attributes(request)), start_time=self._wall
        )
        self._context = set_span_in_context(self._span, parent)
        self._token = attach(self._context)

    def finish(self, status: int | None, failure: str | None, went_away: bool) -> None:
        """Note that it was answered: end the span, record the duration, give the thread its context back.

        Args:
            status: Of the answer, None if none was begun.
            failure: Qualified name of the exception class that ended it, None if none did.
            went_away: The exception tells that the client is gone, which is no error of the server.
        """
        duration = time.perf_counter_ns() - self._began
        try:
            detach(self._token)
            failed = status is not None and status >= 500
            end = _known(
                {
                    Attr.HTTP_RESPONSE_STATUS_CODE: status,
                    Attr.ERROR_TYPE: failure or (str(status) if failed else None),
                }
            )
            self._instruments.record(
                Metrics.HTTP_SERVER_REQUEST_DURATION, duration / NANOSECONDS, {**self._labels, **end}, self._context
            )
            self._span.set_attributes(end)
            if failed or (failure is not None and not went_away):
                self._span.set_status(Status(StatusCode.ERROR))
        except Exception as error:
            report_fault("the end of an HTTP request could not be recorded in full", error)
        finally:
            self._span.end(self._wall + duration)


def _url(request: HttpRequest) -> str:
    """Return the URL that a client asked for, without the query, for comparison only."""
    address, port = request.local or ("", 0)
    host = f"[{address}]" if ":" in address else address
    return f"{_SCHEME}://{request.headers.get('host') or f'{host}:{port}'}{request.path}"


def _name(request: HttpRequest) -> str:
    method = "HTTP" if _method(request) == OTHER_METHOD else request.method
    return method if request.route is None else f"{method} {request.route}"


def _method(request: HttpRequest) -> str:
    return request.method if request.method in METHODS else OTHER_METHOD


def _labels(request: HttpRequest) -> dict[str, str | int]:
    """Return the attributes that are labels of the duration too; none of them is the client's to choose freely."""
    return _known(
        {
            Attr.HTTP_REQUEST_METHOD: _method(request),
            Attr.HTTP_ROUTE: request.route,
            Attr.URL_SCHEME: _SCHEME,
            Attr.NETWORK_PROTOCOL_VERSION: request.version if request.version in ("0.9", "1.0", "1.1") else None,
        }
    )


def _start_attributes(request: HttpRequest) -> Attributes:
    address, port = _server(request)
    peer_address, peer_port = request.peer or (None, None)
    return {
        **_labels(request),
        Attr.HTTP_REQUEST_METHOD_ORIGINAL: None if request.method in METHODS else request.method,
        Attr.URL_PATH: request.path,
        Attr.SERVER_ADDRESS: address,
        Attr.SERVER_PORT: port,
        Attr.CLIENT_ADDRESS: peer_address,
        Attr.NETWORK_PEER_ADDRESS: peer_address,
        Attr.NETWORK_PEER_PORT: peer_port,
        Attr.USER_AGENT_ORIGINAL: request.headers.get("user-agent"),
    }


def _server(request: HttpRequest) -> tuple[str | None, int | None]:
    """Return the address and the port that the client asked for, else those that it connected to."""
    named = _HOST.fullmatch(request.headers.get("host", "").strip())
    if named is None or not named["address"]:
        return request.local or (None, None)
    port = int(named["port"] or 0)
    return named["address"].strip("[]"), port if 0 < port <= MAX_PORT else None


def _known(attributes: Attributes) -> dict[str, str | int]:
    return {key: value for key, value in attributes.items() if value is not None}
