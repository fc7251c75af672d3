"""llama.cpp in a batch job."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [otlp] extra")

from otel_specdecode.tiny_pair import PROMPTS, model_path
from otel_specdecode.tiny_pair.gguf import convert
from tests.examples.running import (
    WITHOUT_EXIT_HANDLERS,
    complaints,
    each,
    ended,
    finish_reasons,
    generations,
    requests_counted,
    run,
    started,
)

pytestmark = pytest.mark.llama_cpp

TOO_LONG = "zanzibar " * 2000


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(convert(model_path("target"), tmp_path_factory.mktemp("models") / "target.gguf"))


def test_everything_is_exported_before_the_program_ends() -> None:
    printed, received = run("batch_job.py", command=(sys.executable, "-c", WITHOUT_EXIT_HANDLERS))
    answers = [json.loads(line) for line in printed.splitlines()]
    assert [answer["prompt"] for answer in answers] == list(range(1, len(PROMPTS) + 1))
    assert len(generations(received)) == requests_counted(received) == len(PROMPTS)


def test_a_prompt_that_fails_shows_in_status_and_span_and_leaves_the_others_alone(tmp_path: Path, target: str) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join([PROMPTS[3], TOO_LONG, PROMPTS[6]]), encoding="utf-8")
    with started("batch_job.py", str(prompts), target, OTEL_SPECDECODE_RUN_ID="nightly-7") as (process, received):
        code, printed, told = ended(process)
    assert code == 1
    assert [json.loads(line)["prompt"] for line in printed.splitlines()] == [1, 3]
    assert "prompt 2 failed: ValueError" in told
    assert not complaints(told)
    assert "zanzibar" not in told + str(received.as_json())
    assert [span.status for span in generations(received)] == ["UNSET", "ERROR", "UNSET"]
    assert each(received, "error.type") == [None, "ValueError", None]
    assert finish_reasons(received) == ["stop", "error", "stop"]
    assert set(each(received, "specdecode.run_id")) == {"nightly-7"}
    assert requests_counted(received) == 3


def test_a_job_that_is_told_to_stop_ends_after_its_prompt_with_its_telemetry(tmp_path: Path, target: str) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(PROMPTS * 1000), encoding="utf-8")
    with started("batch_job.py", str(prompts), target) as (process, received):
        assert process.stdout is not None
        first = process.stdout.readline()
        code, rest, told = ended(process, signal.SIGTERM)
    answers = (first + rest).splitlines()
    assert code == 128 + signal.SIGTERM
    assert not complaints(told)
    assert len(answers) < len(PROMPTS) * 1000
    assert len(generations(received)) == requests_counted(received) == len(answers)
