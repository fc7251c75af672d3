"""From a stream's clock readings and passes to its record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.generation.counts import ContradictionError, Counts
from otel_specdecode.generation.folding import FoldingObserver
from otel_specdecode.generation.ledger import Ledger
from otel_specdecode.generation.record import Record
from otel_specdecode.generation.tally import Tally
from otel_specdecode.generation.timeline import Timeline
from otel_specdecode.testing.fake import (
    MILLISECOND,
    WORKED_EXAMPLE,
    FakeClock,
    FakeRound,
    Script,
    accepted_rounds,
    fake_stream,
)


def play(script: Script, *, think: int = 0, stop_after: int | None = None) -> tuple[Record, FoldingObserver]:
    """Play a script to a consumer that thinks a while over each token, and maybe stops."""
    observer, clock = FoldingObserver(), FakeClock()
    stream = fake_stream(observer, script, clock)
    for number, _ in enumerate(stream, 1):
        clock.advance(think)
        if number == stop_after:
            break
    stream.close()
    return observer.record, observer


def test_the_worked_example_in_time() -> None:
    """k = 4, 3 ms a draft pass and 26 ms a target pass: each round takes 38 ms, without its 5 ms of thought."""
    script = Script(rounds=accepted_rounds(WORKED_EXAMPLE, 4), finish_reason="stop")
    record, observer = play(script, think=5 * MILLISECOND)
    assert (record.counts.rounds, record.counts.accepted, record.acceptance_length) == (8, 18, 3.25)
    assert record.counts.tokens == 26
    assert record.timing.prefill == pytest.approx(0.120)
    assert record.timing.time_to_first_token == pytest.approx(0.158)
    assert record.timing.decode == pytest.approx(8 * 0.038)
    assert record.timing.consumer == pytest.approx(25 * 0.005)
    assert record.timing.time_per_token == pytest.approx(7 * 0.038 / 23)
    assert record.timing.duration == pytest.approx(0.120 + 8 * 0.038 + 25 * 0.005)
    assert record.rollbacks_per_minute == pytest.approx(7 / (8 * 0.038) * 60)
    times = [time for delta in observer.recordings[0].deltas for time in delta.pass_times]
    assert times == [38 * MILLISECOND] * 8


def test_an_autoregressive_run() -> None:
    """Ten tokens: one from prefill, nine passes of 26 ms, acceptance length 1 and no accept rate."""
    record, observer = play(Script(tokens=10))
    assert (record.counts.tokens, record.counts.decode_passes, record.counts.prefill_tokens) == (10, 9, 1)
    assert record.acceptance_length == 1.0
    assert record.counts.accept_rate is None
    assert record.timing.time_to_first_token == pytest.approx(0.146)
    assert record.timing.time_per_token == pytest.approx(0.026)
    assert record.timing.tokens_per_second == pytest.approx(1 / 0.026)
    times = [time for delta in observer.recordings[0].deltas for time in delta.pass_times]
    assert times == [26 * MILLISECOND] * 9


def test_a_prefill_token_is_a_burst_of_its_own() -> None:
    """Where the first token comes from prefill (llama.cpp), every round counts towards time per token."""
    script = Script(rounds=accepted_rounds((3, 3), 4), tokens=1)
    record, _ = play(script)
    assert (record.counts.prefill_tokens, record.counts.tokens) == (1, 9)
    assert record.timing.time_per_token == pytest.approx(2 * 0.038 / 8)


def test_plain_passes_among_rounds() -> None:
    """A pass that verifies nothing is a decode pass but no round, and leaves the accept rate alone."""
    rounds = (FakeRound(4, 5), FakeRound(0, 1), FakeRound(4, 1))
    record, _ = play(Script(rounds=rounds, tokens=1))
    assert (record.counts.decode_passes, record.counts.rounds, record.counts.plain_passes) == (3, 2, 1)
    assert record.counts.accept_rate == 0.5


def test_a_token_that_is_the_only_one() -> None:
    """One token has a time to first token, but no time per token and no waits between tokens."""
    record, _ = play(Script(tokens=1))
    assert record.timing.time_per_token is None
    assert record.timing.wait_p50 is None
    assert record.timing.decode == pytest.approx(0.026)


def test_no_token_at_all() -> None:
    """A stream that ends before its first token has a duration and nothing else."""
    record, _ = play(Script(tokens=0))
    assert record.timing.duration == pytest.approx(0.120)
    assert record.timing.time_to_first_token is None
    assert record.counts == Counts(prefill_passes=1)


def test_a_close_inside_a_round_leaves_its_rest_unverified() -> None:
    """A consumer that stops after 2 of 4 accepted tokens cuts the round: 2 unverified, no rollback."""
    record, _ = play(Script(rounds=accepted_rounds((4, 4), 4)), stop_after=7)
    assert record.ending.kind == "closed"
    assert (record.counts.accepted, record.counts.unverified, record.counts.rollbacks) == (6, 2, 0)
    assert (record.counts.all_accepted, record.counts.cut) == (1, 1)


def test_a_closed_stream_counts_the_last_hold() -> None:
    """The consumer's time includes what it held after the last token of a stream that it closes."""
    record, _ = play(Script(tokens=3), think=10 * MILLISECOND, stop_after=2)
    assert record.timing.consumer == pytest.approx(0.020)
    assert record.timing.duration == pytest.approx(0.120 + 2 * 0.026 + 0.020)


