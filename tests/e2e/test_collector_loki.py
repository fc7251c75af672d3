"""What the collector makes of events on their way to a Loki that does not keep their names."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from opentelemetry._logs import LogRecord

from tests.e2e.pipeline import collector
from tests.e2e.services import service
from tests.otlp_receiver import Received, otlp_receiver

pytestmark = [pytest.mark.e2e, pytest.mark.source]


def test_an_event_keeps_its_name_as_an_attribute_and_a_record_without_a_name_stays_as_it_is(tmp_path: Path) -> None:
    with (
        otlp_receiver() as (store, received),
        collector(tmp_path, "agent.yaml", "to-loki.yaml", OTELCOL_LOGS_URL=store, OTELCOL_TRACES_URL=store) as agent,
        service(agent.grpc) as process,
    ):
        logger = process.logger_provider.get_logger("some")
        logger.emit(LogRecord(event_name="specdecode.rollback_burst", attributes={"some": "one"}))
        logger.emit(LogRecord(event_name="specdecode.manifest", body="a body"))
        logger.emit(LogRecord(body="no event", attributes={"some": "two"}))
        logger.emit(LogRecord(event_name="gen_ai.user.message", body={"content": "secret"}))
        process.export()
        found = received.wait_for(lambda got: records(got) if len(records(got)) == 4 else None)
    assert found == [
        ("specdecode.rollback_burst", {"some": "one", "event_name": "specdecode.rollback_burst"}),
        ("a body", {"event_name": "specdecode.manifest"}),
        ("no event", {"some": "two"}),
        ("", {"event_name": "gen_ai.user.message"}),
    ]


def records(received: Received) -> list[tuple[str, dict[str, str]]]:
    """Return body and attributes of each log record, in the order of arrival."""
    return [
        (record.body.string_value, {pair.key: pair.value.string_value for pair in record.attributes})
        for request in received.requests.get("/v1/logs", ())
        for resource in request.resource_logs
        for scoped in resource.scope_logs
        for record in scoped.log_records
    ]
