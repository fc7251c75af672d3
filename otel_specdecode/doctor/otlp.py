"""Asks an OTLP endpoint whether it takes a signal, with a real export request that holds nothing.

An empty request leaves nothing behind: a collector answers it and passes nothing on.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from otel_specdecode.doctor.daemons import within
from otel_specdecode.doctor.destinations import Destination, Signal
from otel_specdecode.doctor.environment import host_and_port

Outcome = Literal["accepted", "refused", "unreachable", "not_otlp", "wrong_protocol", "empty_refused", "bad_setting"]

MOST_SECONDS = 10.0
"""The longest that an answer is waited for, however long an exporter would wait."""

_OTHER_PROTOCOL_SECONDS = 3.0
_TOO_LATE = "no answer in time"

_MODULES: dict[Signal, tuple[str, str, str]] = {
    "traces": ("trace", "ExportTraceServiceRequest", "TraceService"),
    "metrics": ("metrics", "ExportMetricsServiceRequest", "MetricsService"),
    "logs": ("logs", "ExportLogsServiceRequest", "LogsService"),
}
_BAD_CERTIFICATE = "a certificate or key cannot be read"
_BAD_ADDRESS = "the endpoint or a header is not written as it has to be"
_OTLP_TYPES = ("application/x-protobuf", "application/json")
# Of a server that does not speak gRPC, or none that is there.
_NO_GRPC = ("UNAVAILABLE", "INTERNAL", "UNKNOWN", "UNIMPLEMENTED", "DEADLINE_EXCEEDED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a request.

    Attributes:
        outcome: In a word. `wrong_protocol`: the server answers, in the other protocol. `not_otlp`: it answers, but is
            no OTLP receiver at this address. `empty_refused`: it speaks OTLP and refuses a request without content.
        status: The server's, as `401` or `UNAUTHENTICATED`; empty where there is none.
        reason: More, of our own words: a server's text can repeat a secret.
    """

    outcome: Outcome
    status: str = ""
    reason: str = ""


def ask(destination: Destination) -> Verdict:
    """Send an empty request in the destination's protocol; if the server does not speak it, try the other one.

    Raises:
        ImportError: What the protocol takes is not installed.
    """
    seconds = min(destination.timeout, MOST_SECONDS)
    if destination.protocol == "grpc":
        first, other = lambda: ask_grpc(destination, host_and_port(destination.url), seconds), _speaks_http
    else:
        first, other = lambda: ask_http(destination, destination.url, seconds), _speaks_grpc
    verdict = _in_time(seconds, first)
    if verdict.outcome == "unreachable" and other(destination):
        return Verdict("wrong_protocol", verdict.status)
    return verdict


def _in_time(seconds: float, question: Callable[[], Verdict]) -> Verdict:
    """Ask for so many seconds in all: a server that drips keeps every single read below its limit."""
    try:
        return within(seconds, question)
    except TimeoutError:
        return Verdict("unreachable", reason=_TOO_LATE)


def ask_http(destination: Destination, url: str, seconds: float) -> Verdict:
    """Post an empty request; each read may take so many seconds."""
    try:
        tls = _tls(destination)
    except (OSError, ValueError):
        return Verdict("bad_setting", reason=_BAD_CERTIFICATE)
    try:
        address, authorization = _user_apart(url)
        headers = {**destination.headers, "content-type": "application/x-protobuf", **authorization}
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked below
            address,
            data=empty_request(destination.signal),
            headers=headers,
            method="POST",
        )
        if request.type not in ("http", "https"):
            return Verdict("bad_setting", reason="the endpoint begins with neither http:// nor https://")
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=tls))
        with opener.open(request, timeout=seconds) as response:
            return _of_http(response.status, response.headers.get_content_type(), "Content-Type" in response.headers)
    except urllib.error.HTTPError as error:
        with error:
            return _of_http(error.code, error.headers.get_content_type(), "Content-Type" in error.headers)
    except urllib.error.URLError as error:
        return _unreachable(error.reason)
    except http.client.InvalidURL:
        return Verdict("bad_setting", reason=_BAD_ADDRESS)
    except (http.client.HTTPException, OSError) as error:
        return _unreachable(error)
    except ValueError:
        return Verdict("bad_setting", reason=_BAD_ADDRESS)


