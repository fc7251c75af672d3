"""Who ran what, where: on every span of both engines, against /proc as other code reads it."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

import otel_specdecode
from otel_specdecode.host.sampler import peak_sampler
from otel_specdecode.host.state import STATES
from otel_specdecode.identity import declared
from otel_specdecode.telemetry.host_metrics import watch
from otel_specdecode.telemetry.listener import recorder
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from tests import proc
from tests.engines.both import Engine
from tests.engines.spans import attributes
from tests.garbage import collect
from tests.proc import MIB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

STATE_NAMES = {
    Attr.SPECDECODE_HOST_POWER_MODE: "power_mode",
    Attr.SPECDECODE_HOST_POWER_SOURCE: "power_source",
    Attr.SPECDECODE_HOST_THERMAL_STATE: "thermal_state",
    Attr.SPECDECODE_HOST_MEMORY_PRESSURE: "memory_pressure",
}
ALWAYS = {
    *STATE_NAMES,
    Attr.SPECDECODE_HOST_SWAP_USED,
    Attr.SPECDECODE_PROCESS_PEAK_RSS,
    Attr.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME,
    Attr.SPECDECODE_MACHINE_PROFILE,
    Attr.SPECDECODE_MANIFEST_ID,
}
IF_TOLD = {Attr.SPECDECODE_RUN_ID, Attr.SPECDECODE_TENANT_ID, Attr.SPECDECODE_SESSION_ID}
ELSEWHERE = {Attr.SPECDECODE_PROCESS_PEAK_FOOTPRINT}
"""On macOS alone."""
EVERYWHERE = ALWAYS | IF_TOLD | ELSEWHERE

SAMPLING, WATCHING = "otel-specdecode-memory", "otel-specdecode-host"
"""Names of the threads."""
BLOCK = 200 * MIB
SEEN = 190 * MIB
"""Of a block; the rest is for what the process gives back meanwhile."""
UNSEEN = 60 * MIB
"""More than a request of this pair takes by itself."""


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    """The engines instrumented into memory, the machine read once, and nothing declared."""
    monkeypatch.delenv(declared.RUN_ID, raising=False)
    monkeypatch.setattr(declared, "_current", None)
    with capture() as captured:
        proc.wait_for(lambda: watch.state().memory_available.known)
        yield captured


def around(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span that no token tells."""
    return {key: value for key, value in attributes(span).items() if key in EVERYWHERE}


def peaks(telemetry: Telemetry) -> list[int]:
    """The peak memory of every span, in the order in which they began."""
    spans = sorted(telemetry.spans(), key=lambda span: span.start_time or 0)
    return [attributes(span)[Attr.SPECDECODE_PROCESS_PEAK_RSS] for span in spans]


@pytest.fixture
def high_lifetime_peak() -> int:
    """The lifetime peak, once it is out of reach: from then on only readings while a request runs show a rise."""
    if proc.highest_resident() < proc.resident() + 3 * BLOCK:
        with proc.taken(3 * BLOCK + 20 * MIB):
            pass
    return proc.highest_resident()


def test_every_span_of_every_kind_has_right_values(engine: Engine, telemetry: Telemetry) -> None:
    for kind, call in engine.kinds.items():
        call()  # loads what it needs
        telemetry.clear()
        before, swapped = proc.resident(), proc.swap_used()
        call()
        after, spans = proc.resident(), telemetry.spans()
        highest = proc.highest_resident()
        assert spans, kind
        for span in spans:
            found = around(span)
            assert set(found) == ALWAYS, kind
            peak, lifetime = (
                found[key] for key in (Attr.SPECDECODE_PROCESS_PEAK_RSS, Attr.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME)
            )
            assert max(before, after) - proc.COUNTERS <= peak <= lifetime, kind
            assert lifetime == pytest.approx(highest, abs=proc.COUNTERS), kind
            assert found[Attr.SPECDECODE_HOST_SWAP_USED] == pytest.approx(swapped, abs=16 * MIB), kind
            assert found[Attr.SPECDECODE_MACHINE_PROFILE] == proc.profile(), kind
            assert len(found[Attr.SPECDECODE_MANIFEST_ID]) == 16, kind


def test_a_peak_is_of_the_request_and_not_of_the_life_of_the_process(
    engine: Engine, telemetry: Telemetry, high_lifetime_peak: int
) -> None:
    for kind, call in engine.kinds.items():
        call()
        telemetry.clear()
        call()
        after = proc.resident()
        for span in telemetry.spans():
            found = attributes(span)
            assert found[Attr.SPECDECODE_PROCESS_PEAK_RSS] < after + UNSEEN, kind
            lifetime = found[Attr.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME]
            assert lifetime == pytest.approx(high_lifetime_peak, abs=proc.COUNTERS), kind


