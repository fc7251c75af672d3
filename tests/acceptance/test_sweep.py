from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_specdecode.acceptance import book as book_module
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.knee import knee
from otel_specdecode.acceptance.measuring import Job
from otel_specdecode.acceptance.records import Arm, Run
from otel_specdecode.acceptance.storage import read_run
from otel_specdecode.acceptance.sweep import Levers, Sweep
from otel_specdecode.thresholds import thresholds
from tests.acceptance.fake_runs import FakeRuns, Overlapping, open_book
from tests.acceptance.fakes import World, fake_request, prompts

LEVERS = Levers(draft_lengths=(2, 3, 4, 6), repeats=2)
PROMPTS = prompts(8)


def swept(folder: Path, runs: FakeRuns, levers: Levers = LEVERS, asked=PROMPTS) -> Run:
    book = open_book(folder, runs, levers.arms())
    try:
        Sweep(levers, asked, runs, book, runs.clock).run()
    finally:
        book.close()
    return read_run(folder)


def test_every_arm_runs_every_prompt_so_often(tmp_path: Path) -> None:
    run = swept(tmp_path, FakeRuns())

    counts = Counter((each.arm, each.prompt) for each in run.measured)
    assert set(counts.values()) == {2}
    assert len(counts) == 5 * len(PROMPTS)
    assert [note.what for note in run.notes] == ["begun", "finished"]


def test_the_baseline_comes_first_and_then_one_draft_length_after_the_other(tmp_path: Path) -> None:
    runs = FakeRuns()
    swept(tmp_path, runs)

    first = [job.arm.name for job in runs.asked if job.phase == "measured" and job.repeat == 0]
    assert list(dict.fromkeys(first)) == ["ar", "k=2", "k=3", "k=4", "k=6"]


def test_later_repeats_take_turns_in_going_first(tmp_path: Path) -> None:
    runs = FakeRuns()
    swept(tmp_path, runs)

    second = [job for job in runs.asked if job.phase == "measured" and job.repeat == 1]
    firsts = [second[place].arm.name for place in range(0, len(second), 5)]
    assert {job.prompt.id for job in second[:5]} == {PROMPTS[0].id}
    assert firsts[:6] == ["ar", "k=2", "k=3", "k=4", "k=6", "ar"]


def test_all_arms_get_the_same_seed_in_a_repeat(tmp_path: Path) -> None:
    runs = FakeRuns()
    swept(tmp_path, runs, replace(LEVERS, seed=7))

    assert {(job.repeat, job.seed) for job in runs.asked if job.phase == "measured"} == {(0, 7), (1, 8)}


def test_longer_drafts_are_not_tried_after_two_that_accept_too_little(tmp_path: Path) -> None:
    run = swept(tmp_path, FakeRuns(World(accept=0.5)), asked=prompts(8, max_tokens=256))

    assert {each.arm for each in run.measured} == {"ar", "k=2", "k=3", "k=4"}
    (stopped,) = (note.why for note in run.notes if note.what == "branch_stopped")
    assert stopped.startswith("accept rate below 0.35 in 2 steps in a row: k=3 0.2")


def test_how_much_is_too_little_is_for_the_user_to_say(tmp_path: Path) -> None:
    world, asked = World(accept=0.5), prompts(8, max_tokens=256)
    never = swept(tmp_path / "never", FakeRuns(world), replace(LEVERS, stop_below=0.0), asked)
    soon = swept(tmp_path / "soon", FakeRuns(world), replace(LEVERS, stop_below=0.6), asked)

    assert {each.arm for each in never.measured} == {"ar", "k=2", "k=3", "k=4", "k=6"}
    assert {each.arm for each in soon.measured} == {"ar", "k=2", "k=3"}
    (stopped,) = (note.why for note in soon.notes if note.what == "branch_stopped")
    assert stopped.startswith("accept rate below 0.6 in 2 steps in a row")


def test_the_bounds_are_those_of_the_thresholds_where_nobody_says_others() -> None:
    bounds = thresholds()["sweep"]
    assert (LEVERS.stop_below, LEVERS.tune_above) == (bounds["stop_accept_rate"], bounds["tuning_accept_rate"])


def test_a_decision_reads_the_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []

    def read(folder: Path) -> Run:
        reads.append(folder)
        return read_run(folder)

    book = open_book(tmp_path, FakeRuns(), LEVERS.arms())
    monkeypatch.setattr(book_module, "read_run", read)
    runs = FakeRuns()
    Sweep(replace(LEVERS, temperatures=(0.7,)), PROMPTS, runs, book, runs.clock).run()
    book.close()

    assert len(reads) == 3 + 1  # from the second of four lengths on, and one for the other levers


