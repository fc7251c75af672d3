"""On whose behalf a request runs: baggage in, attributes and a capped label out."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, context
from opentelemetry.context import Context

from otel_specdecode.telemetry.names import Attr, Metrics
from otel_specdecode.telemetry.tenancy import TenantLabels, chosen_tenancy
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import assert_conformant
from otel_specdecode.testing.fake import FakeClock, Script, fake_stream
from otel_specdecode.thresholds import thresholds

MOST = thresholds()["labels"]["tenants"]
SCRIPT = Script(tokens=2)


def with_baggage(**entries: str) -> Context:
    """A context whose baggage has these entries, underscores as dots."""
    found = Context()
    for key, value in entries.items():
        found = baggage.set_baggage(key.replace("_", "."), value, found)
    return found


def play(telemetry: Telemetry, within: Context) -> None:
    """Play a request whose caller has this context."""
    attached = context.attach(within)
    try:
        list(fake_stream(telemetry.listener(), SCRIPT, FakeClock()))
    finally:
        context.detach(attached)


def test_tenant_and_session_are_on_the_span_and_on_no_metric(telemetry: Telemetry) -> None:
    play(telemetry, with_baggage(tenant_id="acme", session_id="c0ffee", user_id="ada"))
    attributes = dict(telemetry.span().attributes or {})
    assert (attributes[Attr.SPECDECODE_TENANT_ID], attributes[Attr.SPECDECODE_SESSION_ID]) == ("acme", "c0ffee")
    assert "ada" not in attributes.values()
    assert not [point for point in telemetry.points() if Attr.SPECDECODE_TENANT_ID in point.labels]


def test_without_baggage_there_is_neither(telemetry: Telemetry) -> None:
    play(telemetry, Context())
    attributes = telemetry.span().attributes or {}
    assert Attr.SPECDECODE_TENANT_ID not in attributes
    assert Attr.SPECDECODE_SESSION_ID not in attributes


def test_only_listed_keys_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPECDECODE_TENANT_BAGGAGE", "org, customer ,")
    monkeypatch.setenv("OTEL_SPECDECODE_SESSION_BAGGAGE", "")
    chosen = chosen_tenancy()
    assert chosen.tenant(with_baggage(tenant_id="acme")) is None
    assert chosen.tenant(with_baggage(customer="second", org="first")) == "first"
    assert chosen.tenant(with_baggage(customer="second")) == "second"
    assert chosen.session(with_baggage(session_id="c0ffee")) is None


def test_the_own_key_comes_before_the_general_one() -> None:
    assert chosen_tenancy().tenant(with_baggage(tenant_id="other", specdecode_tenant_id="own")) == "own"


@pytest.mark.parametrize(("value", "tenant"), [("acme;ttl=3", "acme"), ("acme ; a=1;b=2", "acme"), (";ttl=3", None)])
def test_properties_of_a_baggage_entry_are_no_part_of_the_tenant(value: str, tenant: str | None) -> None:
    assert chosen_tenancy().tenant(baggage.set_baggage("tenant.id", value, Context())) == tenant


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_what_callers_send_becomes_short_and_printable(text: str) -> None:
    found = chosen_tenancy().tenant(baggage.set_baggage("tenant.id", text, Context()))
    if found is not None:
        assert 1 <= len(found) <= thresholds()["labels"]["longest_name"]
        assert found.isprintable()
        assert found.encode().decode() == found
        assert found.strip() == found


def test_by_opt_in_the_tenant_is_on_every_metric_of_a_request(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SPECDECODE_TENANT_METRICS", "true")
    play(telemetry, with_baggage(tenant_id="acme"))
    requests = [point for point in telemetry.points() if Attr.GEN_AI_OPERATION_NAME in point.labels]
    assert requests
    assert {point.labels.get(Attr.SPECDECODE_TENANT_ID) for point in requests} == {"acme"}
    assert_conformant(spans=telemetry.spans(), metrics=telemetry.metrics_data(), logs=telemetry.logs())


def test_requests_without_a_tenant_keep_their_series(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPECDECODE_TENANT_METRICS", "true")
    play(telemetry, with_baggage(tenant_id="acme"))
    play(telemetry, Context())
    started = telemetry.points(Metrics.SPECDECODE_REQUEST_STARTED.name)
    assert sorted(str(point.labels.get(Attr.SPECDECODE_TENANT_ID)) for point in started) == ["None", "acme"]
    assert [point.value for point in started] == [1, 1]


def test_tenants_beyond_the_cap_share_one_label_and_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    labels = TenantLabels()
    known = [f"tenant-{number}" for number in range(MOST)]
    with caplog.at_level(logging.WARNING):
        assert [labels.label(tenant) for tenant in known] == known
        assert not caplog.records
        assert [labels.label(f"late-{number}") for number in range(3)] == ["_OTHER"] * 3
        assert labels.label(known[0]) == known[0]
    assert [record.message for record in caplog.records] == [
        f"there are more than {MOST} tenants; further ones are _OTHER on metrics, and exact on spans"
    ]


def test_the_cap_is_shared_by_all_engines(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_SPECDECODE_TENANT_METRICS", "true")
    for number in range(MOST + 1):
        play(telemetry, with_baggage(tenant_id=f"tenant-{number}"))  # a listener of its own each time
    tenants = {
        point.labels[Attr.SPECDECODE_TENANT_ID] for point in telemetry.points(Metrics.SPECDECODE_REQUEST_STARTED.name)
    }
    assert len(tenants) == MOST + 1
    assert "_OTHER" in tenants
    spans = {(span.attributes or {})[Attr.SPECDECODE_TENANT_ID] for span in telemetry.spans()}
    assert "_OTHER" not in spans