def test_prefill_that_cannot_be_told_apart_is_absent() -> None:
    """Decode then begins at the first token, and the first round's duration is not recorded."""
    timeline, ledger, tally = Timeline(), Ledger(), Tally(pass_entries=True)
    ledger.open_pass(0, 2)
    timeline.resumes += [0, 100, 100]
    timeline.yields += [100, 100, 100]
    ledger.open_pass(3, 2)
    timeline.resumes.append(100)
    timeline.yields.append(140)
    delta = tally.add(timeline.take(ledger))
    last = tally.end_segment(finished=True)
    assert tally.prefill is None
    assert tally.decode == 40
    assert (list(delta.pass_times), list(last.pass_times)) == ([], [40])


def test_segments_add_up_and_no_gap_spans_two() -> None:
    """Two completions of one chat: counts add, time to first token is the first one's, the gap between is nobody's."""
    timeline, ledger, tally = Timeline(), Ledger(), Tally(pass_entries=False)
    for start in (0, 10_000):
        ledger.prefill_end = start + 50
        timeline.resumes += [start, start + 100, start + 120]
        timeline.yields += [start + 60, start + 110, start + 130]
        ledger.plain_passes += 2
        tally.add(timeline.take(ledger))
        tally.end_segment(finished=True)
    assert tally.time_to_first_token == 60
    assert (tally.prefill, tally.decode, tally.consumer) == (100, 60, 100)
    assert (tally.totals.tokens, tally.totals.prefill_tokens, tally.totals.plain_passes) == (6, 2, 4)
    assert len(tally.waits) == 4
    tally.totals.verify()


def test_tokens_without_a_pass_are_refused() -> None:
    """A speculative run whose passes were not seen is no run of 0 passes: one token at most can come from prefill."""
    timeline, tally = Timeline(), Tally(pass_entries=True)
    timeline.resumes += [0, 10]
    timeline.yields += [10, 20]
    with pytest.raises(ContradictionError):
        tally.add(timeline.take(Ledger()))
    ledger = Ledger()
    ledger.known = False
    with pytest.raises(ContradictionError):
        Tally(pass_entries=False).add(Timeline().take(ledger))


ROUND = st.integers(1, 9).flatmap(
    lambda proposed: st.builds(FakeRound, st.just(proposed), st.integers(1, proposed + 1), st.just(True))
)
PASSES = st.lists(st.one_of(ROUND, st.just(FakeRound(0, 1))), min_size=1, max_size=30)


@given(PASSES, st.integers(0, 1), st.integers(1, 120), st.data())
def test_any_run_cut_anywhere_holds_the_identities(
    rounds: list[FakeRound], prefill_tokens: int, stop_after: int, data: st.DataObject
) -> None:
    """For every run and ending: proposed splits up, tokens are those of prefill and passes, deltas sum to totals."""
    if not any(each.proposed for each in rounds):
        rounds.append(FakeRound(3, 2))
    clock, observer = FakeClock(), FoldingObserver()
    slow = data.draw(st.booleans(), label="slow enough to be handed over in parts")
    script = Script(rounds=tuple(rounds), tokens=prefill_tokens, target_step=(400 if slow else 1) * MILLISECOND)
    stream = fake_stream(observer, script, clock)
    emitted = 0
    for _ in stream:
        emitted += 1
        if emitted == stop_after:
            break
    stream.close()
    record, (recording,) = observer.record, observer.recordings
    counts = record.counts
    assert counts.tokens == emitted
    assert counts.proposed == counts.accepted + counts.rejected + counts.unverified
    assert counts.tokens == counts.prefill_tokens + counts.accepted + counts.finished_rounds + _plain_tokens(counts)
    summed = Counts()
    for delta in recording.deltas:
        summed.add(delta.counts)
    assert summed == counts
    assert sum(len(delta.gaps) for delta in recording.deltas) == max(emitted - 1, 0)


def _plain_tokens(counts: Counts) -> int:
    tokens = counts.decode_tokens - counts.accepted - counts.finished_rounds
    assert 0 <= tokens <= counts.plain_passes
    return tokens


@given(PASSES, st.lists(st.booleans(), min_size=300, max_size=300))
def test_hand_overs_change_nothing(rounds: list[FakeRound], hand_over: list[bool]) -> None:
    """However a stream is cut into stretches, the same totals come out."""

    def fold(cut: bool) -> Tally:
        timeline, ledger, tally, now = Timeline(), Ledger(), Tally(pass_entries=True), 0
        for each in rounds:
            ledger.open_pass(timeline.emitted(), each.proposed)
            for _ in range(each.emitted):
                timeline.resumes.append(now)
                now += 7
                timeline.yields.append(now)
                if cut and hand_over[timeline.emitted() % len(hand_over)]:
                    tally.add(timeline.take(ledger))
                now += 3
        tally.add(timeline.take(ledger))
        tally.end_segment(finished=True)
        return tally

    whole, parts = fold(cut=False), fold(cut=True)
    assert parts.totals == whole.totals
    for name in ("decode", "consumer", "prefill", "time_to_first_token", "after_first_burst"):
        assert getattr(parts, name) == getattr(whole, name)
    assert parts.tokens_after_first_burst == whole.tokens_after_first_burst
