"""Where configure() would send each signal, by the environment alone."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from opentelemetry.util.re import parse_env_headers

from otel_specdecode.doctor.environment import host_and_port, is_true
from otel_specdecode.telemetry.setup import protocol_of

Signal = Literal["traces", "metrics", "logs"]
Protocol = Literal["grpc", "http/protobuf"]

SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")
DEFAULT_TIMEOUT = 10.0
_DEFAULT_ENDPOINTS: dict[Protocol, str] = {"grpc": "http://localhost:4317", "http/protobuf": "http://localhost:4318"}


class SettingError(ValueError):
    """A variable has a value that no exporter takes; the text names it and not its value.

    Attributes:
        fix: What to do about it.
    """

    def __init__(self, why: str, fix: str) -> None:
        """Say why, and what to do."""
        super().__init__(why)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a signal goes over OTLP.

    Attributes:
        signal: Which.
        protocol: What is spoken.
        url: Whole address of the requests, over gRPC that of the server.
        endpoint_variable: Where the endpoint is set; empty where it is the default.
        protocol_variable: Where the protocol is set; empty where it is worked out or the default.
        headers: Of every request, in lower case. They hold secrets.
        insecure: gRPC without TLS.
        timeout: Seconds.
        certificate: File with the certificates that are trusted.
        client_certificate: File with the client's own, and its key.
        client_key: File with the client's key.
    """

    signal: Signal
    protocol: Protocol
    url: str
    endpoint_variable: str
    protocol_variable: str
    headers: Mapping[str, str] = field(repr=False)
    insecure: bool
    timeout: float
    certificate: str | None
    client_certificate: str | None
    client_key: str | None


def exporter_names(signal: Signal, environ: Mapping[str, str]) -> list[str]:
    """Return the exporters that a signal's variable names, `otlp` if it names none; an empty list if it says none."""
    names = (environ.get(f"OTEL_{signal.upper()}_EXPORTER") or "otlp").split(",")
    return [name for each in names if (name := each.strip().lower()) not in ("", "none")]


def destination(signal: Signal, environ: Mapping[str, str]) -> Destination:
    """Return where a signal goes over OTLP.

    Raises:
        SettingError: A variable has a value that the exporter would not take.
    """
    own, all_ = f"OTEL_EXPORTER_OTLP_{signal.upper()}_", "OTEL_EXPORTER_OTLP_"

    def setting(name: str) -> tuple[str, str]:
        """Return the variable that says it, with its value; both empty if none does."""
        for variable in (own + name, all_ + name):
            if value := environ.get(variable, "").strip():
                return variable, value
        return "", ""

    endpoint_variable, endpoint = setting("ENDPOINT")
    _check_address(endpoint_variable, endpoint)
    protocol_variable, protocol = _protocol(*setting("PROTOCOL"), endpoint)
    url = endpoint or _DEFAULT_ENDPOINTS[protocol]
    if protocol == "grpc" and "@" in host_and_port(url):
        why = f"{endpoint_variable} names a user, which gRPC cannot send"
        raise SettingError(why, "put it into OTEL_EXPORTER_OTLP_HEADERS as authorization=Basic%20..., or speak HTTP")
    if protocol == "http/protobuf" and not endpoint_variable.startswith(own):
        url = f"{url.rstrip('/')}/v1/{signal}"
    return Destination(
        signal=signal,
        protocol=protocol,
        url=url,
        endpoint_variable=endpoint_variable,
        protocol_variable=protocol_variable,
        headers=parsed_headers(setting("HEADERS")[1]),
        insecure=_insecure(url, setting("INSECURE")[1]),
        timeout=_seconds(*setting("TIMEOUT")),
        certificate=setting("CERTIFICATE")[1] or None,
        client_certificate=setting("CLIENT_CERTIFICATE")[1] or None,
        client_key=setting("CLIENT_KEY")[1] or None,
    )


def _protocol(variable: str, said: str, endpoint: str) -> tuple[str, Protocol]:
    """Return the variable that decides, empty if none does, and the protocol."""
    match said.lower():
        case "grpc":
            return variable, "grpc"
        case "http/protobuf":
            return variable, "http/protobuf"
    return "", protocol_of(endpoint)


def _insecure(url: str, said: str) -> bool:
    scheme = urlsplit(url).scheme
    if scheme == "https":
        return False
    return is_true(said) if said else scheme == "http"


def _seconds(variable: str, said: str) -> float:
    fix = f"set {variable} to a number of seconds such as 10, or unset it"
    try:
        seconds = float(said or DEFAULT_TIMEOUT)
    except ValueError:
        raise SettingError(f"{variable} is not a number of seconds", fix) from None
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise SettingError(f"{variable} is not a number of seconds that can be waited for", fix)
    return seconds


def _check_address(variable: str, endpoint: str) -> None:
    """Raise where no exporter can make an address of an endpoint."""
    fix = f"correct {variable}"
    if not endpoint.isprintable() or " " in endpoint:
        raise SettingError(f"{variable} holds characters that no address has", fix)
    try:
        port = urlsplit(endpoint).port if "://" in endpoint else None
    except ValueError:
        raise SettingError(f"{variable} is no address: its host or port is not well written", fix) from None
    without_scheme = re.fullmatch(r"[^:/]+:(\d+)(/.*)?", endpoint)
    if port == 0 or (without_scheme and not 0 < int(without_scheme[1][:6]) < 1 << 16):
        raise SettingError(f"{variable} names no port that there is", fix)


def parsed_headers(text: str) -> Mapping[str, str]:
    """Return headers as the exporters read them: what is not written as name=value is left out."""
    with _unsaid():
        return parse_env_headers(text, liberal=True)


def malformed_headers(environ: Mapping[str, str]) -> dict[str, int]:
    """Return how many headers in each variable are not written as name=value, so that no exporter sends them."""
    prefixes = ("", *(f"{signal.upper()}_" for signal in SIGNALS))
    found = {}
    for name in (f"OTEL_EXPORTER_OTLP_{prefix}HEADERS" for prefix in prefixes):
        each = [entry for entry in environ.get(name, "").split(",") if entry.strip()]
        if bad := sum(not parsed_headers(entry) for entry in each):
            found[name] = bad
    return found


@contextmanager
def _unsaid() -> Iterator[None]:
    """Keep OpenTelemetry from logging a header that it cannot read: it logs all of it, secret included."""
    logger = logging.getLogger("opentelemetry.util.re")

    def refuse(record: logging.LogRecord) -> bool:  # noqa: ARG001 - any
        return False

    logger.addFilter(refuse)
    try:
        yield
    finally:
        logger.removeFilter(refuse)
