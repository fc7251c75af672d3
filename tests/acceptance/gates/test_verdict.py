"""Verdicts on runs whose truth is known, waivers, and which runs are taken together."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.gates.policy import PRESETS, GatesPolicy, Waiver
from otel_specdecode.acceptance.gates.policy_file import preset_policy
from otel_specdecode.acceptance.gates.verdict import as_dict, evaluate
from otel_specdecode.acceptance.records import Arm, Passes, Run
from tests.acceptance.fakes import MANIFEST, World, arms, fake_run, prompts
from tests.acceptance.gates.cases import NOW, changed, good, judged, on_machine, without

BALANCED = preset_policy("balanced")
TODAY = date(2027, 1, 16)
SPEED = ("steady", "accept_rate", "accept_rate_by_context", "break_even")


def some(*names: str, policy: GatesPolicy = BALANCED, waivers: tuple[Waiver, ...] = ()) -> GatesPolicy:
    """Some gates of a policy."""
    return with_fields(policy, gates={name: policy.gates[name] for name in names}, waivers=waivers)


def waived(gate: str, until: date) -> Waiver:
    return Waiver(gate=gate, who="A. Reviewer", reason="known", expires=until)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_good_run_is_accepted(preset: str) -> None:
    verdict = judged(preset_policy(preset), good())

    assert (verdict.status, verdict.reasons, verdict.stay_on_ar) == ("accepted", (), False)
    assert verdict.reason.startswith("Take k=4: 2.8")
    assert (verdict.run_id, verdict.soak_id, verdict.arm) == ("fake-sweep", "fake-soak", "k=4")
    assert {each.status for each in verdict.gates} == {"pass"}


GRID = list(itertools.product((0.3, 0.5, 0.7, 0.9), (2, 4, 6), (0.001, 0.004, 0.016)))


@pytest.mark.parametrize(("accept", "k", "draft_step"), GRID)
def test_the_verdict_is_right_where_the_truth_is_known(accept: float, k: int, draft_step: float) -> None:
    world = World(accept=accept, draft_step=draft_step, noise=0.01)
    asked = prompts(8, max_tokens=1200)
    run = fake_run(arms((k,)), asked, world)
    soak = fake_run((Arm(k),), asked[:3], world, kind="soak", seconds=1850)
    policy = some(*SPEED)
    truth = {
        "steady": world.speed_up(k) - policy.gates["steady"].limit,
        "accept_rate": world.accept_rate(k) - policy.gates["accept_rate"].limit,
        "accept_rate_by_context": world.accept_rate(k) - policy.gates["accept_rate_by_context"].limit,
        "break_even": world.acceptance_length(k) / world.break_even_length(k) - 1,
    }

    verdict = evaluate(policy, run, soak, now=NOW)
    for gate in verdict.gates:
        if abs(truth[gate.id]) > 0.04:
            assert gate.status == ("pass" if truth[gate.id] > 0 else "fail"), (gate, truth[gate.id])
    if min(map(abs, truth.values())) > 0.04:
        assert verdict.status == ("accepted" if min(truth.values()) > 0 else "rejected")
    if abs(world.speed_up(k) - 1) > 0.04:
        take = verdict.status == "accepted"
        assert verdict.stay_on_ar != take
        assert verdict.reason.startswith(f"Take k={k}: " if take else "Stay on autoregressive decoding")
        assert ("is only" in verdict.reason) == (world.speed_up(k) < 1)


def test_a_pair_on_which_speculation_cannot_pay_stays_on_autoregressive_decoding_and_says_why() -> None:
    world = World(accept=0.3, draft_step=0.012)
    run = fake_run(arms((2, 4, 6)), prompts(20), world)

    verdict = evaluate(BALANCED, run, now=NOW)
    assert verdict.stay_on_ar
    assert verdict.reason.startswith("Stay on autoregressive decoding: the best arm, k=2, is only 0.7")
    assert "its rounds earn -2" in verdict.reason


def test_a_run_that_fails_for_another_reason_stays_for_that_reason() -> None:
    run, soak = good()

    verdict = judged(BALANCED, (run, on_machine(soak, swapped_in=lambda each: int(each.monotonic * 1e6))))
    assert (verdict.status, verdict.reasons) == ("rejected", ("swap_in failed",))
    assert (verdict.stay_on_ar, verdict.reason) == (True, "Stay on autoregressive decoding: swap_in failed.")


def test_what_is_slower_is_advised_against_even_where_every_gate_that_was_asked_holds() -> None:
    run, soak = good()

    verdict = judged(some("failures"), (changed(run, "k=4", time_per_token=0.03), soak))
    assert (verdict.status, verdict.stay_on_ar) == ("accepted", True)
    assert verdict.reason.startswith("Stay on autoregressive decoding: the best arm, k=4, is only 0.87")


def test_the_fastest_arm_is_judged_unless_another_is_named() -> None:
    run = fake_run(arms((2, 4)), prompts(20))

    assert evaluate(BALANCED, run, now=NOW).arm == "k=4"
    assert evaluate(BALANCED, run, now=NOW, arm="k=2").arm == "k=2"


@pytest.mark.parametrize("name", ["ar", "k=3", "k=4 c=2"])
def test_an_arm_that_cannot_be_judged_is_refused(name: str) -> None:
    run = fake_run(arms((2, 4)), prompts(2))

    with pytest.raises(AcceptanceError, match=rf'no speculative arm "{name}"; it has "k=2", "k=4"\.'):
        evaluate(BALANCED, run, now=NOW, arm=name)


@pytest.mark.parametrize("run_arms", [(Arm(0),), ()])
def test_a_run_without_a_speculative_arm_says_nothing(run_arms: tuple[Arm, ...]) -> None:
    verdict = evaluate(BALANCED, fake_run(run_arms, prompts(2)), now=NOW)

    assert (verdict.status, verdict.arm, verdict.stay_on_ar) == ("invalid", None, True)
    assert {each.status for each in verdict.gates} == {"not measured"}


def test_a_soak_alone_is_judged_by_what_it_tells() -> None:
    soak = good()[1]

    verdict = evaluate(some("emitted_per_second", policy=preset_policy("batch")), soak, now=NOW)
    assert (verdict.status, verdict.arm, verdict.soak_id) == ("accepted", "k=4", None)


def test_a_soak_of_another_arm_tells_nothing_of_this_one() -> None:
    run = fake_run(arms((2, 4)), prompts(20))

    (gate,) = evaluate(
        some("emitted_per_second", policy=preset_policy("batch")), run, good()[1], now=NOW, arm="k=2"
    ).gates
    assert (gate.status, gate.why) == ("not measured", "fake-soak has no arm k=2")


def test_runs_of_different_manifests_are_refused_by_the_name_of_the_difference() -> None:
    run, soak = good()
    other = {**MANIFEST, "id": "fedcba9876543210", "engine": {"name": "fake", "version": "2"}}

    with pytest.raises(AcceptanceError, match=r"not of one manifest.*: engine\.version: 1, and 2\."):
        judged(BALANCED, (run, replace(soak, head=replace(soak.head, manifest=other))))


def test_only_a_soak_stands_beside_a_run() -> None:
    run, soak = good()

    with pytest.raises(AcceptanceError, match="fake-sweep is a sweep, not a soak"):
        judged(BALANCED, (run, run))
    with pytest.raises(AcceptanceError, match="fake-soak is a soak itself"):
        judged(BALANCED, (soak, soak), arm=None)


def slow_rounds() -> tuple[Run, Run]:
    run, soak = good()
    return changed(run, "k=4", passes=lambda each: Passes(each.passes.tokens, (90_000,) * each.rounds)), soak


@pytest.mark.parametrize(
    ("days", "status", "gate", "expired"), [(0, "accepted", "waived", False), (-1, "rejected", "fail", True)]
)
def test_a_waiver_counts_to_the_end_of_its_last_day(days: int, status: str, gate: str, expired: bool) -> None:
    policy = some(
        "round_p95", policy=preset_policy("interactive"), waivers=(waived("round_p95", TODAY + timedelta(days)),)
    )

    verdict = judged(policy, slow_rounds())
    (found,) = verdict.gates
    assert (verdict.status, found.status, found.value) == (status, gate, 0.09)
    assert found.waiver is not None
    assert (found.waiver.who, found.waiver.reason, found.waiver.expired) == ("A. Reviewer", "known", expired)


def test_of_two_waivers_the_longer_one_counts() -> None:
    waivers = (waived("round_p95", TODAY + timedelta(2)), waived("round_p95", TODAY - timedelta(2)))

    (found,) = judged(some("round_p95", policy=preset_policy("interactive"), waivers=waivers), slow_rounds()).gates
    assert found.status == "waived"


def test_a_waiver_of_what_was_not_measured_counts_for_nothing() -> None:
    run, soak = good()

    verdict = judged(some("quality", waivers=(waived("quality", TODAY),)), (changed(run, check=None), soak))
    assert (verdict.status, verdict.gates[0].status) == ("invalid", "not measured")


def test_a_warning_is_told_and_rejects_nothing() -> None:
    run, soak = good()
    heavy = changed(run, "k=4", peak_rss=20 * 2**30)
    swapping = replace(heavy, host=tuple(replace(each, swapped_out=n // 40) for n, each in enumerate(heavy.host)))

    verdict = judged(some("memory_rise", "accept_rate"), (swapping, soak))
    assert (verdict.status, [each.status for each in verdict.gates]) == ("accepted", ["fail", "pass"])


def test_a_policy_of_warnings_accepts_nothing() -> None:
    assert judged(some("memory_rise"), good()).status == "invalid"


def test_a_gate_that_is_switched_off_is_told() -> None:
    gates = {name: with_fields(gate, enabled=name != "quality") for name, gate in BALANCED.gates.items()}

    verdict = judged(with_fields(BALANCED, gates=gates), (changed(good()[0], check=None), good()[1]))
    assert (verdict.status, verdict.disabled) == ("accepted", ("quality",))


def test_an_interval_that_holds_the_bound_is_not_clear_of_it() -> None:
    run, soak = good()
    ratio = judged(some("steady"), (run, soak)).gates[0]
    assert ratio.low is not None
    assert ratio.value is not None
    between = (ratio.low + ratio.value) / 2

    gate = with_fields(BALANCED.gates["steady"], at_least=between)
    for by, status in (("interval", "fail"), ("value", "pass")):
        policy = with_fields(BALANCED, gates={"steady": with_fields(gate, by=by)})
        assert judged(policy, (run, soak)).gates[0].status == status


def test_a_verdict_is_json() -> None:
    verdict = judged(BALANCED, slow_rounds())

    read_back = json.loads(json.dumps(as_dict(verdict), allow_nan=False))
    assert read_back["status"] == "rejected"
    assert read_back["gates"][0].keys() >= {"id", "status", "value", "threshold", "low", "high", "evidence", "waiver"}
    assert read_back["gates"][0]["evidence"][0] == {
        "run_id": "fake-sweep",
        "file": "results.jsonl",
        "samples": 226,
        "of": "requests",
    }


LOSSES: dict[str, Callable[[Run], Run]] = {
    "passes": lambda run: changed(run, passes=Passes()),
    "time_per_token": lambda run: changed(run, time_per_token=None),
    "time_to_first_token": lambda run: changed(run, time_to_first_token=None),
    "rounds": lambda run: changed(run, accepted=0, rejected=0, rounds=0),
    "checks": lambda run: changed(run, check=None),
    "digests": lambda run: changed(run, text_digest=None),
    "openings": lambda run: changed(run, opening_digest=None),
    "memory": lambda run: changed(run, peak_rss=None),
    "baseline": lambda run: without(run, lambda each: each.arm == "ar"),
    "short answers": lambda run: changed(run, output_tokens=100),
    "most requests": lambda run: without(run, lambda each: each.prompt != "short-1"),
    "the machine": lambda run: replace(run, host=()),
    "swap": lambda run: on_machine(run, swap_used=None, swapped_in=None, swapped_out=None),
    "pressure": lambda run: on_machine(run, memory_pressure="unknown"),
    "heat": lambda run: on_machine(run, thermal_state="unknown"),
    "power": lambda run: on_machine(run, power_mode="unknown", power_source="unknown"),
    "side load": lambda run: on_machine(run, side_load=None),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_no_single_loss_is_accepted(loss: str) -> None:
    policy = preset_policy("interactive" if loss == "time_to_first_token" else "balanced")

    assert judged(policy, (LOSSES[loss](good()[0]), LOSSES[loss](good()[1]))).status == "invalid"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(PRESETS),
    st.sets(st.sampled_from(sorted(LOSSES)), max_size=3),
    st.sampled_from(("run", "soak", "both")),
)
def test_nothing_is_accepted_that_was_not_measured(preset: str, losses: set[str], where: str) -> None:
    run, soak = good()
    for loss in sorted(losses):
        run = LOSSES[loss](run) if where != "soak" else run
        soak = LOSSES[loss](soak) if where != "run" else soak

    verdict = judged(preset_policy(preset), (run, soak))
    decided = all(each.status != "not measured" for each in verdict.gates if each.level == "gate")
    counts = all(each.status == "held" for each in verdict.validity if each.counts)
    passed = all(each.status in ("pass", "waived") for each in verdict.gates if each.level == "gate")
    assert (verdict.status == "accepted") == (decided and counts and passed)
