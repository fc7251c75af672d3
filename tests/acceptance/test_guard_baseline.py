from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.guard_baseline import baseline_of, write_guard_baseline
from otel_specdecode.guard.baseline import Conditions
from otel_specdecode.guard.baseline_file import read_baseline
from tests.acceptance.fakes import MANIFEST, World, arms, fake_run, prompts

MANIFEST_OF_TINY = {**MANIFEST, "target": {"name": "tiny"}}
RUN = fake_run(arms([4]), (*prompts(10), *prompts(10, "long")), World(noise=0.0), repeats=2, manifest=MANIFEST_OF_TINY)
SHORT = Conditions("llama_cpp", "tiny", "chat", "short", "1", "automatic", "nominal")


def test_the_autoregressive_requests_of_each_tier_make_a_baseline() -> None:
    known = baseline_of(RUN)

    assert {(each.operation, each.tier) for each in known} == {
        (operation, tier) for operation in ("chat", "text_completion") for tier in ("short", "long")
    }
    usual = known[SHORT]
    assert usual.requests == 20
    assert usual.round_seconds == pytest.approx(0.026, rel=1e-3)
    assert usual.time_per_token_p50 == pytest.approx(0.026, rel=1e-3)
    assert usual.time_per_token_p95 == pytest.approx(0.026, rel=1e-3)
    assert usual.time_to_first_token_p50 == pytest.approx(300 / 8000, rel=1e-3)
    assert usual.tokens_per_second == pytest.approx(128 / (300 / 8000 + 127 * 0.026), rel=1e-3)


def test_requests_at_once_are_a_band_of_their_own() -> None:
    run = fake_run(arms([4], concurrency=4), prompts(20), World(), repeats=2, manifest=MANIFEST_OF_TINY)

    assert {each.band for each in baseline_of(run)} == {"4"}
    assert baseline_of(run)[SHORT._replace(band="4")].tokens_per_second


def test_requests_that_wait_for_each_other_run_one_at_a_time() -> None:
    run = fake_run(arms([4], concurrency=4), prompts(20), World(), manifest=MANIFEST_OF_TINY)
    waiting = replace(run, results=tuple(replace(each, queued=1.0) for each in run.results))

    assert {each.band for each in baseline_of(waiting)} == {"1"}


def test_another_state_of_the_machine_is_a_condition_of_its_own() -> None:
    run = fake_run(arms([4]), prompts(10), World(), repeats=6)
    middle = run.results[len(run.results) // 2].started_at
    host = tuple(replace(each, power_mode="low") if each.at > middle else each for each in run.host)

    assert {each.power_mode for each in baseline_of(replace(run, host=host), ["chat"])} == {"automatic", "low"}


def test_too_few_requests_make_none() -> None:
    with pytest.raises(AcceptanceError, match="has 3 autoregressive requests under like conditions"):
        baseline_of(fake_run(arms([4]), prompts(3)))


def test_the_guard_reads_what_is_written(tmp_path: Path) -> None:
    assert write_guard_baseline(RUN, tmp_path / "baseline.json", ["chat"]) == 2
    assert read_baseline(tmp_path / "baseline.json") == baseline_of(RUN, ["chat"])


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(AcceptanceError, match="cannot be written"):
        write_guard_baseline(RUN, tmp_path / "missing" / "baseline.json")
