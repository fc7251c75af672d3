"""Lanes: bounded, with those that are not closed kept; failures in a row; restored as a whole or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.record import Ending, Facts, Record, Timing
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.stream import error_type
from otel_specdecode.generation.transition import Lane
from otel_specdecode.guard.breaker import Breaker
from otel_specdecode.guard.ladder import rungs_of
from otel_specdecode.guard.lanes import Failures, Lanes, LaneState
from otel_specdecode.guard.policy import Policy
from otel_specdecode.guard.windows import Closed

POLICY = Policy(mode="enforce")


def make(lane: Lane, asked: int | None, now: float) -> LaneState:
    return LaneState(lane, asked, Breaker(POLICY, rungs_of(asked, POLICY.ladder), now))


def names(number: int) -> tuple[str | None, ...]:
    return ("tenant", f"t{number}", "mlx", "target", "draft_model")


def open_up(state: LaneState) -> None:
    state.breaker.window("failures", Closed({"verifier_error": 2.0}, 2, 0.0), 0.0)
    assert state.breaker.state == "open"


def filled(lanes: Lanes, numbers: range) -> None:
    for number in numbers:
        lanes.find(names(number), 4, make, 0.0)


def kept(lanes: Lanes) -> set[str | None]:
    return {state.lane.key for state in lanes.all()}


def test_the_lane_used_longest_ago_is_forgotten() -> None:
    lanes = Lanes(3)
    filled(lanes, range(3))
    lanes.find(names(0), 4, make, 0.0)
    filled(lanes, range(3, 4))
    assert kept(lanes) == {"t0", "t2", "t3"}


def test_lanes_that_are_not_closed_are_kept_while_there_are_others() -> None:
    lanes = Lanes(10)
    for number in range(5):
        open_up(lanes.find(names(number), 4, make, 0.0))
    filled(lanes, range(5, 1000))
    assert kept(lanes) == {*(f"t{number}" for number in range(5)), *(f"t{number}" for number in range(995, 1000))}
    state = lanes.get(names(2))
    assert state is not None
    assert lanes.find(names(2), 4, make, 0.0) is state


def test_where_none_is_closed_the_newest_is_kept_nevertheless() -> None:
    lanes = Lanes(3)
    for number in range(10):
        open_up(lanes.find(names(number), 4, make, 0.0))
    assert kept(lanes) == {"t7", "t8", "t9"}
    assert lanes.get(names(0)) is None


def test_a_single_lane_is_a_cap_like_any_other() -> None:
    lanes = Lanes(1)
    for number in range(5):
        open_up(lanes.find(names(number), 4, make, 0.0))
        assert kept(lanes) == {f"t{number}"}


def test_lanes_are_restored_as_they_were_saved() -> None:
    lanes, other = Lanes(10), Lanes(10)
    open_up(lanes.find(names(1), 4, make, 0.0))
    saved = [state.saved(5.0) for state in lanes.all()]
    other.restore(saved, make, 100.0)
    assert [state.saved(100.0) for state in other.all()] == saved
    assert other.get(names(1)) is not None


def test_what_was_decided_before_a_lane_was_restored_is_known_as_such() -> None:
    """A request may run already where the child of a fork restores a state."""
    lanes, other = Lanes(10), Lanes(10)
    open_up(lanes.find(names(1), 4, make, 0.0))
    before = other.find(names(1), 4, make, 0.0)
    open_up(before)
    other.restore([state.saved(5.0) for state in lanes.all()], make, 100.0)
    restored = other.get(names(1))
    assert restored is not None
    assert restored.breaker.changes > before.breaker.changes


@pytest.mark.parametrize(
    "damage",
    [
        {"scope": "planet"},
        {"scope": []},
        {"key": 3},
        {"model": ["x"]},
        {"asked": 0},
        {"asked": True},
        {"asked": "4"},
        {"breaker": None},
        {"breaker": {"state": "open"}},
    ],
)
def test_one_lane_that_is_none_leaves_all_as_they_were(damage: dict[str, Any]) -> None:
    lanes, other = Lanes(10), Lanes(10)
    for number in range(2):
        open_up(lanes.find(names(number), 4, make, 0.0))
    good, bad = (state.saved(5.0) for state in lanes.all())
    with pytest.raises(ValueError, match="saved"):
        other.restore([good, {**bad, **damage}], make, 0.0)
    assert not other.all()


@pytest.mark.parametrize("nothing", [None, 3, "lanes", {}, [None], [3]])
def test_what_is_no_list_of_lanes_is_refused(nothing: Any) -> None:
    with pytest.raises(ValueError, match="saved lane"):
        Lanes(10).restore(nothing, make, 0.0)


def ended(error: str | None = None, *, kind: Any = None, tokens: int = 5) -> Record:
    counts = Counts(tokens=tokens, prefill_tokens=min(tokens, 1), plain_passes=max(tokens - 1, 0))
    ending = Ending(kind or ("complete" if error is None else "error"), 0, None, error)
    return Record(Request("chat", "mlx", "target"), counts, Timing(1.0), Facts(3), ending)


def judged(failures: Failures, *records: Record, always: bool = False) -> list[tuple[float, float]]:
    found = [closed.values for record in records if (closed := failures.take(record, always=always))]
    return [(values["out_of_memory"], values["verifier_error"]) for values in found]


@pytest.mark.parametrize("error", ["MemoryError", "numpy._core._exceptions._ArrayMemoryError"])
def test_what_runs_out_of_memory_is_known_by_the_end_of_its_name(error: str) -> None:
    assert judged(Failures(), ended(error)) == [(1, 0)]


def test_failures_count_until_one_goes_well() -> None:
    failed, oom, good = ended("RuntimeError"), ended("MemoryError"), ended()
    assert judged(Failures(), failed, failed) == [(0, 1), (0, 2)]
    assert judged(Failures(), oom, oom, oom) == [(1, 0), (2, 0), (3, 0)]
    assert judged(Failures(), failed, good, failed) == [(0, 1), (0, 0), (0, 1)]
    assert judged(Failures(), oom, failed, oom) == [(1, 0), (1, 1), (2, 1)]


def test_successes_alone_are_judged_only_where_that_is_wanted() -> None:
    assert judged(Failures(), ended(), ended()) == []
    assert judged(Failures(), ended(), ended(), always=True) == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    "said_nothing",
    [
        ended("KeyboardInterrupt"),
        ended("asyncio.exceptions.CancelledError"),
        ended("GeneratorExit"),
        ended("TimeoutError"),
        ended("ConnectionResetError"),
        ended("BrokenPipeError"),
        ended("InterruptedError"),
        ended("__main__.Stop"),
        ended("acme.llama_cpp.Stop"),
        ended("ValueError", tokens=0),
        ended("TypeError", tokens=0),
        ended(kind="closed", tokens=0),
    ],
    ids=lambda record: f"{record.ending.kind} {record.ending.error_type} {record.counts.tokens}",
)
def test_what_a_client_does_neither_counts_nor_ends_a_row(said_nothing: Record) -> None:
    """A prompt that is too long is a ValueError before the first token."""
    failed = ended("RuntimeError")
    assert judged(Failures(), failed, said_nothing, failed) == [(0, 1), (0, 2)]
    assert judged(Failures(), *[said_nothing] * 5, always=True) == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ConnectionResetError, TimeoutError, asyncio.CancelledError])
def test_ends_that_somebody_wished_are_known_by_the_names_that_records_have(kind: type[BaseException]) -> None:
    assert judged(Failures(), ended(error_type(kind()))) == []


@pytest.mark.parametrize(
    "error",
    ["OSError", "FileNotFoundError", "numpy.linalg.LinAlgError", "llama_cpp._internals.Fault", "ctypes.ArgumentError"],
)
def test_errors_of_the_engines_packages_and_built_in_ones_are_the_engines(error: str) -> None:
    assert judged(Failures(), ended(error, tokens=0)) == [(0, 1)]


def test_an_error_in_the_middle_is_the_engines_whatever_its_class() -> None:
    assert judged(Failures(), ended("ValueError", tokens=3)) == [(0, 1)]
