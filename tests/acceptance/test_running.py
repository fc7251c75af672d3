"""What a run is gone on with, on the real engine that loads fastest."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")
pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from otel_specdecode.acceptance.engines import engine_named
from otel_specdecode.acceptance.engines.interface import Models
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.acceptance.running import Setting, soak, sweep
from otel_specdecode.acceptance.soak import SoakPlan
from otel_specdecode.acceptance.storage import RunWriter, holds_run, read_run
from otel_specdecode.acceptance.sweep import Levers, job_id

pytestmark = pytest.mark.llama_cpp

LEVERS = Levers((2,), repeats=1)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    models = Models("tiny", {"": "tiny:draft-kd"}, {"n_threads": 1, "n_ctx": 256})
    prompts = (Prompt("a", text="Once", max_tokens=4), Prompt("b", text="Then", max_tokens=4))
    return Setting(engine_named("llama_cpp"), models, prompts, tmp_path / "run", "run-1")


def test_the_memory_of_the_target_alone_is_noted_before_its_drafts_are_loaded(setting: Setting) -> None:
    sweep(setting, LEVERS)

    run = read_run(setting.folder)
    assert 0 < run.head.alone["peak_rss"] <= max(each.peak_rss or 0 for each in run.results)
    assert Counter(each.arm for each in run.measured) == {"ar": 2, "k=2": 2}


def test_the_request_of_the_target_alone_is_kept_like_any_other_and_does_not_count(setting: Setting) -> None:
    """Telemetry tells of it too, so files that had not got it would not add up to that."""
    sweep(setting, LEVERS)

    first, *others = read_run(setting.folder).results
    assert (first.arm, first.prompt, first.phase, first.output_tokens) == ("ar", "a", "warm_up", 4)
    assert first.started_at < min(each.started_at for each in others)
    assert read_run(setting.folder).head.alone["peak_rss"] == first.peak_rss
    assert [each.phase for each in others] == ["warm_up"] * 2 + ["measured"] * 4


def test_the_request_of_the_target_alone_is_lost_by_no_kill_as_the_run_begins(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunWriter, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            sweep(setting, LEVERS)
    sweep(replace(setting, resume=holds_run(setting.folder)), LEVERS)

    run = read_run(setting.folder)
    (alone,) = (each for each in run.results if each.id == job_id("alone", "a"))
    assert run.head.alone["peak_rss"] == alone.peak_rss


def test_notes_beside_a_run_that_is_resumed_are_refused_unless_it_has_them(setting: Setting) -> None:
    noted = replace(setting, notes={"fan": "auto", "ambient": "21C"})
    sweep(noted, LEVERS)
    with pytest.raises(AcceptanceError, match=r"for fan, placement the one in .* has fan=auto: leave such --note out"):
        sweep(replace(setting, notes={"fan": "off", "placement": "desk"}, resume=True), LEVERS)
    with pytest.raises(AcceptanceError, match=r"for placement the one in .* has none"):
        sweep(replace(setting, notes={"placement": "desk"}, resume=True), LEVERS)

    sweep(replace(noted, resume=True), LEVERS)

    assert read_run(setting.folder).head.conditions["notes"] == {"fan": "auto", "ambient": "21C"}


def test_the_bounds_at_which_a_sweep_stops_are_levers_of_the_run(setting: Setting) -> None:
    sweep(setting, LEVERS)
    assert read_run(setting.folder).head.options["stop_below"] == LEVERS.stop_below
    with pytest.raises(AcceptanceError, match=r"stop_below: 0\.35, and 0\.2; tune_above: 0\.45, and 0\.5"):
        sweep(replace(setting, resume=True), replace(LEVERS, stop_below=0.2, tune_above=0.5))


@pytest.mark.parametrize("run_id", ["../up", "", "a b", "x" * 65, "run\n"])
def test_a_run_id_that_cannot_be_one_is_refused_in_code_too(setting: Setting, run_id: str) -> None:
    with pytest.raises(AcceptanceError, match=r"cannot be a run id: letters, digits, .* at most 64"):
        replace(setting, run_id=run_id)


def test_the_conditions_tell_how_the_machine_was_and_what_else_it_did_while_models_were_loaded(
    setting: Setting,
) -> None:
    sweep(setting, LEVERS)

    noted = read_run(setting.folder).head.conditions
    assert noted["side_load"].keys() == {"browser", "ide", "indexer", "other"}
    # Over some milliseconds, one step of the counters of CPU time would be several cores for each process.
    assert sum(noted["side_load"].values()) <= (os.cpu_count() or 1) + 1
    assert noted["memory_pressure"] in ("normal", "warn", "critical", "unknown")


def test_an_arm_that_was_added_with_anyway_is_an_arm_of_the_run(setting: Setting) -> None:
    sweep(setting, LEVERS)
    more = replace(LEVERS, draft_lengths=(2, 3))
    with pytest.raises(AcceptanceError, match=r"draft_lengths\[1\]: nothing, and 3"):
        sweep(replace(setting, resume=True), more)

    sweep(replace(setting, resume=True, anyway=True), more)

    run = read_run(setting.folder)
    assert [arm.name for arm in run.head.arms] == ["ar", "k=2", "k=3"]
    assert Counter(each.arm for each in run.measured) == {"ar": 2, "k=2": 2, "k=3": 2}
    assert "changed" in {note.what for note in run.notes}


def test_a_soak_is_never_gone_on_with_as_a_sweep(setting: Setting) -> None:
    soak(setting, SoakPlan(Arm(2), seconds=0.01))
    with pytest.raises(AcceptanceError, match="holds a soak, not a sweep: name another folder"):
        sweep(replace(setting, resume=True, anyway=True), LEVERS)
    assert {each.arm for each in read_run(setting.folder).measured} == {"k=2"}


def test_a_sweep_whose_time_is_over_before_its_warm_up_is_refused(setting: Setting) -> None:
    with pytest.raises(AcceptanceError, match="may take 60 s, and its warm-up alone takes 180 s"):
        sweep(setting, replace(LEVERS, warm_up=180, max_seconds=60))
    assert not setting.folder.exists()