def test_states_are_known_where_the_machine_tells_them_and_unknown_elsewhere(
    engine: Engine, telemetry: Telemetry
) -> None:
    list(engine.stream(2))
    found = around(telemetry.span())
    for key, name in STATE_NAMES.items():
        assert found[key] in STATES[name]
        if not proc.told_states()[name]:
            assert found[key] == "unknown"
    assert found[Attr.SPECDECODE_HOST_MEMORY_PRESSURE] != "unknown"


def test_the_prompts_of_a_batch_and_the_batch_have_the_same_surroundings(engine: Engine, telemetry: Telemetry) -> None:
    if "batch" not in engine.kinds:
        pytest.skip("this engine decodes no prompts together")
    engine.kinds["batch"]()
    *children, batch = telemetry.spans()
    assert len(children) == 2
    numbers = {Attr.SPECDECODE_PROCESS_PEAK_RSS, Attr.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME}
    same = [{key: value for key, value in around(span).items() if key not in numbers} for span in (*children, batch)]
    assert same[0] == same[1] == same[2]


def test_run_tenant_and_session_are_on_every_span_of_every_kind(engine: Engine, telemetry: Telemetry) -> None:
    declared.declare(run_id="canary-7")
    context = baggage.set_baggage("tenant.id", "acme")
    token = otel_context.attach(baggage.set_baggage("session.id", "s-1", context))
    try:
        for call in engine.kinds.values():
            call()
    finally:
        otel_context.detach(token)
    for span in telemetry.spans():
        found = around(span)
        assert set(found) == ALWAYS | IF_TOLD, span.name
        told = [found[key] for key in (Attr.SPECDECODE_RUN_ID, Attr.SPECDECODE_TENANT_ID, Attr.SPECDECODE_SESSION_ID)]
        assert told == ["canary-7", "acme", "s-1"]


@pytest.mark.parametrize("speculative", [False, True], ids=["autoregressive", "speculative"])
@pytest.mark.parametrize("where", ["between two tokens", "inside the engine"])
def test_memory_taken_for_150_ms_shows_in_its_request_and_not_in_the_next(
    where: str, speculative: bool, engine: Engine, telemetry: Telemetry, high_lifetime_peak: int
) -> None:
    list(engine.stream(4, speculative=speculative))
    telemetry.clear()
    left = [BLOCK]

    def inside() -> None:
        if left:
            proc.take_for_150_ms(left.pop())

    before = proc.resident()
    stream = engine.stream(4, speculative=speculative, inside=inside if where == "inside the engine" else None)
    next(stream)
    if left:
        proc.take_for_150_ms(left.pop())
    list(stream)
    list(engine.stream(4, speculative=speculative))
    first, second = peaks(telemetry)
    assert before + SEEN <= first < high_lifetime_peak - BLOCK
    assert second < before + UNSEEN


def test_requests_at_the_same_time_share_their_peak(
    engine: Engine, telemetry: Telemetry, high_lifetime_peak: int
) -> None:
    """One that began before and ended after, one that ended before it and one that began after it."""
    for place in range(3):
        list(engine.stream(4, place=place))
    telemetry.clear()
    before = proc.resident()
    list(engine.stream(4))
    streams = [engine.stream(4, place=place, speculative=place == 1) for place in range(2)]
    for stream in streams:
        next(stream)
    proc.take_for_150_ms(BLOCK)
    late = engine.stream(4, place=2)
    next(late)
    for stream in (*streams, late):
        list(stream)
    earlier, one, other, later = peaks(telemetry)
    assert min(one, other) >= before + SEEN
    assert max(earlier, later) < before + UNSEEN


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # MLX's own, on another thread
@pytest.mark.parametrize("how", ["closed", "dropped", "collected", "closed on another thread", "thrown into", "fails"])
def test_however_a_stream_ends_its_span_has_its_surroundings(how: str, engine: Engine, telemetry: Telemetry) -> None:
    failing: list[bool] = []

    def inside() -> None:
        if failing:
            raise MemoryError

    stream: Any = engine.stream(20, inside=inside)
    next(stream)
    if how == "closed":
        stream.close()
    elif how == "dropped":
        del stream
    elif how == "collected":
        cell: dict[str, Any] = {"stream": stream}
        cell["self"] = cell
        dropped = weakref.ref(stream)
        del stream, cell
        collect(dropped)
    elif how == "closed on another thread":
        closer = threading.Thread(target=stream.close)
        closer.start()
        closer.join()
    elif how == "thrown into":
        with pytest.raises(TimeoutError):
            stream.throw(TimeoutError())
    else:
        failing.append(True)
        with pytest.raises(MemoryError):
            list(stream)
    span = telemetry.span()
    assert set(around(span)) == ALWAYS
    assert (span.status.status_code is StatusCode.ERROR) == (how in ("thrown into", "fails"))
    assert not peak_sampler._open


def test_a_stream_never_iterated_has_no_span_and_keeps_no_reading_going(engine: Engine, telemetry: Telemetry) -> None:
    stream = engine.stream(4)
    assert not peak_sampler._open
    del stream
    gc.collect()
    assert telemetry.spans() == ()
    assert not peak_sampler._open


# How long readings go on


