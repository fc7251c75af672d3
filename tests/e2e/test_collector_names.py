"""What metrics are called in Prometheus: the rules of collector/names.py against the real remote write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from collector.names import label_name, metric_name, registry_metrics, series_labels, series_names
from otel_specdecode.telemetry.names import Metric
from tests.e2e.pipeline import Prometheus, collector, eventually, prometheus
from tests.e2e.services import service

METRICS = tuple(registry_metrics())

SCOPE_LABELS = {"otel_scope_name", "otel_scope_version", "otel_scope_schema_url"}
NEVER_SENT = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("name", "unit", "instrument", "expected"),
    [
        ("specdecode.draft.tokens", "{token}", "counter", "specdecode_draft_tokens_total"),
        ("specdecode.decode.duration", "s", "histogram", "specdecode_decode_duration_seconds"),
        ("specdecode.host.thermal_state.time", "s", "counter", "specdecode_host_thermal_state_time_seconds_total"),
        ("hw.battery.charge", "1", "gauge", "hw_battery_charge_ratio"),
        ("specdecode.host.thermal_state.status", "1", "updowncounter", "specdecode_host_thermal_state_status"),
        ("process.memory.usage", "By", "updowncounter", "process_memory_usage_bytes"),
        ("up.seconds", "s", "gauge", "up_seconds"),
        ("some.total.count", "1", "counter", "some_count_total"),
    ],
)
def test_the_unit_ends_a_name_once_and_a_counter_ends_in_total(
    name: str, unit: str, instrument: str, expected: str
) -> None:
    assert metric_name(name, unit, instrument) == expected


def test_a_unit_whose_spelling_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="furlong"):
        metric_name("some.way", "furlong", "gauge")


def test_no_two_metrics_of_the_registry_share_a_series() -> None:
    names = [name for metric in METRICS for name in series_names(metric)]
    assert len(names) == len(set(names))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with a value of every metric of the registry, sent through the collector."""
    folder = tmp_path_factory.mktemp("names")
    with (
        prometheus(folder / "prometheus") as database,
        collector(folder, "agent.yaml", OTELCOL_REMOTE_WRITE_URL=database.write_url) as agent,
        service(agent.grpc) as process,
    ):
        meter = process.meter_provider.get_meter("otel_specdecode", "1.0")
        for metric in METRICS:
            _record(meter, metric)
        process.export()
        expected = {name for metric in METRICS for name in series_names(metric)}
        eventually(lambda: expected <= database.names())
        yield database


def _record(meter: object, metric: Metric) -> None:
    """Make the instrument that the registry describes, and give it one value with every label."""
    kind = {"updowncounter": "up_down_counter"}.get(metric.instrument, metric.instrument)
    instrument = getattr(meter, f"create_{kind}")(metric.name, metric.unit, metric.brief)
    method = {"counter": "add", "updowncounter": "add", "gauge": "set", "histogram": "record"}[metric.instrument]
    getattr(instrument, method)(1, dict.fromkeys(metric.labels, "some"))


@pytest.mark.e2e
@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_series_of_a_metric_are_called_as_foretold(filled: Prometheus, metric: Metric) -> None:
    for name in series_names(metric):
        ((labels, _), *_) = filled.query(name)
        assert set(labels) - {"__name__", "le"} - SCOPE_LABELS == series_labels(metric)


@pytest.mark.e2e
def test_there_are_no_series_but_those_foretold(filled: Prometheus) -> None:
    foretold = {name for metric in METRICS for name in series_names(metric)}
    scraped = {name for labels, _ in filled.query('{job="otelcol"}') for name in [labels["__name__"]]}
    assert filled.names() - scraped - {"target_info"} == foretold


@pytest.mark.e2e
def test_job_is_the_service_instance_the_process_and_node_the_host(filled: Prometheus) -> None:
    ((labels, value),) = filled.query("specdecode_request_active")
    assert value == 1
    assert (labels["job"], labels["instance"]) == ("chat", "one")
    ((target, _),) = filled.query('target_info{job="chat"}')
    assert labels["node"] == target["host_name"]
    assert label_name("host.name") not in labels


@pytest.mark.e2e
@pytest.mark.slow
def test_the_collector_tells_of_itself_as_job_otelcol(filled: Prometheus) -> None:
    own = 'count by (job, instance) ({__name__=~"otelcol_.+"})'
    assert eventually(lambda: filled.query(own), 60)
    assert {labels["job"] for labels, _ in filled.query(own)} == {"otelcol"}
