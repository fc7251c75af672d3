"""Bursts of rejection: found when there is one, with its times, and not when a draft is merely as it always was."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.generation.bursts import NANOSECONDS, Burst, BurstDetector, Level, Source
from otel_specdecode.generation.counts import Counts
from otel_specdecode.thresholds import thresholds

K = 4
ROUND = 0.038
ONE = Source(0, "one")
RULE = thresholds()["burst"]


def counts(accepted: list[int], k: int = K) -> Counts:
    """What finished rounds with these numbers of accepted tokens add."""
    return Counts(
        tokens=sum(accepted) + len(accepted),
        accepted=sum(accepted),
        rejected=sum(k - each for each in accepted),
        all_accepted=sum(each == k for each in accepted),
        rolled_back=sum(0 < each < k for each in accepted),
        all_rejected=sum(each == 0 for each in accepted),
    )


class Told(NamedTuple):
    """What a detector told, with the time (s) it was told at."""

    at: float
    began: bool
    ended: Burst | None


class Stream:
    """Feeds a detector second by second with rounds whose tokens are accepted at a dialled rate."""

    def __init__(self, seed: int = 1) -> None:
        self.detector = BurstDetector()
        self.now = 0.0
        self.told: list[Told] = []
        self._random = random.Random(seed)

    def run(self, seconds: float, rate: float, *, source: Source = ONE, k: int = K) -> None:
        """Go on for some seconds with 26 rounds a second."""
        for _ in range(round(seconds)):
            self.now += 1
            rounds = [self._accepted(rate, k) for _ in range(26)]
            self.feed(counts(rounds, k), len(rounds) * ROUND, source)

    def feed(self, added: Counts, decode: float, source: Source = ONE) -> None:
        """Hand over rounds that ended now."""
        began, ended = self.detector.observe(round(self.now * NANOSECONDS), added, decode, source)
        if began or ended is not None:
            self.told.append(Told(self.now, began, ended))

    def idle(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def bursts(self) -> list[Burst]:
        """All bursts, the one that goes on included."""
        last = self.detector.finish()
        return [each.ended for each in self.told if each.ended is not None] + ([] if last is None else [last])

    def _accepted(self, rate: float, k: int) -> int:
        accepted = 0
        while accepted < k and self._random.random() < rate:
            accepted += 1
        return accepted


def begins(stream: Stream) -> list[float]:
    """When a burst was told to begin."""
    return [each.at for each in stream.told if each.began]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [0.35, 0.5, 0.7, 0.9])
def test_an_hour_of_a_draft_as_it_always_was_is_no_burst(rate: float, seed: int) -> None:
    """Whether it is a good draft or not: that it does not pay is another alert's business."""
    stream = Stream(seed)
    stream.run(3600, rate)
    assert stream.bursts() == []


@pytest.mark.parametrize("seed", range(5))
def test_twenty_bad_seconds_in_five_minutes_are_found_where_they_are(seed: int) -> None:
    stream = Stream(seed)
    stream.run(150, 0.7)
    stream.run(20, 0.2)
    stream.run(130, 0.7)
    (burst,) = stream.bursts()
    assert burst.start / NANOSECONDS == pytest.approx(150, abs=3)
    assert burst.end / NANOSECONDS == pytest.approx(170, abs=3)
    assert 150 < begins(stream)[0] < 162
    assert burst.baseline is not None
    assert burst.peak.rejected > 1.5 * burst.baseline.rejected
    assert burst.rounds == pytest.approx(20 * 26, rel=0.2)
    assert burst.rollbacks_per_minute == pytest.approx(60 * burst.rollbacks / burst.decode_seconds)


def test_a_draft_that_is_rejected_from_the_start_is_found_without_history() -> None:
    stream = Stream()
    stream.run(20, 0.0)
    (burst,) = stream.bursts()
    assert burst.baseline is None
    assert burst.peak == Level(4000.0, 1.0)
    assert burst.start == pytest.approx(0, abs=NANOSECONDS)


