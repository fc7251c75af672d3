from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.figures import pairs, speed_up
from otel_specdecode.acceptance.measuring import Job
from otel_specdecode.acceptance.records import Arm, Measured, Run
from otel_specdecode.acceptance.soak import Load, Shape, Soak, SoakPlan
from otel_specdecode.acceptance.storage import read_run
from otel_specdecode.acceptance.sweep import Clock
from tests.acceptance.fake_runs import FakeRuns, Overlapping, open_book
from tests.acceptance.fakes import prompts

PLAN = SoakPlan(Arm(4), seconds=600.0, baseline_seconds=200.0, warm_up=60.0)
PROMPTS = prompts(6)


def soaked(folder: Path, runs: FakeRuns, plan: SoakPlan = PLAN, asked=PROMPTS) -> Run:
    book = open_book(folder, runs, plan.arms(), "soak")
    try:
        Soak(plan, asked, runs, book, runs.clock).run()
    finally:
        book.close()
    return read_run(folder)


def span(requests: tuple[Measured, ...]) -> float:
    return max(each.started_at + each.duration for each in requests) - requests[0].started_at


def test_the_baseline_runs_first_and_each_stretch_is_as_long_as_asked_for(tmp_path: Path) -> None:
    run = soaked(tmp_path, FakeRuns())

    assert list(dict.fromkeys(each.arm for each in run.measured)) == ["ar", "k=4"]
    assert 200 <= span(run.of("ar")) < 208
    assert 600 <= span(run.of("k=4")) < 608
    warm = tuple(each for each in run.results if each.phase == "warm_up")
    assert {each.arm for each in warm} == {"ar", "k=4"}
    assert 60 <= span(warm) < 66
    assert [note.what for note in run.notes] == ["begun", "finished"]


def test_a_steady_load_leaves_no_gap(tmp_path: Path) -> None:
    run = soaked(tmp_path, FakeRuns())

    for one, after in zip(run.results, run.results[1:], strict=False):
        assert after.started_at == pytest.approx(one.started_at + one.duration)


def test_a_random_load_has_the_mean_that_was_asked_for(tmp_path: Path) -> None:
    plan = replace(PLAN, seconds=3600.0, baseline_seconds=0.0, load=Load("poisson", 6.0))
    run = soaked(tmp_path, FakeRuns(), plan)

    assert 300 <= len(run.of("k=4")) <= 420  # 360 in the mean
    gaps = [b.started_at - a.started_at for a, b in zip(run.of("k=4"), run.of("k=4")[1:], strict=False)]
    assert max(gaps) > 25  # at a steady pace each would be 10


def test_bursts_come_together_so_often_a_minute(tmp_path: Path) -> None:
    arm = Arm(4, concurrency=3)
    plan = replace(PLAN, arm=arm, baseline_seconds=0.0, warm_up=0.0, load=Load("bursts", 2.0))
    run = soaked(tmp_path, FakeRuns(), plan)

    assert len(run.of(arm)) == 3 * 20 + 1


@pytest.mark.parametrize("load", [Load("poisson", 0.5), Load("bursts", 0.4)])
def test_a_load_that_pauses_is_as_long_as_asked_for_by_its_requests_too(tmp_path: Path, load: Load) -> None:
    run = soaked(tmp_path, FakeRuns(), replace(PLAN, load=load))

    assert span(run.of("ar")) >= 200
    assert span(run.of("k=4")) >= 600


def test_a_load_that_is_too_much_ends_in_time(tmp_path: Path) -> None:
    run = soaked(tmp_path, FakeRuns(), replace(PLAN, load=Load("poisson", 6000.0)))

    assert 600 <= span(run.of("k=4")) < 608


def test_a_target_alone_has_no_stretch_before_it(tmp_path: Path) -> None:
    run = soaked(tmp_path, FakeRuns(), replace(PLAN, arm=Arm(0)))

    assert {each.arm for each in run.results} == {"ar"}
    assert 600 <= span(run.measured) < 608


def test_prompts_come_as_often_as_their_weight_says(tmp_path: Path) -> None:
    asked = (replace(PROMPTS[0], weight=9.0), PROMPTS[1])
    run = soaked(tmp_path, FakeRuns(), PLAN, asked)

    counts = Counter(each.prompt for each in run.results)
    assert counts[PROMPTS[0].id] > 5 * counts[PROMPTS[1].id]
    assert {each.weight for each in run.results} == {1.0}  # or figures would weigh it twice


def test_no_two_requests_share_an_id_and_no_repeat_of_a_prompt_a_seed(tmp_path: Path) -> None:
    runs = FakeRuns()
    run = soaked(tmp_path, runs)

    assert len({each.id for each in run.results}) == len(run.results)
    for name in ("ar", "k=4"):
        jobs = [job for job in runs.asked if job.arm.name == name and job.phase == "measured"]
        for prompt in PROMPTS:
            asked = [(job.repeat, job.seed) for job in jobs if job.prompt == prompt]
            assert asked == [(number, PLAN.seed + number) for number in range(len(asked))]


def test_the_baseline_has_the_same_prompts_to_compare_with(tmp_path: Path) -> None:
    run = soaked(tmp_path, FakeRuns())

    assert len(pairs(run, Arm(4))) == len(run.of("ar"))
    found = speed_up(run, Arm(4))
    assert found is not None
    assert found.value > 1


def test_requests_that_fail_one_after_the_other_end_it(tmp_path: Path) -> None:
    class Failing(FakeRuns):
        def run(self, job: Job, thread: int = 0) -> Measured:
            return replace(super().run(job, thread), error="MemoryError")

    with pytest.raises(AcceptanceError, match="the last with MemoryError"):
        soaked(tmp_path, Failing())


def test_one_that_is_interrupted_says_so(tmp_path: Path) -> None:
    def before(job: Job) -> None:
        if len(runs.asked) > 10:
            raise KeyboardInterrupt

    runs = FakeRuns(before=before)
    with pytest.raises(KeyboardInterrupt):
        soaked(tmp_path, runs)
    assert [note.what for note in read_run(tmp_path).notes] == ["begun", "interrupted"]


def test_what_ends_beside_a_request_that_ends_the_soak_is_kept(tmp_path: Path) -> None:
    runs = Overlapping()
    with pytest.raises(AcceptanceError, match="telemetry is gone"):
        soaked(tmp_path, runs, SoakPlan(Arm(4, concurrency=2), seconds=100.0))
    assert runs.ended == {each.id for each in read_run(tmp_path).results}


def test_a_request_whose_time_has_not_come_holds_up_no_end(tmp_path: Path) -> None:
    runs = FakeRuns()
    runs.clock = Clock(time.monotonic, time.sleep)

    def before(job: Job) -> None:
        if len(runs.asked) == 2:
            raise KeyboardInterrupt

    runs.before = before
    plan = SoakPlan(Arm(0, concurrency=2), seconds=100.0, load=Load("bursts", 0.1))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        soaked(tmp_path, runs, plan)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("pace", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("shape", ["poisson", "bursts"])
def test_a_load_without_a_pace_is_refused(shape: Shape, pace: float) -> None:
    with pytest.raises(AcceptanceError, match=f"a load of shape {shape} needs"):
        Load(shape, pace)
