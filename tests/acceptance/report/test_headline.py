"""A headline has accept rate, autoregressive speed, time to first token, memory and quality of one mix, or is none."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.figures import arm_figures, paired
from otel_specdecode.acceptance.gates.verdict import Verdict
from otel_specdecode.acceptance.records import Measured, Run
from otel_specdecode.acceptance.report.headline import headline_of
from tests.acceptance.report.cases import changed, soak, sweep, verdict_of


def headline(run: Run, verdict: Verdict | None) -> str | list[str]:
    """Return the headline of a run, or what is missing for one."""
    found = headline_of(run, verdict)
    return list(found.missing) if found.text is None else found.text


def test_it_says_all_that_it_must() -> None:
    said = headline(sweep(), verdict_of(sweep()))
    assert isinstance(said, str)
    plain, drafted = (arm_figures(sweep(), sweep().head.arms[number]) for number in (0, 2))
    for part in (
        "Invalid: k=4",
        f"{drafted.tokens_per_second.value:.1f} tokens/s against {plain.tokens_per_second.value:.1f}",
        f"accept rate {drafted.accept_rate.value:.3f}",
        "TTFT p50",
        "peak memory 10.50 GiB against 10.00 GiB",
        f"{drafted.success.passed} of {drafted.success.of} checks passed against {plain.success.passed}",
    ):
        assert part in said


def test_a_run_that_was_not_judged_says_so() -> None:
    assert headline(sweep(), None).startswith("Not judged: k=4")


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"accepted": 0, "rejected": 0}, ["accept rate"]),
        ({"time_to_first_token": None}, ["time to first token"]),
        ({"peak_rss": None}, ["memory"]),
        ({"check": None, "text_digest": None}, ["quality"]),
        ({"peak_rss": None, "check": None, "text_digest": None}, ["memory", "quality"]),
    ],
)
def test_it_is_refused_with_what_is_missing(change: dict, missing: list[str]) -> None:
    run = changed(sweep(), lambda each: replace(each, **change))
    assert headline(run, verdict_of(run)) == missing


def test_memory_of_one_arm_alone_is_no_memory() -> None:
    run = changed(sweep(), lambda each: replace(each, peak_rss=None) if each.arm == "ar" else each)
    assert headline(run, None) == ["memory"]


def test_equal_answers_are_quality_without_any_check() -> None:
    run = changed(sweep(), lambda each: replace(each, check=None))
    assert "all 12 answers equal" in headline(run, None)


def test_answers_that_differ_are_no_quality_without_a_check() -> None:
    def change(each: Measured) -> Measured:
        return replace(each, check=None, text_digest=each.text_digest if each.prompt != "short-0" else each.id)

    assert headline(changed(sweep(), change), None) == ["quality"]


def test_the_arms_of_a_soak_run_for_as_long_as_they_run() -> None:
    """Not each prompt as often as in the other arm; but one that an arm never met is missing."""
    shorter = tuple(each for each in soak().results if (each.arm, each.prompt, each.repeat) != ("ar", "short-0", 0))
    run = replace(soak(), results=shorter)
    assert len(run.of("ar")) == len(soak().of("ar")) - 1
    assert "the same mix of prompts in both arms" not in headline(run, None)
    left_out = tuple(each for each in run.results if (each.arm, each.prompt) != ("ar", "short-0"))
    assert "the same mix of prompts in both arms" in headline(replace(run, results=left_out), None)


def uneven() -> Run:
    """A soak whose arms drew a prompt that takes four times as long, the draft's once and the other often."""

    def slower(each: Measured) -> Measured:
        slow = each.prompt == "short-0" and each.time_per_token
        return replace(each, time_per_token=4 * each.time_per_token, peak_rss=2 * each.peak_rss) if slow else each

    run = changed(soak(), slower)
    kept = tuple(each for each in run.results if not each.repeat or (each.arm, each.prompt) != ("k=4", "short-0"))
    return replace(run, results=kept)


def test_the_speeds_of_a_soak_are_of_the_requests_that_both_arms_made() -> None:
    run = uneven()
    said = headline(run, None)
    assert isinstance(said, str)
    found = re.search(r"decodes ([\d.]+) tokens/s against ([\d.]+) autoregressive \(x([\d.]+)", said)
    drafted, plain, ratio = map(float, found.groups())
    assert drafted / plain == pytest.approx(ratio, rel=0.05)
    wrong = [arm_figures(run, arm).tokens_per_second.value for arm in run.head.arms]
    assert wrong[1] / wrong[0] > 1.2 * ratio


def test_every_number_of_a_soak_is_of_the_requests_that_both_arms_made() -> None:
    run = uneven()
    both = paired(run, run.head.arms[1])
    assert len(both.of("ar")) == len(both.of("k=4")) < len(run.of("ar"))
    assert headline(run, None) == headline(both, None)
    assert f"{len(both.of('k=4'))} requests of 4 prompts in both." in headline(run, None)


def test_arms_that_made_no_request_in_common_have_none() -> None:
    run = changed(soak(), lambda each: replace(each, repeat=each.repeat + 1000) if each.arm == "k=4" else each)
    assert headline(run, verdict_of(run)) == ["an autoregressive and a speculative arm of the same prompts"]


def test_a_refusal_always_names_something() -> None:
    """Each arm has its speed, but of no request that both have."""
    untimed = {"ar": ("short-0", "short-1"), "k=4": ("short-2", "short-3")}
    run = changed(soak(), lambda each: replace(each, time_per_token=None) if each.prompt in untimed[each.arm] else each)
    assert headline(run, verdict_of(run))[-1] == "speed-up"


def test_another_mix_is_no_comparison() -> None:
    fewer = tuple(each for each in sweep().results if (each.arm, each.prompt) != ("ar", "mid-0"))
    assert headline(replace(sweep(), results=fewer), None) == ["the same mix of prompts in both arms"]


def test_a_run_without_a_baseline_has_none() -> None:
    alone = tuple(each for each in sweep().results if each.arm != "ar")
    assert headline(replace(sweep(), results=alone), None) == [
        "an autoregressive and a speculative arm of the same prompts"
    ]
