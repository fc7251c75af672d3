"""Settings of the environment under which a load is not begun."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="needs the [demo] extra")

from otel_specdecode.demo.load import settings
from otel_specdecode.demo.needs import DemoError

DELTA = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("OTEL_TRACES_EXPORTER", "none", "leaves traces out"),
        ("OTEL_TRACES_EXPORTER", "otlp,otlp", "names several exporters"),
        ("OTEL_TRACES_EXPORTER", "otlp, console", "names several exporters"),
        ("OTEL_METRICS_EXPORTER", "console,otlp", "names several exporters"),
        (DELTA, "Delta", "Prometheus takes cumulative metrics only"),
        (DELTA, "lowmemory", "Prometheus takes cumulative metrics only"),
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "5", "set it to 128 or more"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "127", "set it to 128 or more"),
        ("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", "0", "set it to 128 or more"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3", "set it to 128 or more"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:70000", "OTEL_EXPORTER_OTLP_ENDPOINT is no address"),
    ],
)
def test_it_is_refused_with_the_variable_and_what_to_do(variable: str, value: str, told: str) -> None:
    with pytest.raises(DemoError, match=variable) as caught:
        settings.destinations({variable: value})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "otlp,", "OTEL_LOGS_EXPORTER": ""},
        {DELTA: "cumulative"},
        {"OTEL_ATTRIBUTE_COUNT_LIMIT": "128", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "9" * 5000},
        {"OTEL_ATTRIBUTE_COUNT_LIMIT": "unset"},
    ],
)
def test_anything_else_is_not(environ: dict[str, str]) -> None:
    assert [each.signal for each in settings.destinations(environ)] == ["traces", "metrics", "logs"]
