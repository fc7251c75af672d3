from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.measuring import witnessed
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
