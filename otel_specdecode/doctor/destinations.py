"""Where configure() would send each signal, by the environment alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from opentelemetry.util.re import parse_env_headers

from otel_specdecode.doctor.environment import is_true
from otel_specdecode.telemetry.setup import protocol_of

Signal = Literal["traces", "metrics", "logs"]
Protocol = Literal["grpc", "http/protobuf"]

SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")
_DEFAULT_TIMEOUT = 10.0
_DEFAULT_ENDPOINTS: dict[Protocol, str] = {"grpc": "http://localhost:4317", "http/protobuf": "http://localhost:4318"}


class SettingError(ValueError):
    """A variable has a value that no exporter takes; the text names it and not its value."""


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
    protocol_variable, protocol = _protocol(*setting("PROTOCOL"), endpoint)
    url = endpoint or _DEFAULT_ENDPOINTS[protocol]
    if protocol == "http/protobuf" and not endpoint_variable.startswith(own):
        url = f"{url.rstrip('/')}/v1/{signal}"
    return Destination(
        signal=signal,
        protocol=protocol,
        url=url,
        endpoint_variable=endpoint_variable,
        protocol_variable=protocol_variable,
        headers=parse_env_headers(setting("HEADERS")[1], liberal=True),
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
    try:
        seconds = float(said or _DEFAULT_TIMEOUT)
    except ValueError:
        raise SettingError(f"{variable} is not a number of seconds") from None
    return seconds if 0 < seconds < float("inf") else _DEFAULT_TIMEOUT