def test_a_sweep_that_is_resumed_decides_as_it_did(tmp_path: Path) -> None:
    """Later repeats, which accept less here, would have it leave out lengths that it had begun with."""

    class Falling(FakeRuns):
        def run(self, job: Job, thread: int = 0):
            self.world = World(accept=0.2 if job.repeat else 0.85)
            return super().run(job, thread)

    whole = swept(tmp_path, Falling())
    again = swept(tmp_path, Falling())

    assert len(again.measured) == len(whole.measured) == 5 * len(PROMPTS) * LEVERS.repeats
    assert [note.what for note in again.notes] == ["begun", "finished", "resumed", "finished"]


def test_two_steps_that_are_not_in_a_row_stop_nothing(tmp_path: Path) -> None:
    poor = World(accept=0.2)
    run = swept(tmp_path, FakeRuns(worlds={"k=2": poor, "k=4": poor}), asked=prompts(8, max_tokens=256))

    assert "k=6" in {each.arm for each in run.measured}


def test_too_few_rounds_stop_nothing(tmp_path: Path) -> None:
    run = swept(tmp_path, FakeRuns(World(accept=0.2)), asked=prompts(1, max_tokens=32))

    assert "k=6" in {each.arm for each in run.measured}


def test_other_levers_are_tried_at_the_best_length_with_baselines_of_their_own(tmp_path: Path) -> None:
    levers = replace(LEVERS, temperatures=(0.7,), top_ks=(40,), drafts=("big", "small"))
    run = swept(tmp_path, FakeRuns(World(accept=0.6, draft_step=0.004)), levers)

    best = knee(run, levers.arms_at(1)).best
    assert best is not None
    assert run.head.arms[5:] == (
        Arm(0, temperature=0.7),
        replace(best.arm, temperature=0.7),
        Arm(0, temperature=0.7, top_k=40),
        replace(best.arm, temperature=0.7, top_k=40),
        replace(best.arm, draft="small"),
    )
    assert {len(run.of(arm)) for arm in run.head.arms} == {2 * len(PROMPTS)}


def test_nothing_more_is_tuned_where_a_context_bucket_accepts_too_little(tmp_path: Path) -> None:
    levers = replace(LEVERS, temperatures=(0.7,))
    run = swept(tmp_path, FakeRuns(World(accept=0.55)), levers, prompts(8, max_tokens=256))

    (stopped,) = (note.why for note in run.notes if note.what == "tuning_stopped")
    assert "in short contexts at k=" in stopped
    assert stopped.endswith("below 0.45")
    assert not any(arm.temperature for arm in run.head.arms)


def test_where_tuning_ends_is_for_the_user_to_say(tmp_path: Path) -> None:
    levers = replace(LEVERS, temperatures=(0.7,), tune_above=0.1)
    run = swept(tmp_path, FakeRuns(World(accept=0.55)), levers, prompts(8, max_tokens=256))

    assert any(arm.temperature for arm in run.head.arms)


def test_each_level_of_concurrency_has_its_baseline_and_its_best_length(tmp_path: Path) -> None:
    runs = FakeRuns()
    run = swept(tmp_path, runs, replace(LEVERS, concurrency=(1, 4)))

    assert {arm.concurrency for arm in run.head.arms} == {1, 4}
    assert runs.threads <= {0, 1, 2, 3}  # one may be done before another has begun
    best = knee(run, LEVERS.arms_at(4)).best
    assert best is not None
    assert best.arm.concurrency == 4


def test_warm_up_runs_every_arm_goes_on_for_its_time_and_counts_for_nothing(tmp_path: Path) -> None:
    runs = FakeRuns()
    run = swept(tmp_path, runs, replace(LEVERS, warm_up=180.0))

    warm = [each for each in run.results if each.phase == "warm_up"]
    assert {each.arm for each in warm} == {arm.name for arm in LEVERS.arms()}
    assert 180 <= sum(each.duration for each in warm) < 190
    assert not {each.id for each in warm} & {each.id for each in run.measured}


def test_it_cools_down_between_each_two_requests_that_count(tmp_path: Path) -> None:
    run = swept(tmp_path, FakeRuns(), replace(LEVERS, cool_down=5.0))

    gaps = [after.started_at - one.ended_at for one, after in pairwise(run.measured)]
    assert gaps == pytest.approx([5.0] * (len(run.measured) - 1))