def _user_apart(url: str) -> tuple[str, Mapping[str, str]]:
    """Return an address without user and password, and the header that they become, as requests does it.

    They prevail over a header that is set. A user without a password is not sent.
    """
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if parts.password is None:
        return address, {}
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}".encode("latin-1")
    return address, {"authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}


def ask_grpc(destination: Destination, target: str, seconds: float) -> Verdict:
    """Call the signal's export with an empty request, for so many seconds at most."""
    import grpc  # type: ignore[import-untyped,unused-ignore]

    name, _, service = _MODULES[destination.signal]
    options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    try:
        if destination.insecure:
            channel = grpc.insecure_channel(target, options=options)
        else:
            channel = grpc.secure_channel(target, _credentials(destination), options=options)
    except (OSError, ValueError):
        return Verdict("bad_setting", reason=_BAD_CERTIFICATE)
    with channel:
        export = channel.unary_unary(f"/opentelemetry.proto.collector.{name}.v1.{service}/Export")
        try:
            export(
                empty_request(destination.signal),
                metadata=tuple(destination.headers.items()),
                timeout=seconds,
            )
        except grpc.RpcError as error:
            return _of_grpc(error)
        except ValueError:
            return Verdict("bad_setting", reason="a header is not written as gRPC has it")
    return Verdict("accepted", "OK")


def empty_request(signal: Signal) -> bytes:
    """Return an export request without content.

    Raises:
        ImportError: The OTLP exporters are not installed.
    """
    import importlib

    name, message, _ = _MODULES[signal]
    module = importlib.import_module(f"opentelemetry.proto.collector.{name}.v1.{name}_service_pb2")
    request: Any = getattr(module, message)()
    return bytes(request.SerializeToString())


def _of_http(status: int, content_type: str, has_type: bool) -> Verdict:
    otlp = not has_type or content_type in _OTLP_TYPES
    if 200 <= status < 300:
        return Verdict("accepted" if content_type != "text/html" or not has_type else "not_otlp", str(status))
    if status == 400 and has_type and otlp:
        return Verdict("empty_refused", str(status))
    if status in (404, 405, 501):
        return Verdict("not_otlp", str(status))
    return Verdict("refused", str(status))


def _of_grpc(error: Any) -> Verdict:
    status = error.code().name
    text = (error.details() or "").lower()
    if status == "UNIMPLEMENTED" and "http status" not in text:
        return Verdict("not_otlp", status)
    if status == "INVALID_ARGUMENT":
        return Verdict("empty_refused", status)
    if status in _NO_GRPC:
        return Verdict("unreachable", status, "TLS failed" if "ssl" in text or "handshake" in text else "")
    return Verdict("refused", status)


def _unreachable(reason: object) -> Verdict:
    match reason:
        case ssl.SSLCertVerificationError():
            return Verdict("unreachable", reason="its certificate is not trusted")
        case ssl.SSLError():
            return Verdict("unreachable", reason="TLS failed")
        case TimeoutError():
            return Verdict("unreachable", reason=_TOO_LATE)
        case ConnectionRefusedError():
            return Verdict("unreachable", reason="nothing listens there")
        case http.client.HTTPException():
            return Verdict("unreachable", reason="what listens there does not speak HTTP/1.1")
        case OSError():
            return Verdict("unreachable", reason=type(reason).__name__)
    return Verdict("unreachable")


def _speaks_http(destination: Destination) -> bool:
    """Return whether OTLP over HTTP is spoken where gRPC was tried."""
    scheme = "http" if destination.insecure else "https"
    url = f"{scheme}://{host_and_port(destination.url)}/v1/{destination.signal}"
    seconds = min(destination.timeout, _OTHER_PROTOCOL_SECONDS)
    verdict = _in_time(seconds, lambda: ask_http(destination, url, seconds))
    return verdict.outcome in ("accepted", "refused", "empty_refused")


def _speaks_grpc(destination: Destination) -> bool:
    """Return whether gRPC is spoken where HTTP was tried."""
    parts = urlsplit(destination.url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    target = f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    seconds = min(destination.timeout, _OTHER_PROTOCOL_SECONDS)
    try:
        verdict = _in_time(seconds, lambda: ask_grpc(destination, target, seconds))
    except ImportError:
        return False
    return verdict.outcome in ("accepted", "refused", "empty_refused")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect as the answer: headers must not go where nobody sent them."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing."""


def _tls(destination: Destination) -> ssl.SSLContext:
    """Return what the exporter trusts: the certificates that are set, else those of certifi, which it uses too."""
    context = ssl.create_default_context(cafile=destination.certificate or _bundled_certificates())
    if destination.client_certificate:
        context.load_cert_chain(destination.client_certificate, destination.client_key)
    return context


def _bundled_certificates() -> str | None:
    try:
        import certifi
    except ImportError:
        return None
    return certifi.where()


def _credentials(destination: Destination) -> Any:
    import grpc  # type: ignore[import-untyped,unused-ignore]

    def content(path: str | None) -> bytes | None:
        if path is None:
            return None
        with open(path, "rb") as file:
            return file.read()

    return grpc.ssl_channel_credentials(
        root_certificates=content(destination.certificate),
        private_key=content(destination.client_key),
        certificate_chain=content(destination.client_certificate),
    )
