"""Every gate of every preset: a run that it lets pass, one that fails it, and one that does not tell."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from msgspec import structs

from otel_specdecode.acceptance.figures import tier_of
from otel_specdecode.acceptance.gates.policy import PRESETS, Gate, GatesPolicy
from otel_specdecode.acceptance.gates.policy_file import preset_policy
from otel_specdecode.acceptance.gates.quality import CHANGES_OUTPUT
from otel_specdecode.acceptance.records import Measured, Passes, Run
from otel_specdecode.telemetry.names import Enum
from tests.acceptance.fakes import GIB, MANIFEST
from tests.acceptance.gates.cases import Spoil, changed, good, judged, on_machine, result, without

GATES = sorted({name for preset in PRESETS for name in preset_policy(preset).gates})


def sweep(spoil) -> Spoil:
    return lambda run, soak: (spoil(run), soak)


def soaked(spoil) -> Spoil:
    return lambda run, soak: (run, spoil(soak))


def both(spoil) -> Spoil:
    return lambda run, soak: (spoil(run), spoil(soak))


def k4(**fields) -> Spoil:
    return sweep(lambda run: changed(run, "k=4", **fields))


def slower(factor: float, every: int = 1):
    """Passes that take so many times as long, or one in so many of them."""

    def of(request: Measured) -> Passes:
        times = request.passes.microseconds
        slow = (int(each * factor) if number % every == 0 else each for number, each in enumerate(times))
        return Passes(request.passes.tokens, tuple(slow))

    return of


def tardy(request: Measured) -> float:
    """Of the last fifty short prompts a few take long."""
    late = request.prompt in {f"short-{number}" for number in range(150, 154)}
    return 0.9 if late else request.time_to_first_token or 0.0


def rate(accepted: float):
    """Counts of a request in which so much was accepted."""
    return {
        "accepted": lambda each: round(each.compared * accepted),
        "rejected": lambda each: each.compared - round(each.compared * accepted),
    }


def few(run: Run) -> Run:
    return without(run, lambda each: each.prompt not in ("short-1", "mid-1"))


def mid(request: Measured) -> bool:
    return tier_of(request) == "mid"


def swapping(field: str, total: int) -> Spoil:
    """Swap that is used, or read back, bit by bit."""
    return soaked(lambda run: replace(run, host=tuple(_with(each, field, total, run) for each in run.host)))


def _with(sample, field, total, run):
    share = (sample.at - run.host[0].at) / (run.host[-1].at - run.host[0].at)
    return replace(sample, **{field: int(total * share)})


def heavier(run: Run) -> Run:
    """The draft takes a fifth more memory than the target alone, and the machine swaps now and then."""
    run = changed(run, "k=4", peak_rss=12 * GIB)
    return replace(run, host=tuple(replace(each, swapped_out=(n // 40) * 4096) for n, each in enumerate(run.host)))


def failing_tasks(count: int) -> Spoil:
    tasks = {f"short-{number}" for number in range(200)}
    lost: set[str] = set()
    gained: set[str] = set()
    for each in good()[0].of("k=4"):
        if each.prompt in tasks and each.check and len(lost) < count:
            lost.add(each.prompt)
        if each.prompt in tasks and each.check is False and len(gained) < -count:
            gained.add(each.prompt)
    return k4(check=lambda each: False if each.prompt in lost else True if each.prompt in gained else each.check)


UNKNOWN = {"thermal_state": "unknown", "power_mode": "unknown"}

FAILS: dict[str, list[Spoil]] = {
    "time_to_first_token": [k4(time_to_first_token=lambda each: each.time_to_first_token * 1.07)],
    "time_to_first_token_p95": [k4(time_to_first_token=0.86), k4(time_to_first_token=tardy)],
    "time_to_first_token_p95_4k": [k4(time_to_first_token=lambda each: 0.91 if mid(each) else 0.01)],
    "round_p95": [k4(passes=slower(2.1))],
    "round_p99": [k4(passes=slower(4, every=50))],
    "tokens_per_second": [k4(time_per_token=1 / 43.5)],
    "speed_up": [k4(time_per_token=0.026 / 1.15)],
    "time_per_token_p95": [k4(time_per_token=lambda each: 0.046 if each.prompt.endswith("7") else 0.01)],
    "accept_rate_median": [k4(**rate(0.54))],
    "emitted_per_second": [soaked(lambda run: changed(run, "k=4", duration=lambda each: each.output_tokens / 27.5))],
    "emitted_per_second_autoregressive": [
        soaked(lambda run: changed(run, "ar", duration=lambda each: each.output_tokens / 17.5))
    ],
    "peak_memory_bytes": [soaked(lambda run: changed(run, "k=4", peak_footprint=24 * GIB + 1)), k4(peak_rss=25 * GIB)],
    "no_swap": [swapping("swapped_out", 4096)],
    "steady": [k4(passes=slower(2.55))],
    "accept_rate": [k4(**rate(0.41))],
    "accept_rate_by_context": [
        k4(
            accepted=lambda each: each.accepted // 2 if mid(each) else each.accepted,
            rejected=lambda each: each.compared - each.accepted // 2 if mid(each) else each.rejected,
        )
    ],
    "break_even": [k4(passes=slower(3))],
    "peak_memory": [k4(peak_rss=int(32 * GIB * 0.79))],
    "memory_rise": [sweep(heavier)],
    "swap_growth": [swapping("swap_used", 600 * 2**20)],
    "swap_in": [swapping("swapped_in", 230 * 2**20)],
    "memory_pressure": [both(lambda run: on_machine(run, lambda n, _: 100 <= n < 113, memory_pressure="critical"))],
    "throttling": [
        soaked(lambda run: on_machine(run, lambda n, _: n == 200, thermal_state="serious")),
        soaked(lambda run: on_machine(run, lambda n, _: n == 200, power_mode="low")),
        soaked(lambda run: on_machine(run, lambda n, _: n == 200, power_mode="low", thermal_state="unknown")),
    ],
    "quality": [failing_tasks(2), failing_tasks(-2)],
    "same_output": [k4(text_digest=lambda each: "other" if each.prompt == "short-3" else each.text_digest)],
    "distribution": [
        sweep(lambda run: changed(run, "k=4 t=0.7", opening_digest=lambda each: "ab"[each.repeat % 2])),
    ],
    "failures": [
        sweep(lambda run: changed(run, "k=4", error=lambda each: "ValueError" if each.prompt == "short-3" else None)),
    ],
}

UNMEASURED: dict[str, list[Spoil]] = {
    "time_to_first_token": [k4(time_to_first_token=None), sweep(few), k4(input_tokens=1025)],
    "time_to_first_token_p95": [k4(input_tokens=lambda each: 1025 if each.prompt < "short-16" else 1024)],
    "time_to_first_token_p95_4k": [sweep(lambda run: without(run, mid)), k4(input_tokens=4097)],
    "round_p95": [k4(passes=Passes()), sweep(few)],
    "round_p99": [k4(passes=Passes()), sweep(few)],
    "tokens_per_second": [k4(output_tokens=127), sweep(few)],
    "speed_up": [sweep(lambda run: changed(run, "ar", output_tokens=127)), sweep(few)],
    "time_per_token_p95": [k4(output_tokens=127), sweep(few)],
    "accept_rate_median": [sweep(few), k4(accepted=0, rejected=0)],
    "emitted_per_second": [
        lambda run, soak: (run, None),
        soaked(lambda run: without(run, lambda each: each.started_at > run.results[0].started_at + 1000)),
    ],
    "emitted_per_second_autoregressive": [soaked(lambda run: without(run, lambda each: each.arm == "ar"))],
    "peak_memory_bytes": [both(lambda run: changed(run, peak_rss=None))],
    "no_swap": [soaked(lambda run: on_machine(run, swapped_out=None)), sweep(lambda run: replace(run, host=()))],
    "steady": [k4(passes=Passes()), sweep(lambda run: without(run, lambda each: each.prompt > "answer-3"))],
    "accept_rate": [sweep(few), k4(accepted=0, rejected=0)],
    "accept_rate_by_context": [sweep(few), k4(accepted=0, rejected=0)],
    "break_even": [sweep(few), sweep(lambda run: without(run, lambda each: each.arm == "ar"))],
    "peak_memory": [
        both(lambda run: changed(run, peak_rss=None)),
        lambda run, soak: (replace(on_machine(run, memory_limit=None), head=replace(run.head, manifest={})), None),
    ],
    "memory_rise": [
        k4(peak_rss=12 * GIB),
        sweep(lambda run: replace(run, head=replace(run.head, alone={}))),
        k4(peak_footprint=12 * GIB),
    ],
    "swap_growth": [soaked(lambda run: on_machine(run, swap_used=None))],
    "swap_in": [lambda run, soak: (run, None), soaked(lambda run: on_machine(run, swapped_in=None))],
    "memory_pressure": [
        both(lambda run: on_machine(run, lambda n, _: 100 <= n < 113, memory_pressure="unknown")),
        sweep(lambda run: replace(run, host=())),
    ],
    "throttling": [
        soaked(lambda run: on_machine(run, **UNKNOWN)),
        sweep(lambda run: on_machine(run, lambda n, _: 100 <= n < 113, thermal_state="unknown")),
        sweep(lambda run: replace(run, host=())),
    ],
    "quality": [k4(check=lambda each: None if each.prompt == "short-3" else each.check), k4(check=None)],
    "same_output": [k4(text_digest=None), sweep(few)],
    "distribution": [
        sweep(lambda run: without(run, lambda each: each.repeat >= 40)),
        sweep(lambda run: changed(run, opening_digest=lambda each: f"{each.repeat}")),
        sweep(lambda run: changed(run, opening_digest=None)),
    ],
    "failures": [
        lambda run, soak: tuple(without(each, lambda one: one.arm == "k=4") for each in (run, soak)),
    ],
}


def spoiled(table: dict[str, list[Spoil]]) -> list[tuple[str, Spoil]]:
    return [pytest.param(gate, spoil, id=f"{gate}-{n}") for gate in GATES for n, spoil in enumerate(table[gate])]


@pytest.mark.parametrize("gate", GATES)
def test_a_good_run_passes(gate: str) -> None:
    found = result(gate, good())

    assert (found.status, found.why if found.status != "pass" else "") == ("pass", "")
    assert found.value is not None
    assert found.samples >= found.needs
    assert sum(each.samples for each in found.evidence) == found.samples
    assert {each.file for each in found.evidence} <= {"results.jsonl", "host.jsonl"}


@pytest.mark.parametrize(("gate", "spoil"), spoiled(FAILS))
def test_a_bad_run_fails(gate: str, spoil: Spoil) -> None:
    found = result(gate, spoil(*good()))

    assert (found.status, found.why if found.status == "not measured" else "") == ("fail", "")


@pytest.mark.parametrize(("gate", "spoil"), spoiled(UNMEASURED))
def test_a_run_that_does_not_tell_is_not_measured_and_says_why(gate: str, spoil: Spoil) -> None:
    found = result(gate, spoil(*good()))

    assert (found.status, found.value, found.evidence) == ("not measured", None, ())
    assert len(found.why) > 10


@pytest.mark.parametrize("gate", GATES)
def test_an_empty_run_is_not_measured(gate: str) -> None:
    run, soak = (replace(each, results=(), host=()) for each in good())

    assert result(gate, (run, soak)).status == "not measured"


def test_swapping_matters_only_where_memory_rises() -> None:
    run, soak = good()
    swapping_run = heavier(run)

    light = changed(swapping_run, "k=4", peak_rss=11 * GIB)
    assert result("memory_rise", (light, soak)).status == "pass"
    assert "6 swap episodes" in result("memory_rise", (swapping_run, soak)).why


def test_a_rise_without_swapping_is_fine_where_seven_days_were_watched() -> None:
    run, soak = good()
    week = 8 * 86_400.0
    last = replace(run.results[-1], started_at=run.results[0].started_at + week)
    host = tuple(replace(each, at=each.at + week, monotonic=each.monotonic + week) for each in run.host)
    heavy = changed(replace(run, results=(*run.results, last), host=run.host + host), "k=4", peak_rss=12 * GIB)

    assert result("memory_rise", (heavy, soak)).status == "pass"


QUANTISED = {**MANIFEST, "target": {"quantization": "4 bits, group 64"}}
CHANGING = ("sliding_window_exceeded", "recurrent_target", "cache_reuse_short", "processors_with_draft")


def differing(count: int, **fields: object) -> Run:
    """The sweep, in which so many of its 226 greedy answers differ, with other values in these."""
    run = good()[0]
    lost = {each.id for each in run.of("k=4")[:count]}
    fields = {"text_digest": "other", **fields}
    return replace(run, results=tuple(replace(each, **fields) if each.id in lost else each for each in run.results))


def quantised(run: Run) -> tuple[Run, None]:
    return replace(run, head=replace(run.head, manifest=QUANTISED)), None


@pytest.mark.parametrize("hazard", CHANGING)
def test_answers_that_a_hazard_can_change_are_told_and_not_failed(hazard: str) -> None:
    found = result("same_output", (differing(2, hazards=(hazard, "all_rejected")), good()[1]))

    assert (found.status, found.value, found.why) == ("pass", 0, f"2 more differ with hazard {hazard}")


@pytest.mark.parametrize("hazard", sorted({*Enum.SPECDECODE_HAZARD_ID} - {*CHANGING}))
def test_no_other_hazard_excuses_an_answer(hazard: str) -> None:
    found = result("same_output", (differing(1, hazards=(hazard,)), good()[1]))

    assert (found.status, found.value, found.unit, found.threshold) == ("fail", 1, "count", 0)


def test_the_hazards_that_excuse_are_known_ones() -> None:
    assert {*CHANGING} == CHANGES_OUTPUT < {*Enum.SPECDECODE_HAZARD_ID}


@pytest.mark.parametrize(("count", "status"), [(0, "pass"), (22, "pass"), (23, "fail"), (226, "fail")])
def test_with_a_quantised_target_the_share_that_differs_has_a_bound(count: int, status: str) -> None:
    found = result("same_output", quantised(differing(count)))

    assert (found.status, found.value, found.samples) == (status, count / 226, 226)
    assert (found.unit, found.bound, found.threshold) == ("share", "<=", 0.1)
    told = f"{count} of 226 differ with quantised weights (4 bits, group 64)"
    assert found.why.startswith(told if count else "")
    assert ("a draft can only change which of two tokens wins" in found.why) == (status == "fail")


def test_with_a_quantised_target_too_a_hazard_excuses_and_its_pairs_are_no_part_of_the_share() -> None:
    run = differing(26, hazards=("recurrent_target",))
    lost = {each.id for each in run.of("k=4")[26:56]}
    run = replace(
        run, results=tuple(replace(each, text_digest="other") if each.id in lost else each for each in run.results)
    )

    found = result("same_output", quantised(run))
    assert (found.status, found.value) == ("fail", 30 / 200)
    assert found.why.startswith(
        "30 of 200 differ with quantised weights (4 bits, group 64), 26 more differ with hazard "
    )


def test_a_gate_without_a_share_for_quantised_targets_holds_for_them_as_for_any() -> None:
    strict = Gate(measure="different_answers", at_most=0)
    policy = GatesPolicy(preset=None, validity=preset_policy("balanced").validity, gates={"mine": strict})

    (found,) = judged(policy, quantised(differing(1))).gates
    assert (found.status, found.value, found.threshold) == ("fail", 1, 0)


def unpaired(run: Run) -> Run:
    """All but 30 short prompts of the baseline are others, whose first token took ten times as long."""
    kept = {f"short-{number}" for number in range(30)}
    others = without(run, lambda each: each.arm == "ar" and each.prompt.startswith("short") and each.prompt not in kept)
    lonely = [each for each in run.of("ar") if each.prompt.startswith("short") and each.prompt not in kept]
    slow = (replace(each, prompt=f"only-{each.prompt}", time_to_first_token=0.4) for each in lonely)
    return replace(others, results=(*others.results, *slow))


def test_the_first_token_is_held_against_that_of_the_same_prompts() -> None:
    run, soak = good()
    slower_draft = changed(run, "k=4", time_to_first_token=lambda each: each.time_to_first_token * 1.5)

    assert result("time_to_first_token", (unpaired(run), soak)).status == "pass"
    found = result("time_to_first_token", (unpaired(slower_draft), soak))
    assert found.status == "fail"
    assert found.value == pytest.approx(1.54, abs=0.03)
    assert (found.samples, found.evidence[0].of) == (30 + 6, "pairs")  # six of the longer answers are of short prompts
    assert found.low is not None
    assert found.high is not None
    assert 1.5 < found.low <= found.value <= found.high < 1.6


def test_only_rounds_of_pairs_count_for_break_even() -> None:
    run, soak = good()
    lonely = without(run, lambda each: each.arm == "ar" and each.prompt != "short-1")

    found = result("break_even", (lonely, soak))
    assert found.status == "not measured"
    assert re.fullmatch(r"\d\d rounds, of 200 that it takes", found.why)


def test_only_pairs_with_both_times_count_for_the_speed_up() -> None:
    run, soak = good()
    timed = changed(run, "ar", time_per_token=lambda each: each.time_per_token if each.prompt < "short-11" else None)

    assert result("speed_up", (run, soak)).samples == 226
    assert result("speed_up", (timed, soak)).samples == len(
        {each.prompt for each in run.of("ar") if each.prompt < "short-11"}
    )


def test_the_worst_series_of_fifty_is_the_value() -> None:
    found = result("time_to_first_token_p95", FAILS["time_to_first_token_p95"][1](*good()))

    assert found.value == pytest.approx(0.9, abs=0.01)
    assert found.why == "the worst of 4 series of 50"


def test_a_footprint_counts_before_resident_memory() -> None:
    run, soak = (changed(each, "k=4", peak_footprint=13 * GIB) for each in good())

    found = result("peak_memory_bytes", (run, soak))
    assert (found.value, found.why) == (13 * GIB, "footprint")


def test_a_median_at_another_draft_length_is_of_that_arm() -> None:
    run, soak = good()
    alone = replace(run.head, arms=tuple(each for each in run.head.arms if each.name != "k=4"))

    found = result("accept_rate_median", (replace(run, head=alone), soak), arm="k=4 t=0.7")
    assert (found.status, found.why) == ("pass", "")


def test_a_context_tier_with_too_few_rounds_is_told_and_does_not_count() -> None:
    run, soak = good()
    few_of_it = without(run, lambda each: mid(each) and each.prompt not in ("mid-0", "mid-1"))
    bad = changed(
        few_of_it,
        "k=4",
        accepted=lambda each: 0 if mid(each) else each.accepted,
        rejected=lambda each: each.compared if mid(each) else each.rejected,
    )

    found = result("accept_rate_by_context", (bad, soak))
    assert found.status == "pass"
    assert "mid: only " in found.why


def test_the_first_tokens_are_dropped_whatever_the_window_says() -> None:
    run, soak = good()

    def slow_to_begin(each: Measured) -> Passes:
        reached = itertools.accumulate(each.passes.tokens)
        times = zip(reached, each.passes.microseconds, strict=True)
        return Passes(each.passes.tokens, tuple(time * (50 if at < 60 else 1) for at, time in times))

    slow = changed(run, "k=4", passes=slow_to_begin)
    steady = preset_policy("balanced").gates["steady"]
    for drop, status in ((64, "pass"), (0, "fail")):
        gate = structs.replace(steady, window=(0, 2048), drop=drop)
        policy = GatesPolicy(preset=None, validity=preset_policy("balanced").validity, gates={"steady": gate})
        assert judged(policy, (slow, soak)).gates[0].status == status
