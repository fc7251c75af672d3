"""The examples, run as they stand: on the models of the package, exporting to a real OTLP server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [otlp] extra")

from tests.otlp_receiver import Received, otlp_receiver

pytestmark = pytest.mark.llama_cpp

EXAMPLES = Path(__file__).parents[1] / "examples"


class Seen(NamedTuple):
    """What an example's generations are to be seen as, one after another."""

    modes: list[str]
    methods: list[str]
    finish_reasons: list[str]


EXPECTED = {
    "llama_cpp_draft": Seen(["autoregressive", "speculative"], ["none", "draft_model"], ["stop", "stop"]),
    "llama_cpp_stream": Seen(["autoregressive"], ["none"], ["closed"]),
}


def run(name: str) -> tuple[str, Received]:
    """Run an example to its end; return what it prints and what it exports."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    with otlp_receiver() as (url, received):
        exporter = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        done = subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py"],
            env={**clean, **exporter},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "generation is not affected" not in done.stderr
    return done.stdout, received


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_shows_what_it_says(name: str) -> None:
    printed, received = run(name)
    assert printed.strip()
    spans = [span.attributes for span in sorted(received.spans(), key=lambda span: span.start)]
    assert EXPECTED[name] == Seen(
        [span["specdecode.mode"] for span in spans],
        [span["specdecode.method"] for span in spans],
        [reason for span in spans for reason in span["gen_ai.response.finish_reasons"]],
    )
