"""What is loaded is learnt as it is loaded."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

import llama_cpp

import otel_specdecode
from otel_specdecode.identity.gguf import fingerprint
from otel_specdecode.identity.models import THREAD_NAME
from otel_specdecode.telemetry.names import Attr, Event
from otel_specdecode.testing.capture import Telemetry, capture
from tests.engines.llama_cpp.conftest import Pair

pytestmark = pytest.mark.llama_cpp


def load(path: Path | str) -> Any:
    """Load a model, and wait until its files are read."""
    llama = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False)
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join(20)
    return llama


def targets(telemetry: Telemetry) -> list[dict[str, Any]]:
    """What the manifest events tell of the target."""
    told = telemetry.events(Event.SPECDECODE_MANIFEST)
    return [json.loads(record.attributes[Attr.SPECDECODE_MANIFEST_DOCUMENT])["target"] for record in told]


def test_a_file_that_is_replaced_after_the_load_is_not_what_runs(
    cycle: Pair, tmp_path: Path, telemetry: Telemetry
) -> None:
    """As in a rolling update: the weights in memory are the old ones."""
    path = tmp_path / "served.gguf"
    shutil.copy(cycle.target, path)
    loaded = fingerprint(path)
    llama = load(path)
    shutil.copy(cycle.draft, tmp_path / "next.gguf")
    os.replace(tmp_path / "next.gguf", path)
    llama.create_completion("a", max_tokens=2)
    (target,) = targets(telemetry)
    assert target["fingerprint"] == loaded


def test_a_relative_path_is_found_from_another_folder(
    cycle: Pair, tmp_path: Path, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(cycle.target, tmp_path / "served.gguf")
    monkeypatch.chdir(tmp_path)
    llama = load("served.gguf")
    monkeypatch.chdir("/")
    llama.create_completion("a", max_tokens=2)
    assert [target["name"] for target in targets(telemetry)] == ["served"]


def test_a_model_loaded_before_the_instrumentation_is_learnt_at_its_first_request(cycle: Pair) -> None:
    llama = load(cycle.target)
    with capture() as telemetry:
        for _ in range(2):
            llama.create_completion("a", max_tokens=2)
        assert [target["fingerprint"] for target in targets(telemetry)] == [fingerprint(cycle.target)]


def test_where_nobody_listens_no_file_is_read(cycle: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a file was read")

    monkeypatch.setattr("otel_specdecode.identity.llama_cpp.read_gguf", read)
    otel_specdecode.instrument()
    try:
        load(cycle.target).create_completion("a", max_tokens=2)
    finally:
        otel_specdecode.uninstrument()


def test_a_load_that_fails_fails_as_ever(tmp_path: Path, telemetry: Telemetry) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        llama_cpp.Llama(str(tmp_path / "none.gguf"), verbose=False)
    assert telemetry.spans() == ()