def test_fewer_rounds_than_a_window_are_never_a_burst() -> None:
    stream = Stream()
    stream.feed(counts([0] * (RULE["rounds"] - 1)), 8.0)
    assert not stream.detector.in_burst
    stream.feed(counts([0]), ROUND)
    assert not stream.detector.in_burst  # one block, however large, is no window yet
    for _ in range(3):
        stream.feed(counts([0] * (RULE["rounds"] // RULE["blocks"])), 2.0)
    assert stream.detector.in_burst


def test_the_baseline_is_frozen_while_a_burst_goes_on() -> None:
    """A burst of an hour does not become the new normal; the way back ends it."""
    stream = Stream()
    stream.run(200, 0.7)
    stream.run(3600, 0.2)
    assert begins(stream) == [pytest.approx(206, abs=6)]
    assert stream.detector.in_burst
    stream.run(60, 0.7)
    assert not stream.detector.in_burst
    (burst,) = stream.bursts()
    assert burst.end / NANOSECONDS == pytest.approx(3800, abs=4)


def test_where_rounds_stop_coming_it_ended_with_the_last_one() -> None:
    stream = Stream()
    stream.run(200, 0.7)
    stream.run(20, 0.1)
    assert stream.detector.in_burst
    stream.idle(RULE["idle"] - 1)
    assert stream.detector.settle(round(stream.now * NANOSECONDS)) is None
    stream.idle(2)
    burst = stream.detector.settle(round(stream.now * NANOSECONDS))
    assert burst is not None
    assert burst.end / NANOSECONDS == pytest.approx(220, abs=2)
    assert stream.bursts() == []


def test_rounds_of_long_ago_are_not_judged_with_new_ones() -> None:
    """Three bad blocks in the morning and one in the evening are no window."""
    stream = Stream()
    for _ in range(3):
        stream.feed(counts([0] * 50), 2.0)
    stream.idle(RULE["stale"] + 1)
    stream.feed(counts([0] * 50), 2.0)
    assert not stream.detector.in_burst


def test_where_the_clock_is_turned_back_a_burst_ends_and_lasts_no_longer_than_it_did() -> None:
    stream = Stream()
    stream.idle(10_000)
    stream.run(10, 0.0)
    assert stream.detector.in_burst
    stream.idle(-3_600)
    burst = stream.detector.settle(round(stream.now * NANOSECONDS))
    assert not stream.detector.in_burst
    assert burst is not None
    assert (burst.end - burst.start) / NANOSECONDS == pytest.approx(10, abs=2)
    stream.run(10, 0.0)
    assert stream.detector.in_burst


def test_a_part_of_a_stream_that_its_reader_held_for_long_ends_no_burst() -> None:
    stream = Stream()
    stream.run(100, 0.0)
    stream.now -= 60
    stream.feed(counts([0] * 5), 0.2)
    assert stream.detector.in_burst
    stream.now += 60
    stream.run(10, 0.0)
    (burst,) = stream.bursts()
    assert burst.rounds > 100 * 26


def test_who_was_hit_is_told_worst_first() -> None:
    stream = Stream()
    stream.run(200, 0.7)
    for number in range(8):
        stream.run(number + 1, 0.0, source=Source(number, f"trace-{number}", f"tenant-{number % 2}"))
    (burst,) = stream.bursts()
    assert burst.worst[: RULE["worst"]] == tuple(f"trace-{number}" for number in (7, 6, 5, 4, 3))
    assert burst.requests >= 7
    (worst, most), (other, less) = burst.tenants
    assert (worst, other) == ("tenant-1", "tenant-0")
    assert most > less > 0


def test_a_tenant_that_only_was_there_is_told_after_the_one_that_it_comes_from() -> None:
    stream = Stream()
    stream.run(300, 0.75, source=Source(0, "a", "quiet"))
    for second in range(20):
        stream.run(1, 0.0, source=Source(1, "b", "noisy"))
        if second % 4 == 0:
            stream.run(1, 0.75, source=Source(2, "c", "quiet"))
    (burst,) = stream.bursts()
    assert [tenant for tenant, _ in burst.tenants] == ["noisy", "quiet"]
    assert burst.tenants[0][1] > 5 * burst.tenants[1][1]


def test_memory_does_not_grow_with_the_requests_of_a_burst() -> None:
    stream = Stream()
    for number in range(2_000):
        stream.feed(counts([0] * 50), 2.0, Source(number, f"trace-{number}", f"tenant-{number}"))
        stream.detector.mark(Source(number, f"trace-{number}"))
    assert stream.detector._open is not None
    assert len(stream.detector._open._whole.by_source) <= 64
    (burst,) = stream.bursts()
    for number in range(2_000):
        stream.detector.mark(Source(number, f"trace-{number}"))
    assert len(stream.detector._unmarked) <= 1_024
    assert len(stream.detector._owed) <= 64
    assert burst.requests == 2_000
    assert len(burst.tenants) == RULE["tenants"]
    assert len(burst.worst) == RULE["worst"]


def test_only_traces_that_are_marked_are_named() -> None:
    """The first bad request ends before there are rounds enough to see a burst; a third outlives it."""
    early, inside, outliving, good = (Source(number, name) for number, name in enumerate(("a", "b", "c", "d")))
    stream = Stream()
    stream.run(300, 0.75, source=good)
    assert not stream.detector.mark(good)
    stream.run(2, 0.0, source=early)
    assert not stream.detector.mark(early)
    stream.run(10, 0.0, source=outliving)
    stream.run(8, 0.0, source=inside)
    assert stream.detector.mark(inside)
    stream.run(100, 0.75, source=Source(4, "e"))
    (burst,) = stream.bursts()
    assert burst.worst == ("c", "b")
    assert burst.requests >= 3
    assert stream.detector.mark(outliving)
    assert not stream.detector.mark(Source(5, "f"))


def test_a_later_request_of_a_trace_that_was_named_is_not_marked() -> None:
    stream = Stream()
    stream.run(10, 0.0, source=Source(1, "a"))
    assert stream.detector.mark(Source(1, "a"))
    stream.run(100, 0.75, source=Source(2, "b"))
    (burst,) = stream.bursts()
    assert burst.worst == ("a",)
    assert not stream.detector.mark(Source(3, "a"))


def test_a_trace_with_a_marked_request_is_named_whatever_else_is_in_it() -> None:
    stream = Stream()
    stream.run(300, 0.75)
    stream.run(2, 0.0, source=Source(1, "a"))
    stream.detector.mark(Source(1, "a"))
    stream.run(10, 0.0, source=Source(2, "a"))
    assert stream.detector.mark(Source(2, "a"))
    (burst,) = stream.bursts()
    assert burst.worst == ("a",)
    assert burst.requests == 2


def test_a_request_whose_trace_nobody_keeps_counts_and_is_not_named() -> None:
    stream = Stream()
    for number in range(8):
        stream.feed(counts([0] * 50), 2.0, Source(number))
    assert stream.detector.mark(Source(7))
    (burst,) = stream.bursts()
    assert (burst.requests, burst.worst) == (8, ())


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8])
def test_a_draft_that_breaks_is_found_at_every_length(k: int) -> None:
    stream = Stream()
    stream.run(300, 0.75, k=k)
    stream.run(30, 0.1, k=k)
    stream.run(100, 0.75, k=k)
    (burst,) = stream.bursts()
    assert burst.start / NANOSECONDS == pytest.approx(300, abs=4)


def test_plain_decoding_is_nothing_to_judge() -> None:
    stream = Stream()
    for _ in range(100):
        stream.feed(Counts(tokens=100, plain_passes=100), 3.0)
    assert stream.bursts() == []
    assert stream.detector._current is None


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 4]), st.integers(1, 80), st.integers(0, 9), st.booleans()), max_size=80)
)
def test_every_trace_that_is_named_has_a_mark(handed: list[tuple[int, int, int, bool]]) -> None:
    """Requests that come and go in any order: each of ten traces has one after the other."""
    stream, running, marked = Stream(), dict(enumerate(range(10))), set()
    named: set[str] = set()
    for accepted, rounds, number, ends in handed:
        source = Source(running[number], f"trace-{running[number]}")
        stream.now += 1
        stream.feed(counts([accepted] * rounds), rounds * ROUND, source)
        if ends:
            marked |= {source.trace} if stream.detector.mark(source) else set()
            running[number] += 10
    for burst in stream.bursts():
        named |= set(burst.worst)
    for one in running.values():
        source = Source(one, f"trace-{one}")
        marked |= {source.trace} if stream.detector.mark(source) else set()
    assert named <= marked


@given(
    st.lists(st.tuples(st.lists(st.integers(0, K), max_size=80), st.integers(-2, 400), st.integers(0, 3)), max_size=120)
)
def test_whatever_comes_bursts_follow_each_other_and_hold_together(
    handed: list[tuple[list[int], int, int]],
) -> None:
    """In any order of times: a burst ends only after it began, starts before it ends, and counts no round twice."""
    stream, open_now, total = Stream(), False, 0
    for accepted, passed, request in handed:
        stream.now = max(stream.now + passed, 0.0)
        before = len(stream.told)
        stream.feed(counts(accepted), len(accepted) * ROUND, Source(request, f"trace-{request}"))
        total += len(accepted)
        for told in stream.told[before:]:
            if told.ended is not None:
                assert open_now
                open_now = False
            if told.began:
                assert not open_now
                open_now = True
        assert stream.detector.in_burst == open_now
    bursts = stream.bursts()
    assert sum(burst.rounds for burst in bursts) <= total
    for burst in bursts:
        assert burst.start <= burst.end
        assert 0 <= burst.rollbacks <= burst.rounds
        assert set(burst.worst) <= {f"trace-{number}" for number in range(4)}
