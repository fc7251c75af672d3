"""A run over time: nothing is lost between windows, and what happens in one shows in that one."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.figures import arm_figures
from otel_specdecode.acceptance.records import HostSample, Measured, Passes
from otel_specdecode.acceptance.report.timeline import STEPS, ArmWindow, timeline
from tests.acceptance.fakes import GIB, arms, fake_run, prompts
from tests.acceptance.report.cases import WORLD, changed, soak

AR, K4 = soak().head.arms


def windows(run, arm) -> tuple[ArmWindow, ...]:
    return dict(timeline(run).arms)[arm]


def test_all_tokens_are_in_some_window() -> None:
    found = timeline(soak())
    for arm in (AR, K4):
        tokens = sum((each.tokens_per_second or 0) * found.seconds for each in windows(soak(), arm))
        emitted = sum(each.output_tokens for each in soak().of(arm))
        assert tokens == pytest.approx(emitted, rel=0.03)


def test_each_window_is_near_what_the_whole_run_says() -> None:
    whole = arm_figures(soak(), K4)
    known = [each for each in windows(soak(), K4) if each.p50 is not None]
    assert len(known) > 5
    for each in known:
        assert each.accept_rate == pytest.approx(whole.accept_rate.value, rel=0.15)
        assert each.rollbacks_per_minute == pytest.approx(whole.rollbacks_per_minute, rel=0.15)
        assert each.p50 == pytest.approx(whole.round_p50.value, rel=0.05)
        assert each.p50 < each.p95 < each.p99


def test_an_autoregressive_arm_has_no_accept_rate_and_no_rollbacks() -> None:
    assert {(each.accept_rate, each.rollbacks_per_minute) for each in windows(soak(), AR)} == {(None, None)}


def test_a_draft_that_turns_bad_shows_from_then_on() -> None:
    middle = soak().measured[len(soak().measured) // 2].started_at

    def spoil(each: Measured) -> Measured:
        late = each.started_at >= middle and each.arm == "k=4"
        return replace(each, accepted=0, rejected=each.accepted + each.rejected) if late else each

    rates = [each.accept_rate for each in windows(changed(soak(), spoil), K4) if each.accept_rate is not None]
    assert rates[0] > 0.5
    assert rates[-1] == 0


def test_the_warm_up_is_no_part_of_it() -> None:
    warm = soak().results[0]
    earlier = replace(warm, id="w", phase="warm_up", started_at=warm.started_at - 500, output_tokens=9999)
    run = replace(soak(), results=(earlier, *soak().results))
    assert timeline(run) == timeline(soak())


@pytest.mark.parametrize(("seconds", "step"), [(20, 10), (100, 10), (580, 15), (1800, 60), (3600, 120)])
def test_windows_are_as_long_as_it_takes_for_at_most_forty(seconds: float, step: float) -> None:
    first, last = (
        soak().results[0],
        replace(soak().results[0], id="last", started_at=soak().results[0].started_at + seconds),
    )
    found = timeline(replace(soak(), results=(first, last), host=()))
    assert found.seconds == step
    assert found.seconds in STEPS
    assert len(found.at) <= 41


def test_the_machine_shows_its_worst_in_each_window() -> None:
    begun = min(each.started_at for each in soak().measured)
    sample = HostSample(begun + 1, 1.0, rss=GIB, memory_pressure="warn", thermal_state="nominal")
    worse = replace(sample, at=begun + 2, rss=2 * GIB, memory_pressure="normal", thermal_state="serious")
    first, second = timeline(replace(soak(), host=(sample, worse))).host[:2]
    assert (first.rss, first.memory_pressure, first.thermal_state) == (2 * GIB, "warn", "serious")
    assert (second.rss, second.memory_pressure, second.swap_used) == (None, None, None)


def test_a_state_that_the_system_does_not_tell_is_not_known() -> None:
    blind = replace(soak(), host=tuple(replace(each, thermal_state="unknown") for each in soak().host))
    assert {each.thermal_state for each in timeline(blind).host} == {None}


def test_a_run_without_results_has_no_time_line() -> None:
    assert timeline(replace(soak(), results=())) is None


def test_a_request_of_one_token_has_no_decode_time_and_is_still_counted() -> None:
    run = fake_run(arms((4,)), prompts(1, max_tokens=16), WORLD, kind="soak")
    short = changed(run, lambda each: replace(each, decode=None, duration=0.0, output_tokens=1, passes=Passes()))
    found = timeline(short)
    tokens = sum(each.tokens_per_second or 0 for _, arm in found.arms for each in arm) * found.seconds
    assert tokens == pytest.approx(2, rel=1e-3)
    assert {each.p50 for _, arm in found.arms for each in arm} == {None}
