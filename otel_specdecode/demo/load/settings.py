"""Settings of the environment under which the load would send nothing, or sums that nothing could be compared with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from otel_specdecode.demo.needs import DemoError
from otel_specdecode.doctor.destinations import SIGNALS, Destination, SettingError, destination, exporter_names

_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_LIMITED = ("ATTRIBUTE", "SPAN_ATTRIBUTE", "LOGRECORD_ATTRIBUTE")
_LEAST = {"COUNT": 128, "VALUE_LENGTH": 128}
"""Attributes of a span and characters of a value that none of ours exceeds; the first is the SDK's default."""


def destinations(environ: Mapping[str, str]) -> list[Destination]:
    """Return where the signals go.

    Raises:
        DemoError: If a variable keeps some from being sent, or the sums from being those of a back end.
    """
    _check_temporality(environ)
    _check_limits(environ)
    found = []
    for each in SIGNALS:
        variable, names = f"OTEL_{each.upper()}_EXPORTER", exporter_names(each, environ)
        if "otlp" not in names:
            raise DemoError(f"{variable} leaves {each} out; unset it, or set it to otlp")
        if len(names) > 1:
            raise DemoError(f"{variable} names several exporters, and sums are of one; unset it, or set it to otlp")
        try:
            found.append(destination(each, environ))
        except SettingError as error:
            raise DemoError(f"{error}; {error.fix}") from error
    return found


@contextmanager
def refused_by_the_sdk() -> Iterator[None]:
    """Tell of a value that the SDK does not take, as DemoError, while providers are made."""
    try:
        yield
    except ValueError as error:
        said = " ".join(str(error).split())
        where = "OTEL_METRIC_EXPORT_*, OTEL_BSP_*, OTEL_BLRP_* and OTEL_*_LIMIT"
        raise DemoError(f"the OpenTelemetry SDK refuses a setting ({said}); look at {where}") from error


def _check_temporality(environ: Mapping[str, str]) -> None:
    if environ.get(_TEMPORALITY, "").strip().lower() in ("delta", "lowmemory"):
        raise DemoError(
            f"{_TEMPORALITY} asks for delta, and Prometheus takes cumulative metrics only: nothing would be shown; "
            "unset it"
        )


def _check_limits(environ: Mapping[str, str]) -> None:
    """Refuse limits that cut spans and events short: their sums would be others than those of the metrics."""
    for what, (which, least) in itertools.product(_LIMITED, _LEAST.items()):
        variable = f"OTEL_{what}_{which}_LIMIT"
        said = environ.get(variable, "").strip()
        if said.isdecimal() and int(said[:5]) < least:
            raise DemoError(f"{variable} cuts spans and events short; unset it, or set it to {least} or more")