def test_where_requests_overlap_it_cools_down_between_two_groups(tmp_path: Path) -> None:
    runs = FakeRuns()
    swept(tmp_path, runs, replace(LEVERS, cool_down=5.0, concurrency=(2,)))

    assert runs.slept == [5.0] * (5 * LEVERS.repeats - 1)


@pytest.mark.parametrize("cool_down", [0.0, 5.0])
def test_no_request_begins_once_its_time_is_over(tmp_path: Path, cool_down: float) -> None:
    runs = FakeRuns()
    levers = replace(LEVERS, max_seconds=30.0, cool_down=cool_down)
    book = open_book(tmp_path, runs, levers.arms())
    began = runs.now()
    assert Sweep(levers, PROMPTS, runs, book, runs.clock).run() is False
    book.close()

    measured = read_run(tmp_path).measured
    assert 0 < len(measured) < 2 * len(PROMPTS)  # it ended in the middle of an arm's prompts
    assert max(each.started_at for each in measured) < began + 30
    assert runs.now() < began + 30 + max(each.duration for each in measured)  # and did not wait for nothing


def test_its_time_ends_the_warm_up_too(tmp_path: Path) -> None:
    runs = FakeRuns()
    levers = replace(LEVERS, max_seconds=3.0)
    book = open_book(tmp_path, runs, levers.arms())
    assert Sweep(levers, PROMPTS, runs, book, runs.clock).run() is False
    book.close()

    assert len(runs.asked) < len(levers.arms())


def test_its_time_ends_it_and_it_is_resumed(tmp_path: Path) -> None:
    runs = FakeRuns()
    levers = replace(LEVERS, max_seconds=100.0)
    book = open_book(tmp_path, runs, levers.arms())
    assert Sweep(levers, PROMPTS, runs, book, runs.clock).run() is False
    book.close()
    some = len(read_run(tmp_path).measured)
    assert 0 < some < 80

    run = swept(tmp_path, runs)

    assert len(run.measured) == 80
    assert [note.what for note in run.notes] == ["begun", "interrupted", "resumed", "finished"]


@settings(deadline=None, max_examples=8)
@given(stops=st.lists(st.integers(0, 40), min_size=1, max_size=3), accept=st.sampled_from([0.5, 0.8]))
def test_however_often_it_is_interrupted_each_request_counts_once(
    tmp_path_factory: pytest.TempPathFactory, stops: list[int], accept: float
) -> None:
    folder = tmp_path_factory.mktemp("resumed")
    levers, asked = replace(LEVERS, temperatures=(0.5,)), prompts(4, max_tokens=256)
    for stop in stops:
        runs = FakeRuns(World(accept=accept), before=_stop_after(stop))
        book = open_book(folder, runs, levers.arms())
        with suppress(KeyboardInterrupt):
            Sweep(levers, asked, runs, book, runs.clock).run()
        book.close()

    run = swept(folder, FakeRuns(World(accept=accept)), levers, asked)
    whole = swept(tmp_path_factory.mktemp("whole"), FakeRuns(World(accept=accept)), levers, asked)

    assert Counter((each.arm, each.prompt, each.repeat) for each in run.measured) == Counter(
        (each.arm, each.prompt, each.repeat) for each in whole.measured
    )
    assert len({each.id for each in run.results}) == len(run.results)


def _stop_after(number: int):
    left = number

    def before(job: Job) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    return before


def test_progress_ends_at_all_of_it_also_where_a_branch_was_stopped(tmp_path: Path) -> None:
    told: list[tuple[float, float]] = []
    runs = FakeRuns(World(accept=0.3))
    book = open_book(tmp_path, runs, LEVERS.arms())
    Sweep(LEVERS, prompts(8, max_tokens=256), runs, book, runs.clock, lambda *step: told.append(step)).run()
    book.close()

    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_requests_that_fail_one_after_the_other_end_it(tmp_path: Path) -> None:
    class Failing(FakeRuns):
        def run(self, job: Job, thread: int = 0):
            made = super().run(job, thread)
            return replace(made, error="ValueError") if job.arm.name == "k=3" else made

    with pytest.raises(AcceptanceError, match=r"3 requests of k=3 failed .* the last with ValueError"):
        swept(tmp_path, Failing())
    assert len(read_run(tmp_path).of("k=2")) == len(PROMPTS)


