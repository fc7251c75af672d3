"""OpenTelemetry: what is installed, what the environment says, and whether the endpoint takes each signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points

from otel_specdecode.doctor.checks import Check, Status
from otel_specdecode.doctor.daemons import side_by_side
from otel_specdecode.doctor.destinations import (
    DEFAULT_TIMEOUT,
    SIGNALS,
    Destination,
    SettingError,
    Signal,
    destination,
    exporter_names,
    malformed_headers,
)
from otel_specdecode.doctor.engines import Versions, installed_version
from otel_specdecode.doctor.environment import is_true, public_url, shown_variables
from otel_specdecode.doctor.otlp import MOST_SECONDS, Verdict, ask
from otel_specdecode.doctor.texts import one_line
from otel_specdecode.telemetry.content import CAPTURE

INSTALL = 'pip install "otel-specdecode[otlp]"'

_SAY_HTTP = "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"

_CAPTURES = ("NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT")

Ask = Callable[[Destination], Verdict]


def telemetry_checks(
    environ: Mapping[str, str], versions: Versions = installed_version, ask_endpoint: Ask = ask
) -> list[Check]:
    """Return what becomes of telemetry in this environment. Endpoints are asked side by side."""
    sdk = versions("opentelemetry-sdk")
    signals = side_by_side(lambda signal: _signal_check(signal, environ, sdk, ask_endpoint), SIGNALS)
    return [
        _sdk_check(environ, sdk, versions),
        _exporters_check(versions),
        _setup_check(environ),
        _variables_check(environ),
        _content_check(environ),
        *_timeout_checks(environ),
        *_headers_checks(environ),
        *signals,
    ]


def _sdk_check(environ: Mapping[str, str], sdk: str | None, versions: Versions) -> Check:
    api = versions("opentelemetry-api")
    facts = {"api": api, "sdk": sdk, "disabled": is_true(environ.get("OTEL_SDK_DISABLED"))}
    if sdk is None:
        wanted = any(name.startswith("OTEL_EXPORTER_OTLP_") and name.endswith("ENDPOINT") for name in environ)
        status: Status = "error" if wanted else "warn"
        return Check("otel.sdk", "SDK", status, f"API {api}, no SDK: nothing is exported", INSTALL, facts)
    if facts["disabled"]:
        fix = "unset OTEL_SDK_DISABLED to export"
        return Check("otel.sdk", "SDK", "warn", f"{sdk}, switched off by OTEL_SDK_DISABLED", fix, facts)
    return Check("otel.sdk", "SDK", "ok", f"{sdk}, API {api}", facts=facts)


def _exporters_check(versions: Versions) -> Check:
    found: dict[str, list[str]] = {
        signal: sorted({each.name for each in entry_points(group=f"opentelemetry_{signal}_exporter")})
        for signal in SIGNALS
    }
    names = sorted({name for each in found.values() for name in each})
    facts: dict[str, object] = {**found, "otlp": versions("opentelemetry-exporter-otlp")}
    if not any(name.startswith("otlp") for name in names):
        return Check("otel.exporters", "exporters", "warn", "none for OTLP is installed", INSTALL, facts)
    return Check("otel.exporters", "exporters", "ok", ", ".join(names), facts=facts)


def _setup_check(environ: Mapping[str, str]) -> Check:
    distro = sorted({each.name for each in entry_points(group="opentelemetry_distro")})
    zero_code = "works too" if distro else 'takes pip install "otel-specdecode[zero-code]"'
    detail = (
        "your program does, with otel_specdecode.configure() or an SDK of its own; "
        f"opentelemetry-instrument {zero_code}"
    )
    under = "auto_instrumentation" in environ.get("PYTHONPATH", "")
    if under:
        detail = "opentelemetry-instrument does, in this environment"
    facts = {"distro": distro, "under_opentelemetry_instrument": under}
    if distro and any(_protocol_is_a_guess(signal, environ) for signal in SIGNALS):
        detail += ", and speaks gRPC where no protocol is set, to an endpoint that configure() takes for one of HTTP"
        return Check("otel.setup", "who sets it up", "warn", detail, _SAY_HTTP, facts)
    return Check("otel.setup", "who sets it up", "ok", detail, facts=facts)


def _protocol_is_a_guess(signal: Signal, environ: Mapping[str, str]) -> bool:
    """Return whether configure() works out from the endpoint alone that a signal goes over HTTP."""
    if "otlp" not in exporter_names(signal, environ):
        return False
    try:
        found = destination(signal, environ)
    except SettingError:
        return False
    return bool(found.endpoint_variable) and not found.protocol_variable and found.protocol == "http/protobuf"


def _variables_check(environ: Mapping[str, str]) -> Check:
    shown = shown_variables(environ)
    detail = "\n".join(f"{name}={value}" for name, value in shown.items()) or "no OTEL_* variable is set"
    return Check("otel.variables", "variables", "ok", detail, facts=shown)


def _content_check(environ: Mapping[str, str]) -> Check:
    said = environ.get(CAPTURE, "").strip().upper()
    facts = {"capture": said if said in _CAPTURES else "NO_CONTENT"}
    if said and said not in _CAPTURES:
        fix = f"set {CAPTURE} to one of {', '.join(_CAPTURES)}"
        detail = "not captured: the variable has none of its four values"
        return Check("otel.content", "message content", "warn", detail, fix, facts)
    if facts["capture"] == "NO_CONTENT":
        return Check("otel.content", "message content", "ok", "not captured", facts=facts)
    detail = f"prompts and completions leave the process ({said})"
    return Check("otel.content", "message content", "warn", detail, f"unset {CAPTURE} if that is not wanted", facts)


def _timeout_checks(environ: Mapping[str, str]) -> list[Check]:
    """Return a warning where an exporter would wait for very long; a timeout that is none is told with its signal."""
    long: dict[str, float] = {}
    for signal in SIGNALS:
        with suppress(SettingError):
            found = destination(signal, environ)
            if found.timeout > MOST_SECONDS:
                long[signal] = found.timeout
    if not long:
        return []
    detail = (
        f"a program may wait up to {max(long.values()):g} s for an endpoint when it ends "
        f"({', '.join(long)}); here an answer was waited for {MOST_SECONDS:g} s at most"
    )
    fix = f"set OTEL_EXPORTER_OTLP_TIMEOUT to {DEFAULT_TIMEOUT:g} or less"
    return [Check("otel.timeout", "timeout", "warn", detail, fix, long)]


def _headers_checks(environ: Mapping[str, str]) -> list[Check]:
    found = malformed_headers(environ)
    if not found:
        return []
    told = ", ".join(f"{count} in {name}" for name, count in found.items())
    detail = f"headers that are not written as name=value and are not sent: {told}"
    return [Check("otel.headers", "headers", "warn", detail, "write them as name=value, values URL-encoded", found)]


def _signal_check(signal: Signal, environ: Mapping[str, str], sdk: str | None, ask_endpoint: Ask) -> Check:
    id_, title = f"otlp.{signal}", signal
    names = exporter_names(signal, environ)
    otlp = [name for name in names if name.startswith("otlp")]
    if not otlp:
        detail = one_line(f"go to: {', '.join(names)}") if names else "switched off"
        return Check(id_, title, "ok", f"{detail} (OTEL_{signal.upper()}_EXPORTER)", facts={"exporters": names})
    if is_true(environ.get("OTEL_SDK_DISABLED")):
        return Check(id_, title, "unknown", "not asked: OTEL_SDK_DISABLED is true", facts={"exporters": names})
    try:
        found = destination(signal, environ)
    except SettingError as error:
        return Check(id_, title, "error", f"nothing can be sent: {error}", error.fix, {"exporters": names})
    facts = {
        "exporters": names,
        "endpoint": public_url(found.url),
        "endpoint_variable": found.endpoint_variable,
        "protocol": found.protocol,
        "protocol_variable": found.protocol_variable,
    }
    if sdk is None:
        return Check(id_, title, "unknown", "not asked: there is no SDK", INSTALL, facts)
    try:
        verdict = ask_endpoint(found)
    except ImportError:
        status: Status = "error" if found.endpoint_variable else "warn"
        return Check(id_, title, status, f"no exporter for {found.protocol} is installed", INSTALL, facts)
    return _verdict_check(found, verdict, {**facts, "outcome": verdict.outcome, "status": verdict.status})


def _verdict_check(found: Destination, verdict: Verdict, facts: Mapping[str, object]) -> Check:
    """Return what a verdict means. Only an endpoint that somebody set can be broken; the default may be unused."""
    id_, title = f"otlp.{found.signal}", found.signal
    where = f"{one_line(public_url(found.url))} over {'gRPC' if found.protocol == 'grpc' else 'HTTP'}"
    broken: Status = "error" if found.endpoint_variable else "warn"
    told = "; ".join(part for part in (verdict.status, verdict.reason) if part)
    because = f" ({told})" if told else ""
    variable = found.endpoint_variable or "OTEL_EXPORTER_OTLP_ENDPOINT"
    match verdict.outcome:
        case "accepted":
            return Check(id_, title, "ok", f"{where}: accepted", facts=facts)
        case "empty_refused":
            detail = f"{where}: answers, but refuses a request without content{because}, as some back ends do"
            return Check(id_, title, "warn", detail, "look there for the first real spans", facts)
        case "wrong_protocol":
            return Check(id_, title, "error", f"{where}: {_other_spoken(found)}", _other_protocol(found), facts)
        case "refused":
            return Check(id_, title, broken, f"{where}: refused{because}", _refusal_fix(verdict.status), facts)
        case "not_otlp":
            detail = f"{where}: answers{because}, but takes no {title} there"
            return Check(id_, title, broken, detail, f"correct {variable}, or switch {title} on in the receiver", facts)
        case "bad_setting":
            return Check(id_, title, "error", f"{where}: {verdict.reason}", f"correct {variable}", facts)
    if found.endpoint_variable:
        return Check(id_, title, "error", f"{where}: unreachable{because}", f"start it, or correct {variable}", facts)
    detail = f"no endpoint is set; the default, {where}, is unreachable{because}"
    fix = "set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://localhost:4318, before you call configure()"
    return Check(id_, title, "warn", detail, fix, facts)


def _other_spoken(found: Destination) -> str:
    if found.protocol == "grpc":
        return "wrong protocol: that port speaks OTLP over HTTP, and gRPC was spoken to it"
    return "wrong protocol: that port speaks gRPC, and HTTP was spoken to it"


def _other_protocol(found: Destination) -> str:
    other = "http/protobuf" if found.protocol == "grpc" else "grpc"
    variable = found.protocol_variable or "OTEL_EXPORTER_OTLP_PROTOCOL"
    fix = f"set {variable}={other}"
    if found.endpoint_variable == f"OTEL_EXPORTER_OTLP_{found.signal.upper()}_ENDPOINT":
        fix += f"; over HTTP {found.endpoint_variable} has to end in /v1/{found.signal}" if other != "grpc" else ""
    return fix


def _refusal_fix(status: str) -> str:
    if status in ("401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED"):
        return "check OTEL_EXPORTER_OTLP_HEADERS: the receiver does not know this sender"
    if status.startswith("3"):
        return "set the endpoint to the address that it redirects to"
    return "look into the receiver's log"
