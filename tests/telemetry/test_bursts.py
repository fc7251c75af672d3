"""A burst of rejection as a counter, an event and a mark on spans."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from otel_specdecode.telemetry import bursts, listener
from otel_specdecode.telemetry.instruments import instruments_of
from otel_specdecode.telemetry.names import Attr, Event
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import assert_conformant
from otel_specdecode.testing.fake import FakeClock, Script, accepted_rounds, fake_request, fake_stream

GOOD = Script(rounds=accepted_rounds((4, 3, 4, 2) * 25, 4))
BAD = Script(rounds=accepted_rounds((0,) * 100, 4))
PLAIN = Script(tokens=50)


def play(telemetry: Telemetry, *scripts: Script) -> None:
    """Play requests of one listener."""
    observer = telemetry.listener()
    for script in scripts:
        list(fake_stream(observer, script, FakeClock()))


def told(telemetry: Telemetry) -> list[dict[str, Any]]:
    """The attributes of the events of ended bursts."""
    return [dict(record.attributes) for record in telemetry.events(Event.SPECDECODE_ROLLBACK_BURST)]


def test_an_ordinary_draft_has_a_zero_and_no_event(telemetry: Telemetry) -> None:
    play(telemetry, *[GOOD] * 20, PLAIN)
    assert telemetry.total("specdecode.rollback_bursts") == 0
    assert telemetry.total("specdecode.rollback_burst.active", mode="speculative") == 0
    assert told(telemetry) == []
    assert not [span for span in telemetry.spans() if Attr.SPECDECODE_IN_BURST in (span.attributes or {})]


def test_a_draft_that_breaks_and_recovers(telemetry: Telemetry) -> None:
    play(telemetry, *[GOOD] * 20, *[BAD] * 4, *[GOOD] * 8)
    assert telemetry.total("specdecode.rollback_bursts") == 1
    assert telemetry.total("specdecode.rollback_bursts", mode="speculative") == 1
    spans = telemetry.spans()
    marked = [place for place, span in enumerate(spans) if Attr.SPECDECODE_IN_BURST in (span.attributes or {})]
    assert marked
    assert set(marked) <= set(range(20, 26))
    (burst,) = told(telemetry)
    assert burst[Attr.SPECDECODE_BURST_ROUNDS] == 400
    assert burst[Attr.SPECDECODE_BURST_ROLLBACKS] == 400
    assert burst[Attr.SPECDECODE_BURST_PEAK_ALL_REJECTED] == 1.0
    assert burst[Attr.SPECDECODE_BURST_USUAL_ALL_REJECTED] == 0.0
    assert burst[Attr.SPECDECODE_BURST_ROLLBACKS_PER_MINUTE] == pytest.approx(60 / 0.038)
    assert burst[Attr.SPECDECODE_BURST_REQUESTS] == 4
    told_bad = {format(spans[place].context.trace_id, "032x") for place in marked if place < 24}
    assert set(burst[Attr.SPECDECODE_BURST_TRACE_IDS]) == told_bad
    assert burst[Attr.SPECDECODE_BURST_START_TIME] <= burst[Attr.SPECDECODE_BURST_END_TIME]
    assert_conformant(spans=spans, metrics=telemetry.metrics_data(), logs=telemetry.logs())


def test_a_trace_that_is_not_sampled_is_counted_and_not_named() -> None:
    telemetry = Telemetry(sampler=ALWAYS_OFF)
    try:
        play(telemetry, *[BAD] * 5)
        listener._drain_at_exit()
        (burst,) = told(telemetry)
        assert burst[Attr.SPECDECODE_BURST_REQUESTS] == 5
        assert Attr.SPECDECODE_BURST_TRACE_IDS not in burst
    finally:
        telemetry.shutdown()


def test_a_burst_that_goes_on_is_counted_as_such_until_it_ends(telemetry: Telemetry) -> None:
    observer = telemetry.listener()
    active = []
    for script in [*[GOOD] * 20, *[BAD] * 4, *[GOOD] * 8]:
        list(fake_stream(observer, script, FakeClock()))
        active.append(telemetry.total("specdecode.rollback_burst.active"))
    assert set(active[:20]) == {0}
    assert active[23] == 1
    assert active[-1] == 0
    play(telemetry, *[BAD] * 4)
    assert telemetry.total("specdecode.rollback_burst.active") == 1
    listener._drain_at_exit()
    assert telemetry.total("specdecode.rollback_burst.active") == 0


def test_a_burst_that_goes_on_when_nobody_listens_any_more_ends_there(telemetry: Telemetry) -> None:
    observer = telemetry.listener()
    for script in [BAD] * 4:
        list(fake_stream(observer, script, FakeClock()))
    assert telemetry.total("specdecode.rollback_burst.active") == 1
    observer.close()
    assert telemetry.total("specdecode.rollback_burst.active") == 0
    assert len(told(telemetry)) == 1


def test_the_child_of_a_fork_shows_that_no_burst_goes_on(telemetry: Telemetry) -> None:
    play(telemetry, *[BAD] * 4)
    assert telemetry.total("specdecode.rollback_burst.active") == 1
    instruments_of(telemetry.meter_provider).forget_what_goes_on()
    play(telemetry, GOOD)
    assert [point.value for point in telemetry.points("specdecode.rollback_burst.active")] == [0]


def test_of_very_many_drafts_those_of_long_ago_are_forgotten(telemetry: Telemetry) -> None:
    """A burst that goes on is told before it is."""
    observer = telemetry.listener()
    for number in range(80):
        request = dataclasses.replace(fake_request(BAD), draft_model=f"draft-{number}")
        for _ in range(3):
            list(fake_stream(observer, BAD, FakeClock(), request))
    assert telemetry.total("specdecode.rollback_bursts") == 80
    assert telemetry.total("specdecode.rollback_burst.active") == 64
    assert [event[Attr.SPECDECODE_DRAFT_MODEL] for event in told(telemetry)] == [
        f"draft-{place}" for place in range(16)
    ]


def test_tenants_are_told_with_their_rejected_tokens(telemetry: Telemetry) -> None:
    observer = telemetry.listener()
    for tenant, script in [("acme", GOOD)] * 20 + [("globex", BAD)] * 4 + [("acme", GOOD)] * 8:
        token = context.attach(baggage.set_baggage(Attr.SPECDECODE_TENANT_ID, tenant))
        stream = fake_stream(observer, script, FakeClock())
        context.detach(token)
        list(stream)
    (burst,) = told(telemetry)
    assert burst[Attr.SPECDECODE_BURST_TENANTS] == ("globex",)
    assert burst[Attr.SPECDECODE_BURST_TENANT_REJECTED_TOKENS] == (1600,)


def test_another_draft_is_judged_by_itself(telemetry: Telemetry) -> None:
    """A bad draft of one length does not put requests of another into its burst."""
    other = Script(rounds=accepted_rounds((2,) * 100, 2))
    play(telemetry, *[BAD] * 4, other)
    spans = telemetry.spans()
    assert Attr.SPECDECODE_IN_BURST in (spans[3].attributes or {})
    assert Attr.SPECDECODE_IN_BURST not in (spans[4].attributes or {})


def test_where_requests_stop_the_next_collection_ends_it(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    play(telemetry, *[BAD] * 4)
    telemetry.points()
    assert told(telemetry) == []
    now = bursts.time.time_ns()
    monkeypatch.setattr(bursts.time, "time_ns", lambda: now + 10**12)
    telemetry.points()
    assert len(told(telemetry)) == 1
    assert not bursts.any_burst()


def test_a_burst_that_goes_on_at_the_end_of_the_process_is_told(telemetry: Telemetry) -> None:
    play(telemetry, *[BAD] * 4)
    listener._drain_at_exit()
    assert len(told(telemetry)) == 1
