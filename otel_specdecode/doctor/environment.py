"""OpenTelemetry's variables: their names, and the values that are no secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from otel_specdecode.doctor.texts import one_line

# What may be shown. Anything else, headers and keys first of all, is only said to be set.
_SHOWN = re.compile(
    r"OTEL_(.*_)?(EXPORTER|PROTOCOL|TIMEOUT|COMPRESSION|INSECURE|SAMPLER|SAMPLER_ARG|PROPAGATORS|DISABLED|INTERVAL)"
    r"|OTEL_(SERVICE_NAME|LOG_LEVEL|SEMCONV_STABILITY_OPT_IN|EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE)"
    r"|OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    r"|OTEL_(BSP|BLRP|METRIC|SPAN|ATTRIBUTE|EVENT|LINK|LOGRECORD)_[A-Z_]+"
    r"|OTEL_PYTHON_(DISTRO|CONFIGURATOR|DISABLED_INSTRUMENTATIONS|LOGGING_AUTO_INSTRUMENTATION_ENABLED)"
    r"|OTEL_SPECDECODE_(?!DECLARATION$)[A-Z_]+"  # a declaration is a path
)


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def shown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return every OTEL_* variable by name, with its value, or `(set)` where that could be a secret."""
    return {name: _shown(name, environ[name]) for name in sorted(environ) if name.startswith("OTEL_")}


def _shown(name: str, value: str) -> str:
    if name.endswith("_ENDPOINT"):
        return one_line(public_url(value))
    if name == "OTEL_RESOURCE_ATTRIBUTES":
        names = [pair.partition("=")[0].strip() for pair in value.split(",") if "=" in pair]
        return one_line(", ".join(f"{each}=(set)" for each in names)) or "(set)"
    return one_line(value) if _SHOWN.fullmatch(name) else "(set)"


def public_url(url: str) -> str:
    """Return an address without user, password, query and fragment: any of them can be a secret."""
    scheme, separator, rest = url.strip().partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        scheme, separator, rest = "", "", url.strip()
    # A password that is not escaped may hold any of / ? #, so all up to the last @ goes, and only then the query.
    return f"{scheme}{separator}{re.split(r'[?#]', rest.rpartition('@')[2], maxsplit=1)[0]}"


def host_and_port(url: str) -> str:
    """Return host and port of an address, which may lack a scheme, as the gRPC exporter takes it."""
    return urlsplit(url).netloc or url.partition("/")[0]


def is_true(value: str | None) -> bool:
    """Return whether a variable says true."""
    return (value or "").strip().lower() == "true"