def test_an_arm_that_always_fails_ends_it_also_where_others_come_between(tmp_path: Path) -> None:
    class Failing(FakeRuns):
        def run(self, job: Job, thread: int = 0):
            made = super().run(job, thread)
            return replace(made, error="ValueError") if job.arm.name == "k=3" and job.phase == "measured" else made

    with pytest.raises(AcceptanceError, match="3 requests of k=3 failed"):
        swept(tmp_path, Failing(), replace(LEVERS, repeats=5), PROMPTS[:1])


def test_single_failures_of_many_arms_do_not_end_it(tmp_path: Path) -> None:
    class Failing(FakeRuns):
        def run(self, job: Job, thread: int = 0):
            return replace(super().run(job, thread), error="ValueError" if job.repeat == 1 else None)

    assert [note.what for note in swept(tmp_path, Failing(), asked=PROMPTS[:1]).notes] == ["begun", "finished"]


def test_a_failure_in_a_thread_ends_it_and_keeps_what_ended(tmp_path: Path) -> None:
    def before(job: Job) -> None:
        if job.repeat == 1 and job.phase == "measured":
            raise AcceptanceError("telemetry is gone")

    with pytest.raises(AcceptanceError, match="telemetry is gone"):
        swept(tmp_path, FakeRuns(before=before), replace(LEVERS, concurrency=(3,)))
    assert len(read_run(tmp_path).measured) == 5 * len(PROMPTS)


def test_what_ends_beside_a_request_that_ends_the_sweep_is_kept(tmp_path: Path) -> None:
    """Telemetry tells of it: what is not kept would be made, and told, once more."""
    runs = Overlapping()
    with pytest.raises(AcceptanceError, match="telemetry is gone"):
        swept(tmp_path, runs, replace(LEVERS, concurrency=(2,)))
    assert runs.ended == {each.id for each in read_run(tmp_path).results}


@pytest.mark.parametrize("accept", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("draft_step", [0.0005, 0.003, 0.012])
def test_the_knee_is_where_it_truly_is(tmp_path: Path, accept: float, draft_step: float) -> None:
    world = World(accept=accept, draft_step=draft_step)
    run = swept(tmp_path, FakeRuns(world), asked=prompts(15, max_tokens=256))

    found = knee(run)
    assert found.best is not None
    tried = {each.arm.draft_length for each in found.candidates}
    truth = max(tried, key=world.speed_up)
    assert world.speed_up(found.best.arm.draft_length) >= 0.98 * world.speed_up(truth)
    if world.speed_up(truth) > 1.03:
        assert not found.stay
        assert found.why.startswith(f"Take {found.best.arm.name}: ")
    if world.speed_up(truth) < 0.97:
        assert found.stay
        assert found.why.startswith("Stay on autoregressive decoding: the best arm, ")


@pytest.mark.parametrize("accept", [0.4, 0.7, 0.9])
def test_the_knee_is_the_one_that_all_recorded_rounds_give(tmp_path: Path, accept: float) -> None:
    run = swept(tmp_path, FakeRuns(World(accept=accept, draft_step=0.004)), asked=prompts(20))

    def tokens_a_microsecond(arm: Arm) -> float:
        rounds = [each.passes for each in run.of(arm)]
        return sum(sum(each.tokens) for each in rounds) / sum(sum(each.microseconds) for each in rounds)

    by_hand = max((arm for arm in run.head.arms if arm.speculative and run.of(arm)), key=tokens_a_microsecond)
    best = knee(run).best
    assert best is not None
    assert tokens_a_microsecond(best.arm) >= 0.995 * tokens_a_microsecond(by_hand)


def test_the_fake_requests_add_up() -> None:
    made = fake_request(Arm(4), prompts(1)[0], 0, World())
    assert sum(made.passes.tokens) == made.output_tokens - 1


@pytest.mark.parametrize(
    "nothing",
    [{"draft_lengths": ()}, {"draft_lengths": (0, 2)}, {"concurrency": ()}, {"concurrency": (0,)}, {"drafts": ()}],
)
def test_what_cannot_be_swept_is_refused_before_anything_runs(nothing: dict[str, Any]) -> None:
    with pytest.raises(AcceptanceError, match="a sweep needs"):
        Levers(**{"draft_lengths": (2,), **nothing})


def test_arms_of_nearly_the_same_temperature_are_two() -> None:
    assert Arm(4, temperature=0.7).name == "k=4 t=0.7"
    assert Arm(4, temperature=0.7000001).name == "k=4 t=0.7000001"
