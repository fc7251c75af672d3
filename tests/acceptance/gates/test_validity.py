"""What makes a run count, and what is said where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from msgspec import structs

from otel_specdecode.acceptance.gates.policy_file import preset_policy
from otel_specdecode.acceptance.gates.stretches import longest, pauses, stretches
from otel_specdecode.acceptance.gates.validity import ValidityItem, validity_of
from otel_specdecode.acceptance.records import Arm, HostSample, Note, Run
from tests.acceptance.fakes import BEGAN, arms, fake_host, fake_run, prompts
from tests.acceptance.gates.cases import DAY, K4, NOW, Spoil, changed, good, judged, on_machine

VALIDITY = preset_policy("balanced").validity
COUNTS = ("warm_up", "soak", "power_source", "power_mode", "free_memory", "awake", "side_load", "age", "one_manifest")


def items(run: Run, soak: Run | None, now: float = NOW) -> dict[str, ValidityItem]:
    return {each.id: each for each in validity_of(VALIDITY, run, soak, K4, now)}


def one(**fields: object) -> Spoil:
    """One sample in the middle of the soak is otherwise."""
    return lambda run, soak: (run, on_machine(soak, lambda number, _: number == 200, **fields))


def long(**fields: object) -> Spoil:
    """So are those of more than a minute."""
    return lambda run, soak: (run, on_machine(soak, lambda number, _: 200 <= number < 213, **fields))


def asleep(seconds: float) -> Callable[[HostSample], float]:
    return lambda sample: sample.at + seconds


def slept(seconds: float) -> Spoil:
    """The machine stands still for so long after some sample of the soak."""

    def spoil(run: Run, soak: Run) -> tuple[Run, Run | None]:
        begin = soak.host[200].at
        later = on_machine(soak, lambda number, _: number > 200, at=asleep(seconds))
        moved = changed(later, started_at=lambda each: each.started_at + (seconds if each.started_at > begin else 0))
        return run, moved

    return spoil


def set_ahead(seconds: float) -> Spoil:
    """The time of day is set ahead in the warm-up, as by a late synchronisation; the warm-up is as much shorter."""

    def spoil(run: Run, soak: Run) -> tuple[Run, Run | None]:
        at = soak.host[3].at
        moved = on_machine(soak, lambda number, _: number > 3, monotonic=lambda each: each.monotonic - seconds)
        assert at < min(each.started_at for each in soak.measured)
        return run, moved

    return spoil


def unsampled(run: Run, soak: Run) -> tuple[Run, Run | None]:
    return run, replace(soak, host=tuple(each for number, each in enumerate(soak.host) if not 200 <= number < 213))


def resumed(warm_up: float) -> Spoil:
    """The sweep was begun twice, the second time with so much warm-up."""

    def spoil(run: Run, soak: Run) -> tuple[Run, Run | None]:
        at = run.results[300].started_at
        later = changed(run, started_at=lambda each: each.started_at + (warm_up if each.started_at >= at else 0))
        host = fake_host(BEGAN, run.host[-1].at + warm_up)
        return replace(later, host=host, notes=(*run.notes[:1], Note(at, "resumed"))), soak

    return spoil


def of_another_length(run: Run, soak: Run) -> tuple[Run, Run | None]:
    results = tuple(replace(each, arm="k=2") if each.arm == "k=4" else each for each in soak.results)
    return run, replace(soak, results=results, head=replace(soak.head, arms=arms([2])))


def interrupted(run: Run, soak: Run) -> tuple[Run, Run | None]:
    at = next(each.started_at for each in soak.results if each.started_at > soak.results[-1].started_at - 1000)
    return run, replace(soak, notes=(*soak.notes, Note(at, "resumed")))


def only_its_ends(run: Run, soak: Run) -> tuple[Run, Run | None]:
    """Of the soak only its first and last request ran."""
    (first, *_, last) = soak.of(K4)
    return run, replace(soak, results=(first, last))


def paused(seconds: float) -> Spoil:
    """Nothing runs for so long in the middle of the soak, so that neither half is long enough."""

    def spoil(run: Run, soak: Run) -> tuple[Run, Run | None]:
        requests = soak.of(K4)
        at = requests[len(requests) // 2].started_at
        later = changed(soak, started_at=lambda each: each.started_at + (seconds if each.started_at >= at else 0))
        return run, replace(later, host=fake_host(BEGAN, soak.host[-1].at + seconds))

    return spoil


def unread(file: str, of: str = "run") -> Spoil:
    """A line of a file of the sweep, or of the soak, could not be read."""
    fault = (f"{file}:3: torn",)
    if of == "run":
        return lambda run, soak: (replace(run, faults=fault), soak)
    return lambda run, soak: (run, replace(soak, faults=fault))


BROKEN: list[tuple[str, str, Spoil, str]] = [
    ("warm_up", "broken", resumed(179), "179 s in fake-sweep"),
    ("warm_up", "broken", set_ahead(30), "170 s in fake-soak, the shortest of 2"),
    ("warm_up", "not measured", lambda run, soak: (run, replace(soak, notes=())), "nothing tells when it began"),
    ("soak", "not measured", lambda run, soak: (run, None), "no soak was given"),
    ("soak", "broken", interrupted, "min of k=4 in fake-soak"),
    ("soak", "broken", only_its_ends, "0.0 min of k=4 in fake-soak; 1 times it paused for more than 60 s, 18"),
    ("soak", "broken", paused(61), "min of k=4 in fake-soak; 1 times it paused for more than 60 s, 61 s at most"),
    ("soak", "broken", of_another_length, "0.0 min of k=4 in fake-soak, which ran k=2"),
    ("power_source", "broken", one(power_source="battery"), "battery in 1 of"),
    ("power_source", "not measured", long(power_source="unknown"), "not known for 70 s of fake-soak"),
    (
        "power_source",
        "not measured",
        lambda run, soak: (on_machine(run, power_source="unknown"), soak),
        "in fake-sweep",
    ),
    ("power_mode", "broken", one(power_mode="low"), "low in 1 of"),
    ("power_mode", "not measured", long(power_mode="unknown"), "not known for 70 s of fake-soak"),
    ("free_memory", "broken", one(memory_available=3 * 2**30), "down to 9.4%"),
    ("free_memory", "not measured", long(memory_available=None), "not known for 70 s"),
    ("free_memory", "not measured", lambda run, soak: (on_machine(run, memory_limit=None), soak), "fake-sweep"),
    ("awake", "broken", slept(2.5), "asleep 1 times, 2 s at most"),
    ("awake", "broken", slept(3600), "asleep 1 times, 3600 s at most"),
    ("awake", "not measured", unsampled, "not known for 70 s of fake-soak"),
    (
        "one_manifest",
        "broken",
        lambda run, soak: (replace(run, notes=(*run.notes, Note(BEGAN, "changed", "seed: 1, and 2"))), soak),
        "it was gone on with all the same: seed: 1, and 2",
    ),
    ("side_load", "not measured", lambda run, soak: (run, on_machine(soak, side_load=None)), "fake-soak has none"),
]

ALSO = {"soak": ("warm_up",), "awake": ("power_source", "power_mode", "free_memory", "soak")}
"""What the same spoils, too."""


def test_a_good_run_counts() -> None:
    found = items(*good())

    assert [found[each].status for each in COUNTS] == ["held"] * len(COUNTS)
    assert {each.id for each in found.values() if each.counts} == set(COUNTS)
    assert found["side_load"].why.endswith("browser 0.10, ide 0.00, indexer 0.00, other 0.20")


@pytest.mark.parametrize(("name", "status", "spoil", "why"), BROKEN)
def test_a_run_does_not_count(name: str, status: str, spoil: Spoil, why: str) -> None:
    runs = spoil(*good())
    found = items(*runs)

    assert found[name].status == status
    assert why in found[name].why
    others = [each for each in COUNTS if each != name and each not in ALSO.get(name, ())]
    assert {found[each].status for each in others} == {"held"}


@pytest.mark.parametrize(
    "spoil", [one(power_source="unknown"), slept(1.5), resumed(181), one(side_load=None), paused(59)]
)
def test_what_is_short_enough_does_not_matter(spoil: Spoil) -> None:
    found = items(*spoil(*good()))

    assert {found[each].status for each in COUNTS} == {"held"}


def test_a_run_that_does_not_count_is_invalid_and_says_so_first() -> None:
    verdict = judged(preset_policy("balanced"), one(power_source="battery")(*good()))

    assert verdict.status == "invalid"
    assert verdict.reasons[0].startswith("on mains throughout: broken, battery in 1 of")
    assert verdict.stay_on_ar


def test_a_run_that_does_not_count_is_invalid_even_where_a_gate_fails() -> None:
    run, soak = one(power_source="battery")(*good())
    assert soak is not None

    verdict = judged(
        preset_policy("balanced"), (run, on_machine(soak, swap_used=lambda each: int(each.monotonic * 1e6)))
    )
    assert verdict.status == "invalid"
    assert "fail" in {each.status for each in verdict.gates}


@pytest.mark.parametrize(("days", "status"), [(13.9, "held"), (14.1, "broken")])
def test_results_expire(days: float, status: str) -> None:
    found = items(*good(), now=BEGAN + 200 + days * DAY)["age"]

    assert found.status == status
    assert found.why.endswith("expired") == (status == "broken")


def test_what_no_sample_tells_is_not_held_however_short_the_run() -> None:
    run, soak = good()
    assert soak is not None
    short = replace(soak, results=tuple(each for each in soak.results if each.phase == "measured")[:1])
    dumb = on_machine(short, power_source="unknown", memory_available=None)
    found = items(run, dumb)

    assert stretches(dumb)[0].end - stretches(dumb)[0].start < VALIDITY.blind
    assert {found[each].status for each in ("power_source", "free_memory")} == {"not measured"}
    assert found["power_source"].why == "not known in fake-soak"


def test_what_nobody_can_read_off_a_machine_is_noted_or_not_and_does_not_count() -> None:
    found = items(*good())

    assert (found["ambient"].status, found["ambient"].why) == ("noted", "21 C")
    assert (found["fan"].status, found["power_limit"].status) == ("not measured", "not measured")
    assert not any(found[each].counts for each in ("ambient", "placement", "fan", "power_limit"))


def test_lines_that_could_not_be_read_are_told() -> None:
    run, soak = good()
    found = items(replace(run, faults=("results.jsonl:7: torn", "host.jsonl:3: torn")), soak)["lines"]

    lost = "1 of results.jsonl, where one that is lost is only a sample less"
    assert (found.status, found.why, found.counts) == ("noted", f"results.jsonl:7: torn, and 1 more; {lost}", False)


NOTED = ("warm_up", "one_manifest")
SAMPLED = ("power_source", "power_mode", "free_memory", "awake", "side_load")


@pytest.mark.parametrize(
    ("spoil", "unmeasured"),
    [
        (unread("notes.jsonl"), NOTED),
        (unread("notes.jsonl", "soak"), (*NOTED, "soak")),
        (unread("host.jsonl"), SAMPLED),
        (unread("host.jsonl", "soak"), SAMPLED),
        (unread("results.jsonl"), ()),
        (unread("arms.jsonl"), ()),
    ],
)
def test_what_a_line_that_could_not_be_read_may_have_told_is_not_measured(
    spoil: Spoil, unmeasured: tuple[str, ...]
) -> None:
    found = items(*spoil(*good()))

    assert {each: found[each].status for each in COUNTS} == {
        each: "not measured" if each in unmeasured else "held" for each in COUNTS
    }
    assert all(found[each].why.startswith("a line could not be read, ") for each in unmeasured)
    assert found["lines"].status == "noted"
    verdict = judged(preset_policy("balanced"), spoil(*good()))
    assert verdict.status == ("invalid" if unmeasured else "accepted")


def test_what_is_broken_stays_broken_whatever_could_not_be_read() -> None:
    run, soak = one(power_source="battery")(*good())
    found = items(replace(run, faults=("host.jsonl:3: torn",)), soak)

    assert found["power_source"].why.startswith("battery in 1 of")
    assert (found["power_source"].status, found["power_mode"].status) == ("broken", "not measured")


def test_how_long_a_pause_may_be_is_the_policys() -> None:
    run, soak = paused(61)(*good())
    validity = structs.replace(VALIDITY, pause=62)

    (found,) = (each for each in validity_of(validity, run, soak, K4, NOW) if each.id == "soak")
    assert found.status == "held"


def test_what_another_arm_runs_meanwhile_is_a_pause_and_what_overlaps_is_none() -> None:
    run = fake_run((Arm(4, concurrency=4),), prompts(40, max_tokens=700), kind="soak")
    requests = run.results
    gap = max(each.ended_at for each in requests) - requests[0].started_at
    between = tuple(replace(each, arm="ar") for each in requests[1:-1])
    other = replace(run, results=(requests[0], *between, requests[-1]))

    assert not pauses(run, run.head.arms[0], 0.5)
    assert longest(run, run.head.arms[0], 0.5) == pytest.approx(gap)
    assert len(pauses(other, run.head.arms[0], 0.5)) == 1
    assert longest(other, run.head.arms[0], 0.5) < gap / 5
    assert longest(other, run.head.arms[0]) == pytest.approx(gap)


def test_a_machine_may_sleep_between_two_stretches() -> None:
    run, soak = good()
    at = run.results[300].started_at
    later = changed(run, started_at=lambda each: each.started_at + (7200 if each.started_at >= at else 0))
    host = (*fake_host(BEGAN, at), *fake_host(at + 6995, run.host[-1].at + 7200))
    found = items(replace(later, host=host, notes=(*run.notes[:1], Note(at + 7000, "resumed"))), soak)

    assert {found[each].status for each in COUNTS} == {"held"}


def test_a_run_that_was_resumed_has_two_stretches() -> None:
    run, soak = interrupted(*good())
    assert soak is not None

    assert [len(stretches(each)) for each in (run, soak)] == [1, 2]
    assert longest(soak, K4) < 1100 < longest(good()[1], K4)


def test_requests_before_any_note_are_a_stretch_without_a_beginning() -> None:
    run = replace(good()[0], notes=())

    assert [each.began for each in stretches(run)] == [None]


@pytest.mark.parametrize(("ahead", "status"), [(300, "held"), (DAY, "broken")])
def test_results_of_a_clock_that_was_ahead_do_not_count(ahead: float, status: str) -> None:
    newest = max(each.started_at for run in good() if run for each in run.measured)
    found = items(*good(), now=newest - ahead)["age"]

    assert found.status == status
    assert ("a clock was, or is, wrong" in found.why) == (status == "broken")
