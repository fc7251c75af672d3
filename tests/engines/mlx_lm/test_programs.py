"""Whole programs in processes of their own: every way to switch the instrumentation on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.mlx

ROOT = Path(__file__).parents[3]


def script(text: str, *args: str, environment: dict[str, str] | None = None) -> str:
    """Run a program in a process of its own; return what it prints."""
    done = subprocess.run(
        [*(args or (sys.executable,)), "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_instrumenting_before_the_engine_is_imported() -> None:
    """instrument() imports no engine; the engine is hooked when the program imports it."""
    printed = script(
        """
        import sys
        from otel_specdecode.testing import capture
        with capture() as telemetry:
            assert "mlx_lm" not in sys.modules
            from mlx_lm import load, stream_generate
            from otel_specdecode.tiny_pair import chat_tokens, model_path
            target, tokenizer = load(str(model_path("target")))
            for response in stream_generate(target, tokenizer, "hi", max_tokens=3):
                pass
            print(telemetry.span().name)
        """
    )
    assert "text_completion target" in printed


APP = """
import mlx_lm
from otel_specdecode.tiny_pair import chat_tokens, model_path
target, tokenizer = mlx_lm.load(str(model_path("target")))
draft, _ = mlx_lm.load(str(model_path("draft")))
mlx_lm.generate(target, tokenizer, "hi", max_tokens=5, draft_model=draft)
"""


def test_zero_code() -> None:
    """`opentelemetry-instrument python app.py`: spans and metrics of a program that knows nothing of it."""
    pytest.importorskip("opentelemetry.distro", reason="needs the [zero-code] extra")
    launcher = Path(sys.executable).parent / "opentelemetry-instrument"
    exporters = {f"OTEL_{signal}_EXPORTER": "console" for signal in ("TRACES", "METRICS")}
    installed = {"OTEL_LOGS_EXPORTER": "none", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "none"}
    printed = script(APP, str(launcher), sys.executable, environment={**exporters, **installed})
    assert '"name": "text_completion target"' in printed
    assert '"specdecode.draft.model": "draft"' in printed
    assert "specdecode.verify.passes" in printed


def test_the_drop_in_module_needs_no_other_line() -> None:
    """One import line changed: `from otel_specdecode.mlx_lm import ...`."""
    printed = script(
        """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
        trace.set_tracer_provider(provider)
        from otel_specdecode.mlx_lm import batch_generate, generate, load, stream_generate
        from otel_specdecode.tiny_pair import chat_tokens, model_path
        target, tokenizer = load(str(model_path("target")))
        generate(target, tokenizer, "hi", max_tokens=3)
        """
    )
    assert '"name": "text_completion target"' in printed


@pytest.mark.parametrize(
    "setting", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}]
)
def test_a_disabled_sdk_and_an_unreachable_endpoint_change_nothing(setting: dict[str, str]) -> None:
    """The program runs, ends well and soon, and no exception reaches it."""
    printed = script(
        """
        import otel_specdecode, time
        otel_specdecode.configure(service_name="test")
        otel_specdecode.instrument()
        began = time.monotonic()
        """
        + textwrap.indent(APP, " " * 8)
        + """
        otel_specdecode.flush(timeout=2)
        print("took", time.monotonic() - began)
        """,
        environment={**setting, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"},
    )
    took = next(float(line.split()[1]) for line in printed.splitlines() if line.startswith("took"))
    assert took < 60
