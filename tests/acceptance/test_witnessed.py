from __future__ import annotations

import logging
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.engines import engine_named
from otel_specdecode.acceptance.engines.interface import Models, Session
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.measuring import Job, Measurer, witnessed
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.demo.export import Export
from otel_specdecode.generation.plan import planner
from otel_specdecode.identity.declared import declared
from otel_specdecode.instrumentors import instrumentors


def test_after_a_run_the_engines_are_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, run_before = planner(), declared().run_id
    monkeypatch.setenv("OTEL_SPECDECODE_GUARD_POLICY", str(tmp_path / "missing.toml"))  # it would end the process
    was = {name: each.is_instrumented_by_opentelemetry for name, each in instrumentors().items()}
    with witnessed("test-run"):
        assert planner() is not before
        assert declared().run_id == "test-run"

    assert planner() is before
    assert declared().run_id == run_before
    assert {name: each.is_instrumented_by_opentelemetry for name, each in instrumentors().items()} == was


def test_a_request_that_telemetry_does_not_tell_of_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with witnessed("test-run") as witness:
        witness.expect("nobody")
        with pytest.raises(AcceptanceError, match="gave 0 spans instead of one: is OTEL_SDK_DISABLED set"):
            witness.take("nobody")


class Refusing:
    """A session whose engine fails before it begins, so that there is no span."""

    def stream(self, arm: Arm, prompt: Prompt, seed: int, thread: int) -> Generator[str, None, None]:
        raise ValueError(seed)
        yield ""

    def engine_peak(self, thread: int) -> int | None:
        return None

    def queued(self, thread: int) -> float | None:
        return None


def test_a_request_that_failed_before_it_began_is_a_result_with_its_error() -> None:
    with witnessed("test-run") as witness:
        job = Job("id", Arm(0), Prompt("a", text="x"), 0, "measured")
        assert Measurer(cast("Session", Refusing()), witness).run(job).error == "ValueError"


@pytest.mark.parametrize(
    "limits",
    [
        {"OTEL_ATTRIBUTE_COUNT_LIMIT": "1", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1"},
        {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3"},
        {"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "no number"},
    ],
)
@pytest.mark.llama_cpp
def test_limits_of_spans_do_not_hide_a_request(limits: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    for name, value in limits.items():
        monkeypatch.setenv(name, value)
    with witnessed("test-run") as witness:
        session = engine_named("llama_cpp").load(Models("tiny", {}, {"n_threads": 1, "n_ctx": 256}))
        found = Measurer(session, witness).run(Job("id", Arm(0), Prompt("a", text="x", max_tokens=3), 0, "measured"))
        session.close()
    assert found.error is None
    assert found.output_tokens == 3
    assert found.peak_rss


def test_telemetry_that_did_not_arrive_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Export, "finish", lambda *_: False)
    with witnessed("run-7"):
        pass
    assert "Telemetry of run run-7 did not all arrive" in caplog.text


def test_one_run_goes_on_in_a_process_at_a_time() -> None:
    with witnessed("first"):
        with pytest.raises(AcceptanceError, match="another run goes on in this process"), witnessed("second"):
            pass
        assert declared().run_id == "first"
    with witnessed("third"):
        assert declared().run_id == "third"