def test_a_request_of_one_token_has_a_peak(engine: Engine, telemetry: Telemetry) -> None:
    before = proc.resident()
    list(engine.stream(1))
    assert peaks(telemetry)[0] >= before - proc.COUNTERS


def test_as_many_readings_as_in_a_minute_leave_no_thread_and_no_descriptor(
    engine: Engine, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose consumer is slow, read fifty times as often. It is read to its end, then the thread ends."""
    list(engine.stream(4))
    proc.wait_for(lambda: not proc.threads(SAMPLING))
    telemetry.clear()
    assert proc.open_probes() == []
    monkeypatch.setattr(peak_sampler, "_period", 0.001)
    stream = engine.stream(4)
    next(stream)
    proc.wait_for(proc.open_probes)
    deadline = time.monotonic() + 1.3  # longer than the thread waits for another request
    while time.monotonic() < deadline:
        assert len(proc.threads(SAMPLING)) == len(proc.open_probes()) == 1
        time.sleep(0.02)
    before = proc.resident()
    with proc.taken(BLOCK):
        time.sleep(0.15)
    list(stream)
    assert peaks(telemetry)[0] >= before + SEEN
    proc.wait_for(lambda: not proc.threads(SAMPLING), 1.0 + 2.0)
    assert proc.open_probes() == []


def test_requests_on_32_threads_at_once_share_one_reading_thread_and_leave_none(
    engine: Engine, telemetry: Telemetry
) -> None:
    for place in range(32):
        list(engine.stream(2, place=place))  # loads what it needs
    telemetry.clear()
    errors: list[BaseException] = []
    gate = threading.Barrier(33)

    def request(place: int) -> None:
        try:
            stream = engine.stream(3, place=place)
            gate.wait(30)
            next(stream)
            gate.wait(30)  # all are open
            list(stream)
        except BaseException as error:
            errors.append(error)
            gate.abort()

    running = [threading.Thread(target=request, args=(place,)) for place in range(32)]
    for thread in running:
        thread.start()
    gate.wait(30)
    gate.wait(60)
    readers = [len(proc.threads(name)) for name in (SAMPLING, WATCHING)]
    for thread in running:
        thread.join()
    assert errors == []
    assert max(readers) <= 1
    assert len(peaks(telemetry)) == 32
    assert {frozenset(around(span)) for span in telemetry.spans()} == {frozenset(ALWAYS)}
    assert not peak_sampler._open
    proc.wait_for(lambda: not proc.threads(SAMPLING))
    assert proc.open_probes() == []


# From instrument() to uninstrument()


@pytest.fixture
def providers() -> Iterator[Telemetry]:
    """Providers that outlive an instrumentation."""
    made = Telemetry()
    yield made
    otel_specdecode.uninstrument()
    made.shutdown()


def instrument(providers: Telemetry) -> None:
    """Instrument the engines into these providers, and wait for the first reading of the machine."""
    otel_specdecode.instrument(
        tracer_provider=providers.tracer_provider,
        meter_provider=providers.meter_provider,
        logger_provider=providers.logger_provider,
    )
    proc.wait_for(lambda: watch.state().memory_available.known)


def test_after_uninstrument_nothing_reads_the_machine_though_a_stream_ends_later(
    engine: Engine, providers: Telemetry
) -> None:
    """Its span has the peak of its memory, and says that the state is unknown."""
    instrument(providers)
    stream = engine.stream(4)
    next(stream)
    providers.spans()
    assert len(proc.threads(WATCHING)) == 1
    otel_specdecode.uninstrument()
    proc.wait_for(lambda: not proc.threads(WATCHING))
    list(stream)
    found = around(providers.span())
    assert set(found) == ALWAYS - {Attr.SPECDECODE_HOST_SWAP_USED}
    assert {found[key] for key in STATE_NAMES} == {"unknown"}
    providers.points()
    list(engine.stream(4))
    assert len(providers.spans()) == 1
    assert proc.threads(WATCHING) == []
    proc.wait_for(lambda: not proc.threads(SAMPLING))


def test_instrumented_again_the_machine_is_read_again(engine: Engine, providers: Telemetry) -> None:
    for _ in range(2):
        instrument(providers)
        list(engine.stream(4))
        assert len(proc.threads(WATCHING)) == 1
        providers.spans()
        otel_specdecode.uninstrument()
        proc.wait_for(lambda: not proc.threads(WATCHING))
    assert [set(around(span)) for span in providers.spans()] == [ALWAYS, ALWAYS]


def test_what_ended_before_uninstrument_has_the_state_of_then_however_late_it_is_recorded(
    engine: Engine, providers: Telemetry
) -> None:
    """A batch job that restores the engines after its last request and then flushes."""
    instrument(providers)
    behind = threading.Event()
    recorder.put(lambda: behind.wait(30))
    try:
        list(engine.stream(4))
        otel_specdecode.uninstrument()
    finally:
        behind.set()
    assert set(around(providers.span())) == ALWAYS
